package receiver

import (
	"net/http"
	"sync"

	"google.golang.org/grpc/codes"

	"correlator/internal/host/label"
	"correlator/otlp"
	"correlator/otlp/validate"
)

// Refusal is why a request was not accepted.
type Refusal uint8

const (
	Undecodable Refusal = iota // not a request of the schema, or corrupt compression
	TooLarge                   // for the receiver, also after decompression, or for every destination
	Overload                   // a destination's queue is full, or there are too many requests
	Unsupported                // no destination takes the signal
	Closing                    // shutting down
	Slow                       // the sender was slow while others waited
	Panic                      // a defect
	Format                     // an encoding or a compression that is not accepted
	numRefusals
)

var refusalNames = [numRefusals]string{
	Undecodable: "undecodable", TooLarge: "too_large", Overload: "overload", Unsupported: "unsupported",
	Closing: "shutdown", Slow: "slow", Panic: "panic", Format: "format",
}

// String is the value of the label reason.
func (r Refusal) String() string { return label.Of(refusalNames[:], r) }

// Stray is why a request was answered without being a call for a signal.
type Stray uint8

const (
	StrayMethod    Stray = iota // not POST: nothing was sent
	StrayPath                   // of no signal, as logs
	StrayBrowser                // of a page
	StrayGRPC                   // gRPC over HTTP/1.1, or not with protobuf
	StrayMalformed              // none that net/http can read, or with more headers than that reads
	numStrays
)

var strayNames = [numStrays]string{
	StrayMethod: "method", StrayPath: "path", StrayBrowser: "browser", StrayGRPC: "grpc",
	StrayMalformed: "malformed",
}

// String is the value of the label reason.
func (s Stray) String() string { return label.Of(strayNames[:], s) }

// counters counts by signal.
type counters struct {
	mu      sync.Mutex
	signals [otlp.NumSignals]signalCounters
	strays  [numStrays]uint64
}

// stray counts a request that is not a call. What is not POST sends nothing, wherever it goes.
func (c *counters) stray(q *http.Request, why Stray) {
	if q.Method != http.MethodPost {
		why = StrayMethod
	}
	c.strayed(why)
}

func (c *counters) strayed(why Stray) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strays[why]++
}

// strayCounts returns a copy.
func (c *counters) strayCounts() [numStrays]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.strays
}

// signalCounters counts items, except where it says otherwise.
type signalCounters struct {
	received uint64 // = passed + refused + rejected
	passed   uint64
	refused  [numRefusals]uint64
	rejected [validate.NumRejectReasons]uint64
	repaired [validate.NumRepairs]uint64 // fields
	requests [numCodes]uint64            // requests, by the status code of the response
}

// numCodes is the number of gRPC status codes, OK included.
const numCodes = codes.Unauthenticated + 1

// snapshot returns a copy.
func (c *counters) snapshot() [otlp.NumSignals]signalCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signals
}

// accept counts a request that was accepted.
func (c *counters) accept(signal otlp.Signal, v *validate.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.signals[signal]
	s.received += uint64(v.Received())
	s.passed += uint64(v.Items)
	for reason, n := range v.Rejected {
		s.rejected[reason] += n
	}
	for repair, n := range v.Repaired {
		s.repaired[repair] += n
	}
	s.requests[codes.OK]++
}

// refuse counts a request that was not accepted.
func (c *counters) refuse(signal otlp.Signal, items int, why Refusal, code codes.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.signals[signal]
	s.received += uint64(items)
	s.refused[why] += uint64(items)
	s.requests[code]++
}

// unread counts a request that was not read to its end. The items of one that is too large,
// corrupt or in an unknown format are unknown; one that the client has given up counts as not received.
func (c *counters) unread(signal otlp.Signal, code codes.Code) {
	switch code {
	case codes.ResourceExhausted:
		c.refuse(signal, 1, TooLarge, code)
	case codes.Internal, codes.InvalidArgument:
		c.refuse(signal, 1, Undecodable, code)
	case codes.Unimplemented:
		c.refuse(signal, 1, Format, code)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.signals[signal].requests[min(code, numCodes-1)]++
	}
}
