package profiles

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"time"

	"correlator/otlp/field"
	"correlator/profile"
)

const (
	// requestBytes limits a request unless a single sample is larger: a queue of a few MiB has room
	// for several, and little is lost with one.
	requestBytes = 1 << 20

	// MaxRequestBytes is what deployed receivers accept by default.
	MaxRequestBytes = 4 << 20

	// mostSpread is how far apart the intervals of a request may begin. Requests are sent every few
	// seconds: intervals further apart mean that the clock was set, and no profile spans that.
	mostSpread = time.Minute
)

// Options has what is the same in all requests.
type Options struct {
	SamplesPerSecond int    // of every CPU; 0: unknown, profiles have no period
	HostID           string // empty: resources have none, as of HostName
	HostName         string
	Version          string // of the correlator

	// MaxBytes limits a request with a single sample that does not fit into 1 MiB, and all requests
	// if it is less. 0: MaxRequestBytes.
	MaxBytes int
	// Name returns a frame of a process with the function that it has there for display, if that is
	// known (profile.Frame.WithName). nil: functions are those that frames have.
	Name func(*profile.Resource, profile.Frame) profile.Frame
	// Random is the source of the ids of profiles; nil: crypto/rand. If it fails, profiles have no
	// id.
	Random io.Reader
}

// Request is an ExportProfilesServiceRequest.
type Request struct {
	Body     []byte // owned by the receiver of the request
	Samples  int    // items: samples that differ in more than their interval
	Profiles int    // one for each process; partial success counts these
	Count    uint64 // of all samples together
}

// Builder encodes samples as requests. It is not safe for concurrent use. It keeps the memory of a
// request for the next one, three to six times its size, until requests have been smaller for a
// while (see memory).
type Builder struct {
	options Options
	target  int    // size at which a request is emitted
	scope   []byte // the field of ScopeProfiles
	types   string // fields of Profile, but of waits
	emit    func(Request)

	maxTimestamps uint64   // of a sample
	times         []uint64 // for those of one

	memory
	start, end uint64 // of all intervals, ns since 1970
	count      uint64
	bytes      int // of processes and samples, at most
}

// none is the index of nothing in the lists below.
const none = -1

// process becomes a ResourceProfiles with one profile, of samples or of waits.
type process struct {
	waits       bool
	types       string
	resource    piece // of resources: the field of ResourceProfiles
	first, last int32 // of its samples
	bytes       int   // of its samples
	id          [16]byte
}

type piece struct{ at, bytes int }

// identity identifies a sample: indices of the process and of entries in the dictionary.
type identity struct {
	process, stack, link      int32
	thread, name, transaction int32
	set                       int32 // of attributes that the thread published
	wait                      int32 // of attributes of its waits
}

// owner tells processes of a request apart.
type owner struct {
	resource *profile.Resource
	waits    bool
}

// sample has all samples of one identity.
type sample struct {
	identity
	next   int32  // of the process
	latest int32  // of its points
	count  uint64 // of waits, ns
}

// maxTimestamps is how many a sample has at most, which are 32 KiB of a request. One that was seen more
// often has a value and one timestamp instead.
const maxTimestamps = 4096

// maxPoints limits the memory of points. Samples with a value have some that are not sent; a full
// request without such samples has no more.
const maxPoints = requestBytes / 8

// timestampsOnly reports whether a sample has a timestamp for each time that it was seen, and no value.
func (b *Builder) timestampsOnly(s *sample) bool {
	return s.count <= b.maxTimestamps && !b.processes[s.process].waits
}

// point is the count of a sample in an interval, and when the first and the last were taken. Those between are taken to
// be evenly spread.
type point struct {
	time, last, count uint64
	earlier           int32
}

// at returns the timestamp of the one with an index.
func (p *point) at(i uint64) uint64 {
	if i == 0 {
		return p.time
	}
	return p.last - (p.last-p.time)/(p.count-1)*(p.count-1-i)
}

// NewBuilder returns an empty builder. Add and Flush pass its requests to emit.
func NewBuilder(options Options, emit func(Request)) *Builder {
	if options.MaxBytes == 0 {
		options.MaxBytes = MaxRequestBytes
	}
	if options.Random == nil {
		options.Random = rand.Reader
	}
	b := &Builder{
		options: options, target: min(requestBytes, options.MaxBytes),
		maxTimestamps: min(maxTimestamps, uint64(options.MaxBytes)/16), // half of a small request
		scope:         newScope(options.Version), types: newTypes(options.SamplesPerSecond), emit: emit,
	}
	b.memory.reset(0)
	return b
}

// Add takes the samples of one interval; s stays the caller's. Those that differ in their times
// alone share an item, and are added up where they are the same. When they do not fit into the
// request, or are of another time by more than a minute, it is emitted, and they are the first of
// the next. ErrInvalid and ErrTooLarge say that they were not taken.
func (b *Builder) Add(s *profile.Sample) error {
	if !hasContents(s) {
		return ErrInvalid
	}
	if start, _ := window(s); len(b.samples) > 0 && max(start, b.start)-min(start, b.start) > uint64(mostSpread) {
		b.Flush()
	}
	err := b.add(s, b.target)
	if errors.Is(err, ErrTooLarge) {
		b.Flush()
		err = b.add(s, b.options.MaxBytes)
	}
	return err
}

// Samples returns the number of items that the next request has so far.
func (b *Builder) Samples() int { return len(b.samples) }

// Flush emits what was added since the last request, if there is anything.
func (b *Builder) Flush() {
	if len(b.samples) == 0 {
		return
	}
	request := Request{Body: b.encode(), Samples: len(b.samples), Profiles: len(b.processes), Count: b.count}
	b.memory.reset(max(len(request.Body), 8*len(b.points)))
	b.bytes, b.count = 0, 0
	b.emit(request)
}

// add adds a sample unless the request would become larger than limit.
func (b *Builder) add(s *profile.Sample, limit int) error {
	b.dictionary.mark()
	processes, resources, bytes := len(b.processes), len(b.resources), b.bytes
	err := b.place(s, b.identify(s), limit)
	if err != nil {
		b.dictionary.rollBack()
		if len(b.processes) > processes {
			delete(b.byResource, owner{s.Resource, s.Wait != nil})
		}
		b.processes, b.resources, b.bytes = b.processes[:processes], b.resources[:resources], bytes
	}
	return err
}

// identify adds what a sample refers to to the dictionary.
func (b *Builder) identify(s *profile.Sample) identity {
	d := &b.dictionary
	link := linkOf(s)
	id := identity{process: b.process(owner{s.Resource, s.Wait != nil}),
		stack: d.stack(s.Stack, b.naming(s.Resource)), link: d.link(link)}
	if s.TID > 0 {
		id.thread = d.attribute(attribute{key: threadID, number: uint64(s.TID)})
	}
	if s.Thread != "" {
		id.name = d.attribute(attribute{key: threadName, text: s.Thread})
	}
	transaction := binary.BigEndian.Uint64(s.TransactionID[:])
	if transaction != 0 && id.link != 0 && s.TransactionID != link.span {
		id.transaction = d.attribute(attribute{key: transactionID, number: transaction})
	}
	id.set = d.set(s.Attributes, s.Wait != nil)
	if s.Wait != nil {
		id.wait = d.wait(s)
	}
	return id
}

// naming returns how the frames of a process are named.
func (b *Builder) naming(r *profile.Resource) naming {
	if b.options.Name == nil {
		return naming{}
	}
	return naming{r, b.options.Name}
}

// process returns the index of a process.
func (b *Builder) process(of owner) int32 {
	index, known := b.byResource[of]
	if known {
		return index
	}
	index = int32(len(b.processes))
	p := process{waits: of.waits, types: b.types, resource: b.addResource(of.resource), first: none, last: none}
	if of.waits {
		p.types = b.dictionary.waitTypes()
	}
	if _, err := io.ReadFull(b.options.Random, p.id[:]); err != nil {
		p.id = [16]byte{}
	}
	b.processes = append(b.processes, p)
	b.byResource[of] = index
	b.bytes += b.mostProcessBytes(&p)
	return index
}

// place adds a sample by identity and time. If it does not fit, nothing has changed.
func (b *Builder) place(s *profile.Sample, id identity, limit int) error {
	if id.stack == 0 {
		return ErrInvalid
	}
	start, end := window(s)
	first, last := times(s)
	index, known := b.identities[id]
	kept, before := sample{identity: id, next: none, latest: none}, 0
	if known {
		kept = b.samples[index]
		before = field.Size(b.sampleSize(&kept))
	}
	kept.count = addCounts(kept.count, amountOf(s))
	if len(b.points) == maxPoints {
		return ErrTooLarge
	}
	if !b.grow(id.process, field.Size(b.sampleSize(&kept))-before, start, end, limit) {
		return ErrTooLarge
	}
	b.addPoint(&kept, point{time: first, last: last, count: amountOf(s)})
	if known {
		b.samples[index] = kept
	} else {
		b.addSample(kept)
	}
	b.count = addCounts(b.count, s.Count)
	return nil
}

// addPoint adds what was seen of a sample in an interval. Of one that has a value only the
// latest is kept.
func (b *Builder) addPoint(s *sample, p point) {
	if s.latest != none && !b.timestampsOnly(s) {
		b.points[s.latest].last = max(b.points[s.latest].last, p.last)
		return
	}
	at, later := b.find(s, p.time)
	if at != none && b.points[at].time == p.time && b.points[at].last == p.last {
		b.points[at].count = addCounts(b.points[at].count, p.count)
		return
	}
	p.earlier = at
	if later == none {
		s.latest = int32(len(b.points))
	} else {
		b.points[later].earlier = int32(len(b.points))
	}
	b.points = append(b.points, p)
}

// find returns the latest point of a sample that is not after a time, and the one after it, or
// none. It is usually the latest of all.
func (b *Builder) find(s *sample, when uint64) (at, later int32) {
	at, later = s.latest, none
	for at != none && b.points[at].time > when {
		at, later = b.points[at].earlier, at
	}
	return at, later
}

// grow records that a process gets larger, and the time longer, unless the request would exceed
// limit.
func (b *Builder) grow(process int32, bytes int, start, end uint64, limit int) bool {
	p, startBefore, endBefore := &b.processes[process], b.start, b.end
	if len(b.samples) > 0 {
		start, end = min(start, b.start), max(end, b.end)
	}
	b.start, b.end = start, end
	p.bytes += bytes
	b.bytes += bytes
	// The upper bound of the size is known at once; only near the limit the exact size matters.
	if b.mostBytes() <= limit || b.size() <= limit {
		return true
	}
	p.bytes -= bytes
	b.bytes -= bytes
	b.start, b.end = startBefore, endBefore
	return false
}

// addSample adds a sample, the first with its identity.
func (b *Builder) addSample(s sample) {
	index := int32(len(b.samples))
	b.samples = append(b.samples, s)
	b.identities[s.identity] = index
	p := &b.processes[s.process]
	if p.last == none {
		p.first = index
	} else {
		b.samples[p.last].next = index
	}
	p.last = index
}

// addCounts adds counts, which are sent as int64, without overflow.
func addCounts(a, b uint64) uint64 {
	const most = math.MaxInt64
	return min(min(a, most)+min(b, most), most)
}
