package otlp

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Reason is why items were dropped.
type Reason uint8

const (
	QueueFull   Reason = iota // made room for newer ones, or found none
	Expired                   // older than max-age before an attempt
	Rejected                  // by a partial success
	Refused                   // with a code that must not be retried
	TooLarge                  // more than max-request-bytes, or received and more than a queue takes of that
	Unsupported               // the receiver has no such service
	Shutdown                  // not delivered in time
	NumReasons
)

var reasonNames = [NumReasons]string{
	QueueFull: "queue_full", Expired: "expired", Rejected: "rejected", Refused: "refused",
	TooLarge: "too_large", Unsupported: "unsupported", Shutdown: "shutdown",
}

// String is the value of the label reason.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// counters is what is counted for one destination and signal. Items unless said.
type counters struct {
	accepted uint64
	sent     uint64
	dropped  [NumReasons]uint64
	refused  [numCodes]uint64 // dropped[Refused] by code

	attempts    [numCodes]uint64 // requests
	retries     uint64           // requests that were not a batch's first
	throttled   uint64           // requests that were answered with a RetryInfo that was followed
	throttledBy time.Duration    // by which that made waits longer
	duplicated  uint64           // batches that were sent again after an attempt without answer
	badResponse uint64           // answers with something malformed or impossible in them

	seconds, bytes histogram // of requests

	queued, inFlight holding
}

// holding is what a destination holds of one signal.
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

// drop counts items that will not be delivered.
func (c *counters) drop(b *Batch, reason Reason) { c.dropped[reason] += uint64(b.items) }

func (c *counters) refuse(b *Batch, code codes.Code) {
	c.drop(b, Refused)
	c.refused[code] += uint64(b.items)
}

// buckets is how many finite buckets a histogram has.
const buckets = 12

var (
	// secondsBounds reach from a receiver on this host to the default timeout and beyond.
	secondsBounds = [buckets]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10}
	// bytesBounds reach up to max-request-bytes.
	bytesBounds = [buckets]float64{256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10,
		1 << 20, 2 << 20, 4 << 20}
)

// histogram counts values by bounds that are known elsewhere; the last bucket has no bound.
type histogram struct {
	counts [buckets + 1]uint64
	sum    float64
}

func (h *histogram) observe(bounds *[buckets]float64, v float64) {
	i := 0
	for i < buckets && v > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}
