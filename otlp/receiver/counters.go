package receiver

import (
	"sync"

	"google.golang.org/grpc/codes"

	"correlator/otlp"
	"correlator/otlp/validate"
)

// Refusal is why a request was not taken.
type Refusal uint8

const (
	Undecodable Refusal = iota // no request of the schema, or broken compression
	TooLarge                   // for us, also after decompression, or for a destination
	Overload                   // a destination's queue is full, or there are too many requests
	Unsupported                // no destination takes the signal
	Closing                    // shutting down
	numRefusals
)

var refusalNames = [numRefusals]string{
	Undecodable: "undecodable", TooLarge: "too_large", Overload: "overload", Unsupported: "unsupported", Closing: "shutdown",
}

// String is the value of the label reason.
func (r Refusal) String() string {
	if r < numRefusals {
		return refusalNames[r]
	}
	return "unknown"
}

// counters is what is counted, by signal. Items unless said.
type counters struct {
	mu      sync.Mutex
	signals [otlp.NumSignals]signalCounters
}

type signalCounters struct {
	received uint64 // all that follow, together
	passed   uint64
	refused  [numRefusals]uint64
	rejected [validate.NumReasons]uint64
	fixed    [validate.NumFixes]uint64 // fields
	requests [numCodes]uint64          // by the code of the answer
}

// numCodes is the codes that gRPC has, OK included.
const numCodes = codes.Unauthenticated + 1

// read is a copy.
func (c *counters) read() [otlp.NumSignals]signalCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signals
}

// took counts a request that was taken.
func (c *counters) took(signal otlp.Signal, v *validate.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.signals[signal]
	s.received += uint64(v.Received())
	s.passed += uint64(v.Items)
	for reason, n := range v.Rejected {
		s.rejected[reason] += n
	}
	for fix, n := range v.Fixed {
		s.fixed[fix] += n
	}
	s.requests[codes.OK]++
}

// refuse counts a request that was not.
func (c *counters) refuse(signal otlp.Signal, items int, why Refusal, code codes.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.signals[signal]
	s.received += uint64(items)
	s.refused[why] += uint64(items)
	s.requests[code]++
}

// unread counts a request that did not come to its end. Nobody knows what is in one that is too large or
// broken; one that the sender has given up has not come.
func (c *counters) unread(signal otlp.Signal, code codes.Code) {
	switch code {
	case codes.ResourceExhausted:
		c.refuse(signal, 1, TooLarge, code)
	case codes.Internal:
		c.refuse(signal, 1, Undecodable, code)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.signals[signal].requests[min(code, numCodes-1)]++
	}
}
