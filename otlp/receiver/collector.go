package receiver

import (
	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/host/metric"
	"correlator/otlp"
	"correlator/otlp/validate"
)

// Collect implements prometheus.Collector: the same series each time, whether their values are 0 or
// not. All values of a signal are of one moment.
func (r *Receiver) Collect(to chan<- prometheus.Metric) {
	m := metric.Sender{To: to, Prefix: "correlator_otlp_"}
	conns := r.listener.conns.Counts()
	m.Gauge("receiver_connections", "Open connections.", conns.Open)
	for reason, n := range map[string]uint64{"made_room": conns.MadeRoom, "too_many": conns.Refused} {
		m.Counter("receiver_refused_connections_total", "Connections closed because there were too many.", n,
			"reason", reason)
	}
	m.Counter("receiver_accept_errors_total", "Failures to accept a connection or to read certificates for one.",
		r.listener.Failures().Count)
	for why, n := range r.counters.strayCounts() {
		m.Counter("receiver_refused_requests_total", "Requests of no signal refused.", n,
			"reason", Stray(why).String())
	}
	inWork, _ := r.slots.counts()
	m.Gauge("receiver_requests_in_work", "Requests being received or checked.", inWork)
	for signal, s := range r.counters.snapshot() {
		m.Labels = []string{"signal", otlp.Signal(signal).String()}
		m.Counter("received_items_total", "Items received. An undecodable request counts as one.", s.received)
		for reason, n := range s.refused {
			m.Counter("received_refused_items_total", "Items in refused requests.", n,
				"reason", Refusal(reason).String())
		}
		for reason, n := range s.rejected {
			m.Counter("received_rejected_items_total",
				"Invalid items left out of accepted requests. The sender is told their number.", n,
				"reason", validate.RejectReason(reason).String())
		}
		for repair, n := range s.repaired {
			m.Counter("received_ignored_fields_total", "Invalid fields left out of accepted items.", n,
				"reason", validate.Repair(repair).String())
		}
		for code, n := range s.requests {
			if codeNames[code] != "" {
				m.Counter("received_requests_total", "Requests received, by status code of the response.", n,
					"code", codeNames[code])
			}
		}
	}
}

// codeNames names the status codes that a request can end with: google/rpc/code.proto.
var codeNames = [numCodes]string{
	0: "OK", 1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 8: "RESOURCE_EXHAUSTED",
	12: "UNIMPLEMENTED",
	13: "INTERNAL", 14: "UNAVAILABLE",
}
