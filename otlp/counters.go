package otlp

import (
	"time"

	"google.golang.org/grpc/codes"

	"correlator/internal/host/label"
	"correlator/internal/host/metric"
)

// Reason is why items were dropped.
type Reason uint8

const (
	QueueFull   Reason = iota // evicted by newer data, or there was no room
	Expired                   // older than max-age
	Rejected                  // by a partial success
	Refused                   // with a code that must not be retried
	TooLarge                  // larger than max-request-bytes or than the whole quota
	Unsupported               // the receiver does not have the service
	Shutdown                  // not delivered in time
	NumReasons
)

var reasonNames = [NumReasons]string{
	QueueFull: "queue_full", Expired: "expired", Rejected: "rejected", Refused: "refused",
	TooLarge: "too_large", Unsupported: "unsupported", Shutdown: "shutdown",
}

// String returns the value of the label reason.
func (r Reason) String() string { return label.Of(reasonNames[:], r) }

// counters has the counts of one destination and signal, in items unless noted.
type counters struct {
	accepted uint64
	sent     uint64
	dropped  [NumReasons]uint64
	refused  [numCodes]uint64 // dropped[Refused] by code

	attempts    [numCodes]uint64 // requests
	retries     uint64           // requests that were not a batch's first
	throttled   uint64           // responses with a RetryInfo that was followed
	throttledBy time.Duration    // by which these extended waits
	duplicated  uint64           // batches sent again after an attempt without a response
	badResponse uint64           // responses with something malformed or impossible

	seconds, bytes metric.Histogram // of requests

	queued, inFlight holding
}

// holding counts batches.
type holding struct {
	batches int
	items   uint64
	bytes   int64
}

func (h *holding) add(b *Batch) {
	h.batches++
	h.items += uint64(b.items)
	h.bytes += b.size()
}

func (h *holding) sub(b *Batch) {
	h.batches--
	h.items -= uint64(b.items)
	h.bytes -= b.size()
}

// drop counts a batch that will not be delivered.
func (c *counters) drop(b *Batch, reason Reason) { c.dropped[reason] += uint64(b.items) }

func (c *counters) refuse(b *Batch, code codes.Code) {
	c.drop(b, Refused)
	c.refused[code] += uint64(b.items)
}

var (
	// secondsBounds reach from a receiver on this host to the default timeout.
	secondsBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10}
	// bytesBounds reach to the default of max-request-bytes.
	bytesBounds = []float64{256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10,
		1 << 20, 2 << 20, 4 << 20}
)
