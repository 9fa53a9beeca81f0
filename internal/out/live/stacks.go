package live

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	"correlator/dots/value"
	"correlator/internal/out/live/types"
	"correlator/procscan"
	"correlator/profile"
)

// This file is the stacks of those transactions and processes that somebody has asked for.

const (
	// maxStackBytes bounds what stacks take here and in the cache of the embedded broker. Each part of it
	// takes at least as much here as there, so most of the cache is left for other objects. A stack of 80
	// frames with names of 60 bytes takes 12 kB.
	maxStackBytes = 20 << 20

	// maxStackText bounds the names of one stack: with all that belongs to it, it is less than a frame of
	// the bus may have, 64 KiB.
	maxStackText = 48 << 10

	// expectedName is how long names are expected to be. For so much there is room once a stack is taken;
	// longer ones are cut if there is no more.
	expectedName = 64

	stackBytes = 1024 // of a stack, in maps, in mirrors and in the cache, besides frames and names
	shareBytes = 1024 // of the time of a transaction with a stack
	aliasBytes = 192  // of another id of a stack
	frameBytes = 32   // of a profile.Frame, and of a Function besides its texts
	nameBytes  = 28   // of a name besides its text

	// maxCollecting is of how many transactions stacks are collected, and of how many processes.
	maxCollecting = 2 * maxShown

	// maxTries is how often names are asked for that are not known: they may come after the stack.
	maxTries = 10
)

// namer gives a frame of a process its name, and reports whether it is the one that it will keep.
type namer func(*profile.Resource, profile.Frame) (name string, known bool)

// stackKey is a stack of a process. What its frames are called, the files of the process say: those of
// others may have the same id, as files can be made that have the id of another one.
type stackKey struct {
	pid int
	id  profile.StackTraceID
}

// stack is a stack of a process, or several whose frames have the same names: then it has the id of one.
type stack struct {
	id      string // as it is published
	process procscan.ProcessID
	owner   string
	bytes   int // that it counts
	users   int // collections that have it
	keys    []stackKey

	resource *profile.Resource
	frames   []profile.Frame // nil: they have their last names
	raw      int             // bytes of frames
	names    []string        // nil: none yet
	hash     uint64          // of its first names
	version  uint64          // of its names: no other stack's have the same
	tries    int
}

// stacks are those of all transactions.
type stacks struct {
	bytes   *budget
	byKey   map[stackKey]*stack
	byNames map[uint64]*stack
	seed    maphash.Seed
	unnamed []*stack // whose frames have not got their last names
	version uint64   // the last one that was given

	collecting map[transactionID]*transaction // whose stacks they are
	profiles   map[procscan.ProcessID]*collection
}

// collection is how much CPU time a transaction, or a process, has used with which stack.
type collection struct {
	owner       string
	stacks      map[*stack]time.Duration // nil: they are not collected
	stacksSince time.Time                // since when they are, and what threads do
	lost        time.Duration            // without stacks, or with those that there was no room for
}

// profile returns the collection of stacks of the process of a sample; nil: they are not collected.
func (c *stacks) profile(sample *profile.Sample) *collection {
	return c.profiles[sample.Resource.Process]
}

// collections calls a function with all collections.
func (c *stacks) collections(each func(*collection)) {
	for _, tx := range c.collecting {
		each(&tx.collection)
	}
	for _, of := range c.profiles {
		each(of)
	}
}

func newStacks() stacks {
	return stacks{bytes: newBudget(maxStackBytes), byKey: make(map[stackKey]*stack), byNames: make(map[uint64]*stack),
		seed: maphash.MakeSeed(), collecting: make(map[transactionID]*transaction),
		profiles: make(map[procscan.ProcessID]*collection)}
}

// addStack takes account of the stack of samples of a transaction or process, and reports whether there was room for
// it.
func (t *Tracker) addStack(of *collection, sample *profile.Sample) bool {
	if of.stacks == nil {
		return true
	}
	if sample.Stack == nil || len(sample.Stack.Frames) == 0 {
		of.lost += t.used(sample)
		return true
	}
	s := t.stacks.get(sample)
	if s == nil || !t.stacks.use(of, s) {
		of.lost += t.used(sample)
		return false
	}
	of.stacks[s] += t.used(sample)
	return true
}

// get returns the stack of samples, nil if there is no room for it.
func (c *stacks) get(sample *profile.Sample) *stack {
	r := sample.Resource
	key := stackKey{r.PID, sample.Stack.ID}
	if s := c.byKey[key]; s != nil {
		if s.process != r.Process {
			return nil // of one that had the pid before, and is about to be forgotten
		}
		return s
	}
	s := &stack{id: sample.Stack.ID.String() + "@" + strconv.Itoa(r.PID), process: r.Process, owner: r.Owner,
		resource: r, frames: sample.Stack.Frames, keys: []stackKey{key}}
	for _, f := range s.frames {
		s.raw += frameBytes
		if f.Function != nil {
			s.raw += frameBytes + f.Function.TextBytes()
		}
	}
	s.bytes = s.cost(min(len(s.frames)*expectedName, maxStackText))
	if !c.bytes.Take(s.owner, s.bytes) {
		return nil
	}
	c.byKey[key] = s
	c.unnamed = append(c.unnamed, s)
	return s
}

// cost returns what a stack takes whose names have so many bytes.
func (s *stack) cost(text int) int {
	const copies = 2 // here, and encoded in the cache
	return stackBytes + (len(s.keys)-1)*aliasBytes + s.raw + max(len(s.frames), len(s.names))*nameBytes + copies*text
}

// use makes a stack one of a collection, and reports whether there is room for that.
func (c *stacks) use(of *collection, s *stack) bool {
	if _, has := of.stacks[s]; has {
		return true
	}
	if !c.bytes.Take(of.owner, shareBytes) {
		c.drop(s)
		return false
	}
	s.users++
	of.stacks[s] = 0
	return true
}

// drop forgets a stack if no collection has it.
func (c *stacks) drop(s *stack) {
	if s.users > 0 {
		return
	}
	c.bytes.Give(s.owner, s.bytes)
	for _, key := range s.keys {
		delete(c.byKey, key)
	}
	if c.byNames[s.hash] == s {
		delete(c.byNames, s.hash)
	}
	s.frames = nil // which takes it from those without names
}

// forget ends collecting the stacks of a transaction.
func (c *stacks) forget(id transactionID, tx *transaction) {
	c.release(&tx.collection)
	if tx.did != nil {
		c.bytes.Give(tx.owner, len(tx.did.places)*placeBytes)
	}
	tx.did = nil
	delete(c.collecting, id)
}

// release forgets the stacks of a collection.
func (c *stacks) release(of *collection) {
	for s := range of.stacks {
		c.bytes.Give(of.owner, shareBytes)
		s.users--
		c.drop(s)
	}
	of.stacks, of.stacksSince, of.lost = nil, time.Time{}, 0
}

// collect has the stacks of some transactions collected from now on, and of no others.
func (t *Tracker) collect(selected []shownTransaction, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := make(map[transactionID]bool, len(selected))
	for _, tx := range selected {
		wanted[tx.id] = true
		if t.transactions[tx.id] == tx.transaction && tx.stacks == nil {
			tx.stacks, tx.stacksSince, tx.did = make(map[*stack]time.Duration), now, new(activity)
			t.stacks.collecting[tx.id] = tx.transaction
		}
	}
	for id, tx := range t.stacks.collecting {
		if !wanted[id] {
			t.stacks.forget(id, tx)
		}
	}
}

// profile has the stacks of some processes collected from now on, and of no others.
func (t *Tracker) profile(selected []procscan.ProcessID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range selected {
		if t.stacks.profiles[id] == nil {
			t.stacks.profiles[id] = &collection{stacks: make(map[*stack]time.Duration), stacksSince: now}
		}
	}
	for id, of := range t.stacks.profiles {
		if !slices.Contains(selected, id) {
			t.stacks.forgetProfile(id, of)
		}
	}
}

// profileOf returns since when the stacks of a process are collected, zero if they are not, and the CPU time without
// one.
func (t *Tracker) profileOf(id procscan.ProcessID) (since time.Time, lost time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of := t.stacks.profiles[id]; of != nil {
		since, lost = of.stacksSince, of.lost
	}
	return since, lost
}

func (c *stacks) forgetProfile(id procscan.ProcessID, of *collection) {
	c.release(of)
	delete(c.profiles, id)
}

// nameStacks names the frames that have no names yet, or not their last ones. It waits for the namer, so
// that is done without the lock.
func (t *Tracker) nameStacks(name namer) {
	t.mu.Lock()
	t.stacks.unnamed = slices.DeleteFunc(t.stacks.unnamed, func(s *stack) bool { return s.frames == nil })
	all := slices.Clone(t.stacks.unnamed)
	t.mu.Unlock()
	for _, s := range all {
		t.mu.Lock()
		resource, frames := s.resource, s.frames
		t.mu.Unlock()
		names, known := namesOf(resource, frames, name)
		t.mu.Lock()
		if s.frames != nil {
			t.named(s, names, known)
		}
		t.mu.Unlock()
	}
}

// namesOf returns the names of a process's frames, and whether they are their last ones.
func namesOf(resource *profile.Resource, frames []profile.Frame, name namer) (names []string, known bool) {
	known = true
	names = make([]string, len(frames))
	for i, f := range frames {
		text, last := name(resource, f)
		names[i] = clean(text)
		known = known && last
	}
	cut(names, maxStackText)
	return names, known
}

// named gives the frames of a stack names. One that has the same as another one of the process, by other
// addresses in the same functions, becomes one with it, before it is published.
func (t *Tracker) named(s *stack, names []string, known bool) {
	c := &t.stacks
	s.tries++
	if s.names == nil {
		s.hash = c.hashOf(s, names)
		if other := c.byNames[s.hash]; other != nil && other.process == s.process &&
			other.keys[0].pid == s.keys[0].pid && slices.Equal(other.names, names) {
			t.merge(s, other)
			return
		}
		c.byNames[s.hash] = s
	}
	if !slices.Equal(s.names, names) {
		c.version++
		s.names, s.version = names, c.version
	}
	if known || s.tries >= maxTries {
		s.frames, s.resource, s.raw = nil, nil, 0
	}
	text := 0
	for _, name := range names {
		text += len(name)
	}
	bytes := s.cost(text)
	if bytes > s.bytes && !c.bytes.Take(s.owner, bytes-s.bytes) {
		bytes = s.bytes
		cut(names, text-(s.cost(text)-s.bytes+1)/2)
	} else if bytes < s.bytes {
		c.bytes.Give(s.owner, s.bytes-bytes)
	}
	s.bytes = bytes
}

func (c *stacks) hashOf(s *stack, names []string) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(strconv.Itoa(s.keys[0].pid)) // it never fails
	for _, name := range names {
		_ = h.WriteByte(0) // which is in no name
		_, _ = h.WriteString(name)
	}
	return h.Sum64()
}

// merge makes a stack one with another one.
func (t *Tracker) merge(s, into *stack) {
	c := &t.stacks
	c.collections(func(of *collection) {
		used, has := of.stacks[s]
		if !has {
			return
		}
		delete(of.stacks, s)
		if _, both := of.stacks[into]; both {
			c.bytes.Give(of.owner, shareBytes)
		} else {
			into.users++
		}
		of.stacks[into] += used
	})
	s.users = 0
	keys := s.keys
	c.drop(s)
	for _, key := range keys {
		if c.bytes.Take(into.owner, aliasBytes) { // always: s had more
			into.bytes += aliasBytes
			into.keys = append(into.keys, key)
			c.byKey[key] = into
		}
	}
}

// stackObjects returns how much was used with each stack of some transactions, those with most first, and
// the stacks.
func (o *objectsOf) stackObjects(collecting []shownTransaction) (
	shares []types.CorrelatorTransactionStack, named []types.CorrelatorStack, versions []uint64,
) {
	n := newNamed(o.host)
	for _, tx := range collecting {
		trace, transaction := hexadecimal(tx.id.trace[:]), hexadecimal(tx.id.transaction[:])
		for _, s := range n.add(&tx.collection) {
			shares = append(shares, types.CorrelatorTransactionStack{
				Host: n.host, TraceID: trace, TransactionID: transaction,
				StackID: value.Some(s.id), CPUTime: value.Some(value.DurationOf(tx.stacks[s])),
			})
		}
	}
	return shares, n.stacks, n.versions
}

// profileObjects adds to a snapshot how much was used with each stack of processes, and those of the stacks that it
// has not got.
func (o *objectsOf) profileObjects(s *snapshot, profiles map[procscan.ProcessID]*collection) {
	n := newNamed(o.host)
	for _, x := range s.stacks {
		n.seen[x.ID.Value()] = true
	}
	for id, of := range profiles {
		for _, stack := range n.add(of) {
			s.processStacks = append(s.processStacks, types.CorrelatorProcessStack{
				Host: n.host, Pid: value.Some(uint32(id.PID)), StackID: value.Some(stack.id),
				CPUTime: value.Some(value.DurationOf(of.stacks[stack])),
			})
		}
	}
	s.stacks, s.stackVersions = append(s.stacks, n.stacks...), append(s.stackVersions, n.versions...)
}

// namedStacks are stacks as they are published, each once.
type namedStacks struct {
	host     value.Opt[string]
	stacks   []types.CorrelatorStack
	versions []uint64
	seen     map[string]bool
}

func newNamed(host string) *namedStacks {
	return &namedStacks{host: value.Some(host), versions: []uint64{}, seen: make(map[string]bool)}
}

// add adds the stacks of a collection that have names, and returns them, those with most time first.
func (n *namedStacks) add(of *collection) []*stack {
	all := make([]*stack, 0, len(of.stacks))
	for s := range of.stacks {
		if s.names != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *stack) int { return cmp.Compare(of.stacks[b], of.stacks[a]) })
	for _, s := range all {
		if !n.seen[s.id] {
			n.seen[s.id] = true
			n.versions = append(n.versions, s.version)
			n.stacks = append(n.stacks, types.CorrelatorStack{Host: n.host, ID: value.Some(s.id),
				Frames: value.Some(s.names)})
		}
	}
	return all
}
