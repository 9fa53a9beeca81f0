package receiver

import (
	"github.com/prometheus/client_golang/prometheus"

	"correlator/otlp"
	"correlator/otlp/validate"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("correlator_otlp_"+name, help, labels, nil)
}

var (
	descReceived = describe("received_items_total",
		"Items received. An undecodable request counts as one.", "signal")
	descRefused = describe("received_refused_items_total",
		"Items in refused requests.",
		"signal", "reason")
	descRejected = describe("received_rejected_items_total",
		"Invalid items left out of accepted requests. The sender is told their number.",
		"signal", "reason")
	descRepaired = describe("received_ignored_fields_total",
		"Invalid fields left out of accepted items.", "signal", "reason")
	descRequests = describe("received_requests_total",
		"Requests received, by status code of the response.", "signal", "code")
	descConnections        = describe("receiver_connections", "Open connections.")
	descConnectionsRefused = describe("receiver_refused_connections_total",
		"Connections closed because there were too many.", "reason")
	descAcceptErrors = describe("receiver_accept_errors_total",
		"Failures to accept a connection or to read certificates for one.")
	descStrays = describe("receiver_refused_requests_total",
		"Requests of no signal refused.", "reason")
	descInWork = describe("receiver_requests_in_work", "Requests being received or checked.")
)

// Describe sends the descriptions of all metrics. It may be called on a nil Receiver.
func (*Receiver) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descReceived, descRefused, descRejected, descRepaired, descRequests,
		descConnections, descConnectionsRefused, descAcceptErrors, descStrays, descInWork,
	} {
		descs <- d
	}
}

// Collect sends every metric: the same series each time, whether their values are 0 or not. All
// values of a signal are of one moment.
func (r *Receiver) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	conns := r.listener.conns.Counts()
	gauge(descConnections, conns.Open)
	counter(descConnectionsRefused, conns.MadeRoom, "made_room")
	counter(descConnectionsRefused, conns.Refused, "too_many")
	counter(descAcceptErrors, r.listener.Failures().Count)
	for why, n := range r.counters.strayCounts() {
		counter(descStrays, n, Stray(why).String())
	}
	inWork, _ := r.slots.counts()
	gauge(descInWork, inWork)
	for signal, s := range r.counters.snapshot() {
		name := otlp.Signal(signal).String()
		counter(descReceived, s.received, name)
		for reason, n := range s.refused {
			counter(descRefused, n, name, Refusal(reason).String())
		}
		for reason, n := range s.rejected {
			counter(descRejected, n, name, validate.RejectReason(reason).String())
		}
		for repair, n := range s.repaired {
			counter(descRepaired, n, name, validate.Repair(repair).String())
		}
		for code, n := range s.requests {
			if codeNames[code] != "" {
				counter(descRequests, n, name, codeNames[code])
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
