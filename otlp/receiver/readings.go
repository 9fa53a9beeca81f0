package receiver

import (
	"correlator/otlp"
)

// The families, in the order of Families.
const (
	famReceived = iota
	famRefused
	famRejected
	famFixed
	famRequests
	numFamilies
)

var families = [numFamilies]otlp.Family{
	famReceived: {Name: "received_items_total", Kind: otlp.Counter, Labels: []string{"signal"},
		Help: "Items (spans, data points, samples) that came in. A request that could not be read counts as one."},
	famRefused: {Name: "received_refused_items_total", Kind: otlp.Counter, Labels: []string{"signal", "reason"},
		Help: "Items that came in requests which were not taken. Overload and shutdown: the sender was asked to come again."},
	famRejected: {Name: "received_rejected_items_total", Kind: otlp.Counter, Labels: []string{"signal", "reason"},
		Help: "Items that were left out of requests that were taken, because something is wrong with them."},
	famFixed: {Name: "received_ignored_fields_total", Kind: otlp.Counter, Labels: []string{"signal", "reason"},
		Help: "Fields that were left out of items that were taken."},
	famRequests: {Name: "received_requests_total", Kind: otlp.Counter, Labels: []string{"signal", "code"},
		Help: "Requests that came in, by the code of the answer."},
}

// Families is every metric of a receiver, in a fixed order.
func Families() []otlp.Family { return append([]otlp.Family(nil), families[:]...) }

// Each calls add with every metric of every signal: the same ones each time, whatever was counted. All
// values are of one moment.
func (r *Receiver) Each(add func(otlp.Reading)) {
	r.counters.mu.Lock()
	all := r.counters.signals
	r.counters.mu.Unlock()
	for signal := range otlp.NumSignals {
		s := &all[signal]
		value := func(family int, n uint64, labels ...string) {
			add(otlp.Reading{
				Family: &families[family], Labels: append([]string{signal.String()}, labels...), Value: float64(n),
			})
		}
		value(famReceived, s.received)
		for reason, n := range s.refused {
			value(famRefused, n, Refusal(reason).String())
		}
		for reason, n := range s.rejected {
			value(famRejected, n, Reason(reason).String())
		}
		for fix, n := range s.fixes {
			value(famFixed, n, Fix(fix).String())
		}
		for code, n := range s.requests {
			if name := codeNames[code]; name != "" {
				value(famRequests, n, name)
			}
		}
	}
}

// codeNames is the codes that gRPC and we may answer a request with: google/rpc/code.proto.
var codeNames = [numCodes]string{
	0: "OK", 1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 8: "RESOURCE_EXHAUSTED", 12: "UNIMPLEMENTED",
	13: "INTERNAL", 14: "UNAVAILABLE",
}
