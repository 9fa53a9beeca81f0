package profiles

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"math"
)

const (
	// requestBytes is how large a request becomes when there are samples for more: a queue of some MiB has
	// room for several, and little is lost with one.
	requestBytes = 1 << 20

	// MaxRequestBytes is what deployed receivers take by default.
	MaxRequestBytes = 4 << 20
)

// Options say what is the same in all requests.
type Options struct {
	SamplesPerSecond int    // of every CPU; 0: nobody knows, and profiles have no period
	HostID           string // empty: resources have none
	Version          string // of the correlator

	// MaxBytes bounds a request with a single sample that does not fit into 1 MiB, and all others where it
	// is less. 0: MaxRequestBytes.
	MaxBytes int
	// Random is where the ids of profiles come from; nil: crypto/rand. When it fails, profiles have none.
	Random io.Reader
}

// Request is an ExportProfilesServiceRequest.
type Request struct {
	Body     []byte // whoever gets the request owns it
	Samples  int    // items: samples that differ in more than their interval
	Profiles int    // one for each process; that is what a receiver counts which rejects some
	Count    uint64 // of all samples together
}

// Builder makes requests of samples. It is not safe for concurrent use. It keeps the memory that a request
// takes for the next one: about 5 MiB after one that was full.
type Builder struct {
	options Options
	target  int    // no request is larger without need
	scope   []byte // the field of ScopeProfiles
	emit    func(Request)

	dictionary dictionary
	processes  []process
	byResource map[*Resource]int32
	samples    []sample
	identities map[identity]int32 // of samples

	start, end uint64 // of all intervals, ns since 1970
	count      uint64
	bytes      int // of processes and samples, at most
}

// process is what becomes a ResourceProfiles with one profile.
type process struct {
	resource []byte // the field of ResourceProfiles
	samples  []int32
	id       [16]byte // of the profile, zero when there is none
}

// identity is what makes samples one: indices of the process and of entries in the dictionary.
type identity struct {
	process, stack, link      int32
	thread, name, transaction int32
}

// sample is all samples with an identity.
type sample struct {
	identity
	points []point
}

// point is how often the sample was seen in an interval, whose middle stands for it.
type point struct{ time, count uint64 }

// NewBuilder returns an empty builder. Its requests are handed to emit, by Add and Flush.
func NewBuilder(options Options, emit func(Request)) *Builder {
	if options.MaxBytes == 0 {
		options.MaxBytes = MaxRequestBytes
	}
	if options.Random == nil {
		options.Random = rand.Reader
	}
	b := &Builder{
		options: options, target: min(requestBytes, options.MaxBytes), scope: newScope(options.Version), emit: emit,
		byResource: make(map[*Resource]int32), identities: make(map[identity]int32),
	}
	b.dictionary.reset()
	return b
}

// Add takes the samples of one interval; s and its frames stay the caller's. Those that differ in their
// interval alone share an item, and are added up where it is the same. When they do not fit into the request,
// it is emitted, and they are the first of the next. ErrInvalid and ErrTooLarge say that they were not taken.
func (b *Builder) Add(s *Sample) error {
	if err := s.check(); err != nil {
		return err
	}
	if b.add(s, b.target) {
		return nil
	}
	b.Flush()
	if b.add(s, b.options.MaxBytes) {
		return nil
	}
	return ErrTooLarge
}

// Samples is how many items the next request has so far.
func (b *Builder) Samples() int { return len(b.samples) }

// Flush emits what was added and not emitted yet, if there is anything.
func (b *Builder) Flush() {
	if len(b.samples) == 0 {
		return
	}
	request := Request{Body: b.encode(), Samples: len(b.samples), Profiles: len(b.processes), Count: b.count}
	b.dictionary.reset()
	b.processes, b.samples = b.processes[:0], b.samples[:0]
	clear(b.byResource)
	clear(b.identities)
	b.bytes, b.count = 0, 0
	b.emit(request)
}

// add takes a sample unless the request could become larger than limit.
func (b *Builder) add(s *Sample, limit int) bool {
	b.dictionary.mark()
	processes, bytes := len(b.processes), b.bytes
	id := b.identify(s)
	index, known := b.identities[id]
	if !known {
		b.bytes += mostSampleBytes
	}
	start, end := s.window()
	time := start + (end-start)/2
	at := -1
	if known {
		at = b.samples[index].at(time)
	}
	if at < 0 {
		b.bytes += mostPointBytes
	}
	if b.mostBytes() > limit {
		b.bytes = bytes
		b.dictionary.takeBack()
		if len(b.processes) > processes {
			b.processes = b.processes[:processes]
			delete(b.byResource, s.Process)
		}
		return false
	}

	if len(b.samples) == 0 {
		b.start, b.end = start, end
	}
	b.start, b.end, b.count = min(b.start, start), max(b.end, end), addCounts(b.count, s.Count)
	if !known {
		index = b.addSample(id)
	}
	of := &b.samples[index]
	if at < 0 {
		at = len(of.points)
		of.points = append(of.points, point{time: time})
	}
	of.points[at].count = addCounts(of.points[at].count, s.Count)
	return true
}

// identify puts what a sample refers to into the dictionary.
func (b *Builder) identify(s *Sample) identity {
	d := &b.dictionary
	link := s.link()
	id := identity{process: b.process(s.Process), stack: d.stack(s.Stack, s.Frames), link: d.link(link)}
	if s.TID > 0 {
		id.thread = d.attribute(attribute{key: threadID, number: uint64(s.TID)})
	}
	if s.Thread != "" {
		id.name = d.attribute(attribute{key: threadName, text: s.Thread})
	}
	if transaction := binary.BigEndian.Uint64(s.TransactionID[:]); transaction != 0 && id.link != 0 && s.TransactionID != link.span {
		id.transaction = d.attribute(attribute{key: transactionID, number: transaction})
	}
	return id
}

// process returns the index of a process.
func (b *Builder) process(r *Resource) int32 {
	index, known := b.byResource[r]
	if known {
		return index
	}
	index = int32(len(b.processes))
	b.processes = lengthen(b.processes)
	p := &b.processes[index]
	p.resource, p.samples = b.appendResource(p.resource[:0], r), p.samples[:0]
	b.byResource[r] = index
	b.bytes += b.mostProcessBytes(p)
	return index
}

// addSample adds a sample without points, and returns its index.
func (b *Builder) addSample(id identity) int32 {
	index := int32(len(b.samples))
	b.samples = lengthen(b.samples)
	s := &b.samples[index]
	s.identity, s.points = id, s.points[:0]
	b.identities[id] = index
	of := &b.processes[id.process]
	of.samples = append(of.samples, index)
	return index
}

// at returns the index of the point at a time, -1 when there is none. It is mostly the last.
func (s *sample) at(time uint64) int {
	i := len(s.points) - 1
	for i >= 0 && s.points[i].time != time {
		i--
	}
	return i
}

// lengthen makes a slice longer by an element, in which everything is as it was left.
func lengthen[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// addCounts adds what is sent as an int64.
func addCounts(a, b uint64) uint64 {
	const most = math.MaxInt64
	return min(min(a, most)+min(b, most), most)
}
