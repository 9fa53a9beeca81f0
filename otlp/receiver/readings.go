package receiver

import (
	"correlator/otlp"
	"correlator/otlp/validate"
)

// The families, in the order of Families.
const (
	famReceived = iota
	famRefused
	famRejected
	famFixed
	famRequests
	famConnections
	famConnectionsRefused
	famAcceptErrors
	famInWork
	numFamilies
)

var families = [numFamilies]otlp.Family{
	famReceived: {Name: "received_items_total", Kind: otlp.Counter, Labels: []string{"signal"},
		Help: "Items (spans, data points, samples) that came in. A request that could not be read counts as one."},
	famRefused: {Name: "received_refused_items_total", Kind: otlp.Counter, Labels: []string{"signal", "reason"},
		Help: "Items in requests that were not taken, by reason. With overload and shutdown the sender was asked to come again; otherwise it drops them."},
	famRejected: {Name: "received_rejected_items_total", Kind: otlp.Counter, Labels: []string{"signal", "reason"},
		Help: "Items that were left out of requests that were taken, by what is wrong with them. The sender was told how many."},
	famFixed: {Name: "received_ignored_fields_total", Kind: otlp.Counter, Labels: []string{"signal", "reason"},
		Help: "Fields that were left out of items that were taken, by what is wrong with them."},
	famRequests: {Name: "received_requests_total", Kind: otlp.Counter, Labels: []string{"signal", "code"},
		Help: "Requests that came in, by the code of the answer."},
	famConnections: {Name: "receiver_connections", Kind: otlp.Gauge, Help: "Connections that are open."},
	famConnectionsRefused: {Name: "receiver_refused_connections_total", Kind: otlp.Counter,
		Help: "Connections that were closed at once, because there were too many."},
	famAcceptErrors: {Name: "receiver_accept_errors_total", Kind: otlp.Counter,
		Help: "Times that connections could not be accepted, or certificates not be read for one."},
	famInWork: {Name: "receiver_requests_in_work", Kind: otlp.Gauge, Help: "Requests that are being received or checked."},
}

// Families is every metric of a receiver, in a fixed order.
func Families() []otlp.Family { return append([]otlp.Family(nil), families[:]...) }

// Each calls add with every metric: the same ones each time, whatever was counted. All values of a signal are of
// one moment.
func (r *Receiver) Each(add func(otlp.Reading)) {
	conns := r.listener.counts()
	plain := func(family int, n uint64) { add(otlp.Reading{Family: &families[family], Value: float64(n)}) }
	plain(famConnections, uint64(conns.open))
	plain(famConnectionsRefused, conns.refused)
	plain(famAcceptErrors, conns.failed)
	plain(famInWork, uint64(len(r.slots)))
	all := r.counters.read()
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
			value(famRejected, n, validate.Reason(reason).String())
		}
		for fix, n := range s.fixed {
			value(famFixed, n, validate.Repair(fix).String())
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
