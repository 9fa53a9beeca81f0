package metrics

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out"
	"correlator/internal/out/agent"
	"correlator/internal/out/keep"
	"correlator/internal/out/live"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
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

func (f *fakeAgent) Unwinding() *sampling.UnwindingStatus { return nil }

func load(err *atomic.Pointer[error]) error {
	if e := err.Load(); e != nil {
		return *e
	}
	return nil
}

// gather returns all families of metrics by name.
func gather(t testing.TB, owners ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := NewGatherer(testBuild, owners...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	gathered := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		gathered[f.GetName()] = f
	}
	return gathered
}

// gatherAll returns every family that the correlator can have.
func gatherAll(t testing.TB) map[string]*dto.MetricFamily {
	t.Helper()
	return gather(t, agent.NewCollector(&fakeAgent{}), exporting(t), viewing(t), keeping(t), newServer(nil))
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

// labelValues returns the values that a label of a family has.
func labelValues(f *dto.MetricFamily, label string) []string {
	values := make(map[string]bool)
	for _, m := range f.GetMetric() {
		for _, pair := range m.Label {
			if pair.GetName() == label {
				values[pair.GetValue()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}

// labelNames returns the names of the labels of a family, sorted.
func labelNames(f *dto.MetricFamily) []string {
	names := make(map[string]bool)
	for _, m := range f.GetMetric() {
		for _, pair := range m.Label {
			names[pair.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// keeping returns what keeps samples.
func keeping(t testing.TB) *keep.Keep {
	t.Helper()
	k := keep.Open(keep.Config{For: time.Minute, Bytes: keep.MinBytes}, out.About{}, nil)
	t.Cleanup(func() { k.Shutdown(t.Context()) })
	return k
}

// viewing returns a live view that is served and published.
func viewing(t testing.TB) *live.Live {
	t.Helper()
	config := live.Config{Listen: []string{"uds:" + t.TempDir() + "/live"}, Connect: "uds:/nowhere"}
	l, err := live.Open(config, out.About{}, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Shutdown(t.Context()) })
	return l
}
