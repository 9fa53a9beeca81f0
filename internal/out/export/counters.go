package export

import (
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/host/metric"
	"correlator/internal/names/naming"
	opencensus "correlator/opencensus/receiver"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// Why a sample is in no request.
const (
	lostNoStack  = iota // its frames are no longer kept
	lostInvalid         // a frame at the address 0, or a clock before 1970
	lostTooLarge        // it fits into no request
	lostShutdown        // it arrived after the last request had been made
	numLost
)

var lostNames = [numLost]string{
	lostNoStack: "no_stack", lostInvalid: "invalid", lostTooLarge: "too_large", lostShutdown: "shutdown",
}

// Why a metric is in no request.
const (
	metricNoValue = iota
	metricTooLarge
	numMetricLosses
)

var metricLossNames = [numMetricLosses]string{metricNoValue: "no_value", metricTooLarge: "too_large"}

// counters counts what is put into requests, and what is not.
type counters struct {
	samples      taken
	waits        taken
	metrics      [numMetricLosses]atomic.Uint64 // lost
	gatherErrors atomic.Uint64
}

// taken is how many samples, or waits, were put into requests, and how many were not.
type taken struct {
	put  atomic.Uint64
	lost [numLost]atomic.Uint64
}

// Collect implements prometheus.Collector. The metrics are the same ones each time; those of a
// receiver are only there if it is.
func (e *Export) Collect(metrics chan<- prometheus.Metric) {
	m, c := metric.Sender{To: metrics, Prefix: "correlator_otlp_"}, &e.counters
	m.Counter("profile_samples_total", "CPU samples put into profiles.", c.samples.put.Load())
	m.Counter("profile_waits_total", "Stacks of waits put into profiles.", c.waits.put.Load())
	for reason, name := range lostNames {
		m.Counter("profile_samples_lost_total", "CPU samples not put into profiles.", c.samples.lost[reason].Load(),
			"reason", name)
		m.Counter("profile_waits_lost_total", "Stacks of waits not put into profiles.", c.waits.lost[reason].Load(),
			"reason", name)
	}
	for reason := range c.metrics {
		m.Counter("metrics_lost_total", "Metrics that could not be exported; counted per export.",
			c.metrics[reason].Load(), "reason", metricLossNames[reason])
	}
	m.Counter("metrics_errors_total", "Exports for which metrics could not all be gathered or encoded.",
		c.gatherErrors.Load())
	for reason, samples := range e.Unnamed {
		m.Counter("profile_samples_unnamed_total", "CPU samples exported without some function names.", samples,
			"reason", reason)
	}
	names := e.namer.Counters()
	m.Counter("symbolizer_requests_total", "Requests to workers for function names.", names.Requests.Load())
	m.Counter("symbolizer_evicted_total", "Function names evicted; read again when needed.", names.Evicted.Load())
	for reason, times := range names.Failures {
		m.Counter("symbolizer_failures_total",
			"Failures to read or keep function names. Retried with increasing delay.", times, "reason", reason)
	}
	m.Gauge("symbolizer_bytes", "Memory of function names.", int(names.Bytes.Load()))
	e.exporter.Collect(metrics)
	if e.receiver != nil {
		e.receiver.Collect(metrics)
	}
	if e.openCensus != nil {
		e.openCensus.Collect(metrics)
	}
}

// Status is the state of what is exported and received. Its JSON is an interface.
type Status struct {
	Destinations []otlp.Status      `json:"destinations"` // in the order in which they are configured
	Samples      uint64             `json:"samples"`      // of our own in profiles, since the start
	Lost         uint64             `json:"samples_lost"` // of our own that could not be put into profiles
	Receiver     *receiver.Status   `json:"receiver,omitempty"`
	OpenCensus   *opencensus.Status `json:"opencensus,omitempty"` // what is received to be sent by OTLP
}

// Status returns the current state.
func (e *Export) Status() Status {
	s := Status{Destinations: e.exporter.Status(), Samples: e.counters.samples.put.Load()}
	for reason := range e.counters.samples.lost {
		s.Lost += e.counters.samples.lost[reason].Load()
	}
	if e.receiver != nil {
		status := e.receiver.Status()
		s.Receiver = &status
	}
	if e.openCensus != nil {
		status := e.openCensus.Status()
		s.OpenCensus = &status
	}
	return s
}

// Unnamed yields, by reason, how many samples were put into profiles although names may be missing.
func (e *Export) Unnamed(yield func(reason string, samples uint64) bool) {
	consumer := new(naming.Consumer)
	if e.samples != nil {
		consumer = e.samples.names
	}
	consumer.Unnamed(yield)
}

// newInstanceID returns an id by which backends distinguish runs of the agent.
func newInstanceID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
