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
	created time.Time

	// refs is how many queues hold it, requests in flight included. The exporter's lock guards it; the
	// bytes count against the budget until it is 0 again. pins is how many of them cannot let go of it to
	// make room.
	refs, pins int

	once    sync.Once
	gzipped []byte
}

// NewBatch makes a batch of an encoded Export<Signal>ServiceRequest with that many items (spans, data
// points, samples). The bytes belong to the batch from then on. Its age counts from created. A batch is
// offered to one exporter only.
func NewBatch(signal Signal, request []byte, items int, created time.Time) *Batch {
	return &Batch{signal: signal, request: request, items: items, created: created}
}

// Signal is what kind of items it has.
func (b *Batch) Signal() Signal { return b.signal }

// Items is how many.
func (b *Batch) Items() int { return b.items }

// Request is the encoded request. It must not be changed.
func (b *Batch) Request() []byte { return b.request }

// overhead is about what a batch takes besides its bytes, here and in the queues. With it, a flood of tiny
// batches cannot take more memory than was given.
const overhead = 256

// size is what the batch counts in budgets. Its compressed bytes come on top, but only for batches that were
// sent at least once and wait again: at most as many as a destination has senders.
func (b *Batch) size() int64 { return int64(len(b.request)) + overhead }

// compressed is the request as gzip, made by the first who asks; others wait for it meanwhile.
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
