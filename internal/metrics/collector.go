// Package metrics shows what the agent counts to Prometheus, and tells who asks by HTTP how it is.
//
// Collecting and serving are apart: what NewGatherer returns can go out by other ways. Nothing is counted
// here: each gathering reads the agent's counters, which are there anyway.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"correlator/internal/agent"
)

// Source is the agent. All methods are safe for concurrent use.
type Source interface {
	Counters() *agent.Counters
	Census() agent.Census
	NotSampled() map[string]int // by agent.NotSampledReasons
	Config() agent.Config
	Probes
}

// Build is what the binary was built from.
type Build struct {
	Version, Revision string
}

// NewGatherer returns what gathers the metrics of the agent, and those of its process and the Go runtime that
// every Go program has; with an export, which may be nil, also what that counts. The series are the same whatever
// the processes of the machine and the receivers of the export do. It is safe for concurrent use; gathering
// blocks for as long as the sources do.
func NewGatherer(source Source, export Export, build Build) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		newCollector(source, build),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	if export != nil {
		registry.MustRegister(newExportCollector(export))
	}
	return registry
}

// collector makes the metrics of the agent, each time that it is asked for them.
type collector struct {
	source   Source
	build    Build
	places   *places
	readings []reading
	descs    []*prometheus.Desc // of the readings
	latency  *prometheus.Desc
}

func newCollector(source Source, build Build) *collector {
	c := &collector{
		source: source, build: build,
		places: newPlaces(families()), readings: readings(), latency: describeLatency(),
	}
	for _, r := range c.readings {
		c.descs = append(c.descs, describe(r.name, r.help, r.labels...))
	}
	return c
}

// Describe sends the descriptions of all metrics. It makes the registry refuse others.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.places.descs {
		descs <- desc
	}
	for _, desc := range c.descs {
		descs <- desc
	}
	descs <- c.latency
}

// Collect sends all metrics, as of now.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	now := take(c.source, c.build)
	for i, r := range c.readings {
		r.read(now, func(value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(c.descs[i], r.kind, value, labels...)
		})
	}
	counters := c.source.Counters()
	metrics <- latency(c.latency, counters.Messages.Timing())
	counters.Each(func(name string, n uint64) {
		if desc, labels, ok := c.places.find(name); ok { // a test knows that all have one
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
		}
	})
}
