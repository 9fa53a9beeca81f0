package metrics

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out/agent"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/internal/worker/cost"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind, symbolizer.Kind, symbolizer.LiveKind, unwind.Kind())
	os.Exit(testenv.Main(m))
}

var testBuild = Build{Version: "v1.2.3", Revision: "0123abcd"}

// fakeAgent is an agent without processes, whose counters and probes the test sets.
type fakeAgent struct {
	counters agent.Counters
	health   atomic.Pointer[error]
	ready    atomic.Pointer[error]
}

func (f *fakeAgent) Config() agent.Config       { return agent.Config{} }
func (f *fakeAgent) Counters() *agent.Counters  { return &f.counters }
func (f *fakeAgent) Census() agent.Census       { return agent.Census{} }
func (f *fakeAgent) NotSampled() map[string]int { return nil }
func (f *fakeAgent) Services() []agent.ServiceCounts {
	return []agent.ServiceCounts{{Name: "shop"}}
}
func (f *fakeAgent) Health() error { return load(&f.health) }
func (f *fakeAgent) Ready() error  { return load(&f.ready) }

func (f *fakeAgent) Cost() cost.Cost                      { return cost.Cost{} }
func (f *fakeAgent) Unwinding() *sampling.UnwindingStatus { return nil }
func (f *fakeAgent) Waits() *sampling.WaitsStatus         { return nil }

func load(err *atomic.Pointer[error]) error {
	if e := err.Load(); e != nil {
		return *e
	}
	return nil
}

func gather(t testing.TB, owners ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := NewGatherer(testBuild, owners...).Gather()
	assert.NilError(t, err)
	gathered := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		gathered[f.GetName()] = f
	}
	return gathered
}

// series returns the name and the labels of a metric, as Prometheus writes them.
func series(family string, m *dto.Metric) string {
	var labels []string
	for _, label := range m.Label {
		labels = append(labels, label.GetName()+`="`+label.GetValue()+`"`)
	}
	slices.Sort(labels)
	return family + "{" + strings.Join(labels, ",") + "}"
}

// values returns the values of all metrics by series; that of a histogram is the number of
// observations.
func values(families map[string]*dto.MetricFamily) map[string]float64 {
	values := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.Metric {
			switch {
			case m.Counter != nil:
				values[series(name, m)] = m.Counter.GetValue()
			case m.Gauge != nil:
				values[series(name, m)] = m.Gauge.GetValue()
			case m.Histogram != nil:
				values[series(name, m)] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return values
}
