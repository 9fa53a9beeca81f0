package metrics

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"correlator/internal/agent"
	"correlator/internal/process"
	"correlator/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

var testBuild = Build{Version: "v1.2.3", Revision: "0123abcd"}

// fakeSource is an agent that knows what the test says.
type fakeSource struct {
	counters   agent.Counters
	census     agent.Census
	notSampled map[string]int // by NotSampled
	config     agent.Config
	health     atomic.Pointer[error]
	ready      atomic.Pointer[error]
}

func (s *fakeSource) Counters() *agent.Counters  { return &s.counters }
func (s *fakeSource) Census() agent.Census       { return s.census }
func (s *fakeSource) NotSampled() map[string]int { return s.notSampled }
func (s *fakeSource) Config() agent.Config       { return s.config }
func (s *fakeSource) Health() error              { return load(&s.health) }
func (s *fakeSource) Ready() error               { return load(&s.ready) }

func load(err *atomic.Pointer[error]) error {
	if e := err.Load(); e != nil {
		return *e
	}
	return nil
}

// crowded is a source with processes in every state and error, that counted something of everything that can be
// counted from here.
func crowded() *fakeSource {
	s := &fakeSource{
		census:     agent.Census{Processes: make(map[process.State]int), InError: make(map[string]int), Waiting: 7, LiveEvents: true},
		config:     agent.Config{SamplesPerSecond: 20, SamplesDelay: 300 * time.Millisecond, MaxProcesses: 4096},
		notSampled: make(map[string]int),
	}
	for i, state := range states {
		s.census.Processes[state] = 100 + i
	}
	for r := process.ReasonNone + 1; r < process.NumReasons; r++ {
		s.census.InError[r.String()] = int(r)
		s.counters.Troubles[r].Store(1000 + uint64(r))
	}
	for i, reason := range agent.NotSampledReasons() {
		s.notSampled[reason] = 200 + i
	}
	for o := range process.NumOutcomes {
		s.counters.Fed[o].Store(2000 + uint64(o))
		s.counters.Sampling.Outcomes[o].Store(3000 + uint64(o))
	}
	s.counters.SweepNs.Store(uint64(1500 * time.Millisecond))
	s.counters.Messages.Sent.Store(4000)
	err := errors.New("ends")
	s.ready.Store(&err)
	return s
}

// gather is all that a gatherer gathers, by the name of the family.
func gather(t testing.TB, source Source, export Export) map[string]*dto.MetricFamily {
	t.Helper()
	return byName(t, NewGatherer(source, export, testBuild))
}

func byName(t testing.TB, gatherer prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	gathered := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		gathered[f.GetName()] = f
	}
	return gathered
}

// series is the name and the labels of a metric, as Prometheus writes them.
func series(family string, m *dto.Metric) string {
	var labels []string
	for _, label := range m.Label {
		labels = append(labels, label.GetName()+`="`+label.GetValue()+`"`)
	}
	slices.Sort(labels)
	return family + "{" + strings.Join(labels, ",") + "}"
}

// values are those of all metrics but histograms, by series.
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

// ours gathers without the metrics of the process and the runtime.
func ours(t testing.TB, source Source) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollector(source, testBuild))
	return byName(t, registry)
}
