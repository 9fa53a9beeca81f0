package otlp

import (
	"sync"
	"time"
)

// Batch is one Export request as it goes over the wire. Once queued it is immutable, and any number
// of destinations hold the same one.
type Batch struct {
	signal  Signal
	request []byte
	items   int
	units   int       // what partial success counts: items, or profiles
	created time.Time // of received data: when it was queued

	// senders is how many destinations have begun to send the batch and still hold it; gzipped is
	// kept until there are none. The exporter's lock guards senders.
	senders int
	once    sync.Once
	gzipped []byte
}

// NewBatch returns a batch of an encoded Export<Signal>ServiceRequest with that many items (spans,
// data points, samples). The batch owns the bytes. Its age counts from created, which should be
// now; that of received data counts from when it is queued. A batch belongs to one exporter.
func NewBatch(signal Signal, request []byte, items int, created time.Time) *Batch {
	return &Batch{signal: signal, request: request, items: items, units: items, created: created}
}

// NewProfilesBatch is NewBatch for an ExportProfilesServiceRequest with that many samples in that
// many profiles. A receiver that rejects some reports how many profiles, and not which ones: the
// number of samples rejected is then estimated as their share of all, rounded up.
func NewProfilesBatch(request []byte, samples, profiles int, created time.Time) *Batch {
	return &Batch{signal: Profiles, request: request, items: samples, units: profiles, created: created}
}

// Signal returns the kind of items in the batch.
func (b *Batch) Signal() Signal { return b.signal }

// Items returns the number of items.
func (b *Batch) Items() int { return b.items }

// Request returns the encoded request. It must not be modified.
func (b *Batch) Request() []byte { return b.request }

// rejected returns the number of items in so many rejected units, and whether the batch has as
// many.
func (b *Batch) rejected(units int64) (items uint64, ok bool) {
	n := min(max(units, 0), int64(b.units))
	if n > 0 {
		// Both are at most the bytes of a request: nothing overflows.
		items = (uint64(b.items)*uint64(n) + uint64(b.units) - 1) / uint64(b.units)
	}
	return items, n == units
}

// overhead is about what a batch takes besides its bytes, here and in a queue. With it, a flood of
// tiny batches cannot exceed the memory of a quota.
const overhead = 256

// size returns what the batch counts in a quota. Its compressed bytes are extra, but only of
// batches that are or were in flight: about as many as a destination has senders.
func (b *Batch) size() int64 { return int64(len(b.request)) + overhead }

// retain and release count the destinations that have use for the compressed bytes. After the last
// the bytes are freed; a destination that sends the batch later, having been down, compresses it
// again. Otherwise it would hold the compressed bytes of its whole queue, which another has sent.
func (b *Batch) retain() { b.senders++ }

func (b *Batch) release() {
	if b.senders--; b.senders == 0 {
		b.once, b.gzipped = sync.Once{}, nil
	}
}

// compressed returns the request as gzip. The first caller compresses it while others wait. The
// caller must have retained the batch.
func (b *Batch) compressed(c *compressor) []byte {
	b.once.Do(func() { b.gzipped = c.compress(b.request) })
	return b.gzipped
}
