package otlp

import (
	"bytes"
	"compress/gzip"
	"sync"
	"time"
)

// Batch is one Export request, as it goes over the wire. It never changes after it was made, and any
// number of destinations hold the same one.
type Batch struct {
	signal  Signal
	request []byte
	items   int
	units   int // what an answer counts in that rejects some of it: items, or profiles
	created time.Time

	// holders has an entry for each destination that holds it, in its queue or in flight. The exporter's lock
	// guards it; the bytes count against the budget until it is empty again. pins is how many of them cannot
	// let go of it to make room.
	holders []*entry
	pins    int

	// gzipped is there while senders is not 0: so many destinations have the batch in flight, or have had it.
	// The exporter's lock guards senders.
	senders int
	once    sync.Once
	gzipped []byte
}

// NewBatch makes a batch of an encoded Export<Signal>ServiceRequest with that many items (spans, data
// points, samples). The bytes belong to the batch from then on. Its age counts from created. A batch is
// offered to one exporter only.
func NewBatch(signal Signal, request []byte, items int, created time.Time) *Batch {
	return &Batch{signal: signal, request: request, items: items, units: items, created: created}
}

// NewProfilesBatch is NewBatch for an ExportProfilesServiceRequest with that many samples in that many
// profiles. A receiver that rejects some says how many profiles, and not which: how many samples they had is
// an estimate then, their share of all, rounded up.
func NewProfilesBatch(request []byte, samples, profiles int, created time.Time) *Batch {
	return &Batch{signal: Profiles, request: request, items: samples, units: profiles, created: created}
}

// Signal is what kind of items it has.
func (b *Batch) Signal() Signal { return b.signal }

// Items is how many.
func (b *Batch) Items() int { return b.items }

// Request is the encoded request. It must not be changed.
func (b *Batch) Request() []byte { return b.request }

// rejected is how many items an answer means that rejects so many units, and whether a batch can have as many.
func (b *Batch) rejected(units int64) (items uint64, ok bool) {
	n := min(max(units, 0), int64(b.units))
	if n > 0 {
		// Both are at most the bytes of a request: nothing overflows.
		items = (uint64(b.items)*uint64(n) + uint64(b.units) - 1) / uint64(b.units)
	}
	return items, n == units
}

// overhead is about what a batch takes besides its bytes, here and in the queues. With it, a flood of tiny
// batches cannot take more memory than was given.
const overhead = 256

// size is what the batch counts in budgets. Its compressed bytes come on top, but only of batches in flight,
// and of those that wait again: about as many as a destination has senders.
func (b *Batch) size() int64 { return int64(len(b.request)) + overhead }

// retain and release say who has use for the compressed bytes. After the last they go, and who sends the
// batch later, having been away, compresses it again. Otherwise a destination that is down would hold those
// of its whole queue, which another has taken.
func (b *Batch) retain() { b.senders++ }

func (b *Batch) release() {
	if b.senders--; b.senders == 0 {
		b.once, b.gzipped = sync.Once{}, nil
	}
}

// compressed is the request as gzip, made by the first who asks; others wait for it meanwhile. Only who has
// retained the batch may ask.
func (b *Batch) compressed(c *compressor) []byte {
	b.once.Do(func() { b.gzipped = c.compress(b.request) })
	return b.gzipped
}

// compressor makes gzip, one batch at a time: the state of a writer is about 1 MB, and a batch is
// compressed only once.
type compressor struct {
	mu  sync.Mutex
	w   *gzip.Writer
	out bytes.Buffer
}

// maxScratch is the largest output buffer that is kept: what a batch of the usual size needs.
const maxScratch = 256 << 10

func (c *compressor) compress(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Reset()
	if c.w == nil {
		// Level 1: the others cost several times the CPU for a few percent. The level is valid.
		c.w, _ = gzip.NewWriterLevel(&c.out, gzip.BestSpeed)
	} else {
		c.w.Reset(&c.out)
	}
	// Writing to memory cannot fail.
	c.w.Write(b)
	c.w.Close()
	gz := bytes.Clone(c.out.Bytes())
	if c.out.Cap() > maxScratch {
		c.out = bytes.Buffer{}
	}
	return gz
}
