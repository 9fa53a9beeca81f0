package keep

import (
	"math"
	"sync"
	"time"
	"unsafe"

	"correlator/bpf"
	"correlator/internal/host/share"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out/bootclock"
	"correlator/profile"
)

const (
	// slicesOfPeriod is into how many slices the time is divided that samples are kept: they expire by
	// the slice, so they are kept a tenth longer at most.
	slicesOfPeriod = 10

	// partOfLimit and maxSliceBytes are which part of the memory, and how much of it, the slice of an owner
	// may be before a new one begins: so much is forgotten at a time, for which all samples wait. The
	// stack of a sample may take such a part at most, too.
	partOfLimit   = 16
	maxSliceBytes = 2 << 20

	// What things take in memory beside texts, in maps too, with half of a growing map or slice unused.
	// TestSoakMemory compares them with the heap.
	ownerBytes       = 640
	processBytes     = 1792 // with four maps, each of which has room for eight, and the profile.Resource
	transactionBytes = 240  // with that of its trace
	stackBytes       = 160  // and a pointer for each frame
	pointerBytes     = 8
	frameBytes       = 160
	functionBytes    = 48
	fileBytes        = 128
	codeRangeBytes   = 24
	threadBytes      = 160
	sliceBytes       = 640 // with an index that has room for eight
	openEntryBytes   = 176 // with the index of a slice that is being filled
	causeBytes       = 512
	openWaitBytes    = 288

	// entryBytes and waitBytes are an entry of a slice that has ended, with what is unused of the slice's last page.
	entryBytes = int(unsafe.Sizeof(entry{})) * 17 / 16
	waitBytes  = int(unsafe.Sizeof(waitEntry{})) * 17 / 16
)

// Store keeps samples. It is safe for concurrent use. A query holds the lock that Add waits for only for
// steps of bounded length (step).
type Store struct {
	period    time.Duration
	perSample time.Duration // CPU time, for the order of transactions
	limit     int
	clock     *bootclock.Clock

	mu      sync.Mutex
	bytes   int
	owners  map[string]*owner
	unnamed []*stack // whose frames have got the names that there are, and lack some
	gone    tombstones
	spans   spanTimes
	moments *share.Budget[string] // in all slices, by owner, without those of slow transactions that are kept
	slow    slowOnes
	stats   Stats

	forgotten int64      // until when samples were added that were forgotten later, in ns
	shrunk    []*process // of which something was forgotten since Expire has looked at their tables

	paused func() // called in each pause, without mu; nil but in tests

	querying sync.Mutex // held by a query, and by shrink; a query takes it before mu
	query    uint32     // its number; guarded by querying, as is transaction.found
}

// Stats is what became of samples, and of waits.
//
//	Added = Samples + Evicted + Expired
//	Waits.Added = Waits.Kept + Waits.Evicted + Waits.Expired
type Stats struct {
	Samples, Added, Evicted, Expired uint64
	Lost                             [numLost]uint64 // not added
	Waits                            WaitStats
	Accounts                         int // now
	AccountsForgotten                [numReasons]uint64
	Spans                            SpanStats
	Slow                             SlowStats
	Untimed                          uint64    // samples, and waits, of which it is not kept when they were
	Bytes, Transactions              int       // now
	Oldest                           time.Time // since when any are kept; zero: there are none
	Complete                         time.Time // since when all are kept; zero: nothing was forgotten
}

// owner is a user or a container, and what is kept of its processes.
type owner struct {
	name      string
	bytes     int
	processes map[*profile.Resource]*process
	slices    []*timeSlice // the oldest first; the last one is being filled
	waits     waits
	accounts  accounts
	slow      slowOwned
}

// process is a process as long as it publishes the same.
type process struct {
	owner        *owner
	resource     *profile.Resource
	transactions table[transactionID, *transaction]
	stacks       table[profile.StackTraceID, *stack]
	frames       table[profile.Frame, *frame]
	threads      table[threadID, *thread]
	causes       table[causeID, *cause]
	// transactions in OpenTelemetry's contexts by their trace, but for those without an id
	traces table[[16]byte, int]
	shrunk bool // it is in Store.shrunk

	slowFrom time.Duration // from when on transactions are slow; 0: none are
	slow     slowRefs
}

type transactionID struct {
	trace       [16]byte
	transaction [8]byte // zero: not known
}

type transaction struct {
	process     *process
	id          transactionID
	context     profile.ContextKind
	attributes  profile.Attributes // the first that there were
	first, last int64              // of the first and the last sample, in ns; without any, last < first
	samples     uint64             // that are kept
	earlier     uint64             // that are not any more
	account     *account           // nil: there is none
	forgotten   bool               // there was an account before
	entries     int32              // of samples and waits, and one for the account
	found       uint32             // number of the query that has found it by a span last
	slow        slowRefs
	slowGone    bool // it was kept as a slow one, and there was no room any more
}

// stack is a stack of a process: what its frames are called, the files of the process say.
type stack struct {
	process *process
	id      profile.StackTraceID
	frames  []*frame // leaf first
	entries int32
	tryAt   int64 // when its names are asked for again at the earliest, in ns
	tries   uint8 // to name its frames
	named   bool  // or forgotten
	queued  bool  // it is in unnamed
	slow    slowRefs
}

// frame is one frame of stacks of a process.
type frame struct {
	profile.Frame                   // as it was sampled
	function      *profile.Function // nil: that of Frame, or not known
	stacks        int32
	slow          slowRefs
}

// threadID is a thread by a name: it may have several, and a later thread may have its number.
type threadID struct {
	tid  int32
	name string
}

type thread struct {
	threadID
	entries int32
	slow    slowRefs
}

// timeSlice is the samples of an owner in some time, or the waits.
type timeSlice struct {
	began, ended int64 // in ns; ended: 0 while it is being filled
	first        int64 // when its first sample was taken
	bytes        int   // by which the owner grew
	entries      []entry
	index        map[entryKey]uint32 // of entries; nil when it has ended
	moments      []moment            // of entries, or of waits

	// Of one of waits, instead of both.
	waits     []waitEntry
	waitIndex map[waitKey]uint32
}

type entryKey struct {
	transaction *transaction
	stack       *stack
	thread      *thread
	span        [8]byte
}

type entry struct {
	entryKey
	count uint64
}

// keyed is an entry of samples or of waits.
type keyed interface{ of() entryKey }

func (k entryKey) of() entryKey { return k }

// NewStore returns an empty store that keeps samples for a time, and those of slow transactions for longer, and has so
// many bytes.
func NewStore(period time.Duration, limit int, slow ...Rule) *Store {
	moments := limit / partOfAllMoments / momentBytes
	return &Store{period: period, limit: limit, clock: bootclock.New(bpf.ReadInstant),
		owners: make(map[string]*owner), gone: newTombstones(limit),
		moments: share.NewBudget[string](moments), slow: slowOnes{slow, share.NewBudget[string](moments / partOfSlow)}}
}

// Add keeps samples of transactions, those with a Wait too. It reports whether their stack has frames without a
// name, which may have one: then Named is to be called with the sample when they can be read. The sample stays the
// caller's.
func (s *Store) Add(sample *profile.Sample, now time.Time) (unnamed bool) {
	if sample.Resource == nil || !sample.HasTrace() || sample.Count == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Look(now)
	id := transactionID{sample.TraceID, sample.TransactionID}
	switch {
	case sample.Stack == nil || len(sample.Stack.Frames) == 0:
		s.lose(sample, id, lostNoStack, now)
		return false
	case !s.knowsStack(sample) && sizeOf(sample) > s.limit/partOfLimit:
		s.lose(sample, id, lostTooLarge, now)
		return false
	}
	p := s.process(sample.Resource)
	of := &p.owner.slices
	if sample.Wait != nil {
		of = &p.owner.waits.slices
	}
	slice := s.slice(p.owner, of, now, sample.Wait != nil)
	before := p.owner.bytes
	tx, stack := s.transaction(p, id, sample), s.stack(p, sample.Stack)
	key := entryKey{tx, stack, s.thread(p, sample), sample.SpanID}
	if sample.Wait == nil {
		s.addMoment(p.owner, slice, s.count(p.owner, slice, key, sample.Count), sample)
	} else {
		s.addMoment(p.owner, slice, s.countWait(p, slice, key, sample), sample)
		p.owner.waits.bytes += p.owner.bytes - before
	}
	slice.bytes += p.owner.bytes - before
	slice.first = min(slice.first, s.clock.Ns(sample.At))
	unnamed = !stack.named && !stack.queued && s.clock.Ns(now) >= stack.tryAt
	s.evictWaits(p.owner, now)
	s.evict(now)
	return unnamed
}

// knowsStack reports whether the stack of a sample takes no more memory.
func (s *Store) knowsStack(sample *profile.Sample) bool {
	if o := s.owners[sample.Resource.Owner]; o != nil && o.processes[sample.Resource] != nil {
		return o.processes[sample.Resource].stacks.get(sample.Stack.ID) != nil
	}
	return false
}

// sizeOf returns the most that a sample can take.
func sizeOf(sample *profile.Sample) int {
	size := ownerBytes + sizeOfProcess(sample.Resource) + sliceBytes + transactionBytes + stackBytes + threadBytes +
		openEntryBytes + openMomentBytes + sample.Attributes.Bytes() + len(sample.Thread)
	if sample.Wait != nil {
		of := newCauseID(sample.Wait)
		size += openWaitBytes + causeBytes + of.textBytes()
	}
	for _, f := range sample.Stack.Frames {
		size += pointerBytes + sizeOfFrame(f)
	}
	return size
}

// sizeOfProcess counts the texts of the resource, too: it is kept for longer than the process lives.
func sizeOfProcess(r *profile.Resource) int { return processBytes + r.TextBytes() }

// sizeOfFrame counts the file and the function for each of their frames, whether they are shared or not.
func sizeOfFrame(f profile.Frame) int {
	size := frameBytes + sizeOfFunction(f.Function)
	if f.File != nil {
		size += fileBytes + len(f.File.Path) + len(f.File.BuildID) + len(f.File.GoBuildID) +
			len(f.File.Code)*codeRangeBytes
	}
	return size
}

func sizeOfFunction(f *profile.Function) int {
	if f == nil {
		return 0
	}
	return functionBytes + f.TextBytes()
}

func (s *Store) grow(o *owner, bytes int) {
	o.bytes += bytes
	s.bytes += bytes
}

func (s *Store) process(resource *profile.Resource) *process {
	o := s.owners[resource.Owner]
	if o == nil {
		o = &owner{name: resource.Owner, processes: make(map[*profile.Resource]*process)}
		s.owners[resource.Owner] = o
		s.grow(o, ownerBytes)
	}
	p := o.processes[resource]
	if p == nil {
		p = &process{owner: o, resource: resource, slowFrom: s.slow.from(resource.Name)}
		o.processes[resource] = p
		s.grow(o, sizeOfProcess(resource))
	}
	return p
}

// slice returns the slice of an owner that samples are put in now, or waits.
func (s *Store) slice(o *owner, of *[]*timeSlice, now time.Time, ofWaits bool) *timeSlice {
	at := s.clock.Ns(now)
	if n := len(*of); n > 0 {
		last := (*of)[n-1]
		if at-last.began < int64(s.period/slicesOfPeriod) && at >= last.began &&
			last.bytes <= min(s.limit/partOfLimit, maxSliceBytes) && last.ended == 0 && !s.hasMoments(last) {
			return last
		}
		s.end(o, last, at)
	}
	slice := &timeSlice{began: at, first: math.MaxInt64}
	if ofWaits {
		slice.waitIndex = make(map[waitKey]uint32)
	} else {
		slice.index = make(map[entryKey]uint32)
	}
	*of = append(*of, slice)
	s.grow(o, sliceBytes)
	return slice
}

// end ends a slice, which then takes less.
func (s *Store) end(o *owner, slice *timeSlice, at int64) {
	if slice.ended != 0 {
		return
	}
	before := slice.size()
	slice.ended = max(at, slice.began, 1)
	slice.index, slice.waitIndex = nil, nil
	slice.entries = append(make([]entry, 0, len(slice.entries)), slice.entries...)
	slice.waits = append(make([]waitEntry, 0, len(slice.waits)), slice.waits...)
	slice.moments = append(make([]moment, 0, len(slice.moments)), slice.moments...)
	s.grow(o, slice.size()-before)
}

// size returns what the slice takes without what its entries refer to.
func (t *timeSlice) size() int {
	if t.ended == 0 {
		return sliceBytes + len(t.entries)*openEntryBytes + len(t.waits)*openWaitBytes + len(t.moments)*openMomentBytes
	}
	return sliceBytes + len(t.entries)*entryBytes + len(t.waits)*waitBytes + len(t.moments)*momentBytes
}

func (s *Store) transaction(p *process, id transactionID, sample *profile.Sample) *transaction {
	tx := p.transactions.get(id)
	if tx == nil {
		tx = s.newTransaction(p, id, sample.Context)
	}
	first, last := seen(sample, s.clock.Ns)
	tx.first, tx.last = min(tx.first, first), max(tx.last, last)
	if tx.attributes == (profile.Attributes{}) && sample.Attributes != tx.attributes {
		tx.attributes = sample.Attributes
		s.grow(p.owner, sample.Attributes.Bytes())
		if tx.slow > 0 {
			s.growSlow(p.owner, sample.Attributes.Bytes())
		}
	}
	return tx
}

func (s *Store) newTransaction(p *process, id transactionID, context profile.ContextKind) *transaction {
	tx := &transaction{process: p, id: id, context: context, first: math.MaxInt64, last: math.MinInt64}
	p.transactions.put(id, tx)
	if context == profile.OTelContext && id.transaction != [8]byte{} {
		p.traces.put(id.trace, p.traces.get(id.trace)+1)
	}
	s.stats.Transactions++
	s.grow(p.owner, transactionBytes)
	return tx
}

// seen returns when samples were taken.
func seen(sample *profile.Sample, ns func(time.Time) int64) (first, last int64) {
	first = ns(sample.At)
	if sample.Last.IsZero() {
		return first, first
	}
	return first, max(first, ns(sample.Last))
}

func (s *Store) stack(p *process, sampled *profile.Stack) *stack {
	known := p.stacks.get(sampled.ID)
	if known != nil {
		return known
	}
	made := &stack{process: p, id: sampled.ID, frames: make([]*frame, len(sampled.Frames)), named: true}
	for i, f := range sampled.Frames {
		one := p.frames.get(f)
		if one == nil {
			one = &frame{Frame: f}
			p.frames.put(f, one)
			s.grow(p.owner, sizeOfFrame(f))
		}
		one.stacks++
		made.frames[i] = one
		made.named = made.named && !one.mayBeNamed()
	}
	p.stacks.put(sampled.ID, made)
	s.grow(p.owner, stackBytes+len(made.frames)*pointerBytes)
	return made
}

// mayBeNamed reports whether the frame has no name, and there may be one.
func (f *frame) mayBeNamed() bool {
	return f.function == nil && f.Name() == "" && symbolizer.OriginOf(f.Frame) != symbolizer.NoOrigin
}

func (s *Store) thread(p *process, sample *profile.Sample) *thread {
	id := threadID{int32(sample.TID), sample.Thread}
	th := p.threads.get(id)
	if th == nil {
		th = &thread{threadID: id}
		p.threads.put(id, th)
		s.grow(p.owner, threadBytes+len(id.name))
	}
	return th
}

// count adds samples to a slice, and returns the place of their entry.
func (s *Store) count(o *owner, slice *timeSlice, key entryKey, samples uint64) uint32 {
	i, known := slice.index[key]
	if !known {
		i = uint32(len(slice.entries))
		slice.index[key] = i
		slice.entries = append(slice.entries, entry{entryKey: key})
		key.take()
		s.grow(o, openEntryBytes)
	}
	slice.entries[i].count += samples
	key.transaction.samples += samples
	s.stats.Added += samples
	s.stats.Samples += samples
	return i
}

// take counts an entry with the key.
func (k *entryKey) take() {
	k.transaction.entries++
	k.stack.entries++
	k.thread.entries++
}

// Stats returns what became of samples until now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest, n := int64(0), 0
	for _, o := range s.owners {
		for _, of := range [][]*timeSlice{o.slices, o.slow.slices} {
			if len(of) > 0 && (oldest == 0 || of[0].began < oldest) {
				oldest = of[0].began
			}
		}
		if n++; n%step == 0 {
			s.pause()
		}
	}
	stats := s.stats
	stats.Bytes = s.bytes + s.gone.bytes() + s.spans.bytes()
	if oldest != 0 {
		stats.Oldest = s.clock.Time(oldest)
	}
	if s.forgotten != 0 {
		stats.Complete = s.clock.Time(s.forgotten)
	}
	return stats
}
