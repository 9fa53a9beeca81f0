package export

import (
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"

	"correlator/otlp"
	"correlator/otlp/receiver"
)

// Why a sample is in no request.
const (
	lostNoStack  = iota // its frames are not kept any more
	lostInvalid         // a frame at the address 0, or a clock of before 1970
	lostTooLarge        // it fits into no request
	lostShutdown        // it came when the last request had been made
	numLost
)

var lostNames = [numLost]string{lostNoStack: "no_stack", lostInvalid: "invalid", lostTooLarge: "too_large", lostShutdown: "shutdown"}

// Why a metric is in no request.
const (
	metricNoValue = iota
	metricTooLarge
	numMetricLosses
)

var metricLossNames = [numMetricLosses]string{metricNoValue: "no_value", metricTooLarge: "too_large"}

// counters is what is made into requests, and what is not.
type counters struct {
	samples      atomic.Uint64
	lost         [numLost]atomic.Uint64
	metrics      [numMetricLosses]atomic.Uint64 // that were lost
	gatherErrors atomic.Uint64
}

const (
	famSamples = iota
	famSamplesLost
	famMetricsLost
	famGatherErrors
	numFamilies
)

var families = [numFamilies]otlp.Family{
	famSamples: {Name: "profile_samples_total", Help: "CPU samples that were put into profiles."},
	famSamplesLost: {Name: "profile_samples_lost_total", Labels: []string{"reason"},
		Help: "CPU samples that were to be exported, and could not be put into profiles, by reason."},
	famMetricsLost: {Name: "metrics_lost_total", Labels: []string{"reason"},
		Help: "Metrics that could not be exported, each time that they were to be, by reason."},
	famGatherErrors: {Name: "metrics_errors_total", Help: "Times that not all metrics could be gathered, or encoded."},
}

// Families is every metric that there may be, in a fixed order: those of the receiver, too, when there is none.
func (*Export) Families() []otlp.Family {
	all := append(families[:0:0], families[:]...)
	return append(append(all, otlp.Families()...), receiver.Families()...)
}

// Each calls add with every metric, the same ones each time.
func (e *Export) Each(add func(otlp.Reading)) {
	c := &e.counters
	single := func(family int, value uint64, labels ...string) {
		add(otlp.Reading{Family: &families[family], Labels: labels, Value: float64(value)})
	}
	single(famSamples, c.samples.Load())
	for reason := range c.lost {
		single(famSamplesLost, c.lost[reason].Load(), lostNames[reason])
	}
	for reason := range c.metrics {
		single(famMetricsLost, c.metrics[reason].Load(), metricLossNames[reason])
	}
	single(famGatherErrors, c.gatherErrors.Load())
	e.exporter.Each(add)
	if e.receiver != nil {
		e.receiver.Each(add)
	}
}

// Status is how what is exported fares.
type Status struct {
	Destinations []otlp.Status
	Samples      uint64           // put into profiles
	Lost         uint64           // samples that could not be
	Receiver     *receiver.Status // nil without one
}

// Status is what is known now.
func (e *Export) Status() Status {
	s := Status{Destinations: e.exporter.Status(), Samples: e.counters.samples.Load()}
	for reason := range e.counters.lost {
		s.Lost += e.counters.lost[reason].Load()
	}
	if e.receiver != nil {
		status := e.receiver.Status()
		s.Receiver = &status
	}
	return s
}

// newInstanceID tells this life of the agent from others.
func newInstanceID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
