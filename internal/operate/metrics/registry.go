// Package metrics serves metrics to Prometheus, and the probes of an orchestrator, by HTTP.
//
// It counts nothing: what is counted belongs to the packages that count it, and each of them
// provides a [prometheus.Collector].
package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build is what the binary was built from.
type Build struct {
	Version, Revision string
}

// NewGatherer returns a Gatherer of the metrics of owners, of the build, and of those that every Go
// program has of its process and its runtime. It is safe for concurrent use; gathering blocks for
// as long as the owners do.
func NewGatherer(build Build, owners ...prometheus.Collector) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		newBuildInfo(build),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	registry.MustRegister(owners...)
	return registry
}

func newBuildInfo(build Build) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "correlator_build_info",
		Help: "Version, revision, Go version and architecture of the build; the value is 1.",
	}, []string{"version", "revision", "goversion", "goarch"})
	info.WithLabelValues(build.Version, build.Revision, runtime.Version(), runtime.GOARCH).Set(1)
	return info
}
