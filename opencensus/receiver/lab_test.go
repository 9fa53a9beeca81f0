package receiver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/spans"
	"correlator/opencensus/stats"
	"correlator/otlp"
)

// patience is the time limit for what must happen, on a machine that may be busy.
const patience = time.Minute

// captures are those of the real clients.
const captures = "../testdata/captures/"

// store is a queue that keeps what it accepts.
type store struct {
	mu      sync.Mutex
	batches []*otlp.Batch
	err     error         // returned instead of accepting a batch
	open    chan struct{} // if not nil: batches wait until it is closed
	entered chan struct{} // if not nil: receives a value for each batch that waits
}

func (s *store) EnqueueReceived(ctx context.Context, b *otlp.Batch) error {
	if s.open != nil {
		if s.entered != nil {
			s.entered <- struct{}{}
		}
		select {
		case <-s.open:
		case <-ctx.Done():
			return &otlp.OverloadError{}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.batches = append(s.batches, b)
	}
	return s.err
}

// resourceSpans returns all that was accepted.
func (s *store) resourceSpans(t testing.TB) (all []*tracepb.ResourceSpans) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		if b.Signal() != otlp.Traces {
			continue
		}
		var request collecttraces.ExportTraceServiceRequest
		assert.NilError(t, proto.Unmarshal(b.Request(), &request))
		all = append(all, request.ResourceSpans...)
	}
	return all
}

// lastMetrics returns those of the last export of each metric, by name.
func (s *store) lastMetrics(t testing.TB) map[string]*metricspb.Metric {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*metricspb.Metric)
	for _, b := range s.batches {
		if b.Signal() != otlp.Metrics {
			continue
		}
		var request collectmetrics.ExportMetricsServiceRequest
		assert.NilError(t, proto.Unmarshal(b.Request(), &request))
		for _, r := range request.ResourceMetrics {
			for _, scope := range r.ScopeMetrics {
				for _, m := range scope.Metrics {
					all[m.Name] = m
				}
			}
		}
	}
	return all
}

// lab is a receiver and its queue.
type lab struct {
	testing.TB
	*Receiver
	*store
}

// openDir returns a directory that every user may enter; those of tests are below one that only root
// may.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "opencensus")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openLab(t testing.TB, c Config, o Options) *lab {
	t.Helper()
	s, ok := o.Queue.(*store)
	if !ok && o.Queue == nil {
		s = &store{}
		o.Queue = s
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(openDir(t), "oc-daemon.sock")
	}
	o.ProcRoot = "/proc"
	if o.Spans == nil {
		o.Spans = spans.NewEncoder(spans.Options{})
	}
	if o.Stats == nil {
		o.Stats = stats.New(stats.Options{})
	}
	if o.OnPanic == nil {
		o.OnPanic = func(v any, stack []byte) { t.Errorf("panic: %v\n%s", v, stack) }
	}
	r, err := Open(c, o)
	assert.NilError(t, err)
	l := &lab{t, r, s}
	t.Cleanup(func() { r.Shutdown(testenv.Ended()) })
	return l
}

// dial connects.
func (l *lab) dial() net.Conn {
	l.Helper()
	conn, err := net.Dial("unix", l.Path())
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	return conn
}

// send sends bytes on a connection of their own.
func (l *lab) send(data []byte) {
	l.Helper()
	conn := l.dial()
	l.write(conn, data)
	conn.Close()
}

func (l *lab) write(conn net.Conn, data []byte) {
	l.Helper()
	if _, err := conn.Write(data); err != nil {
		l.Fatal(err)
	}
}

// finish shuts the receiver down, which passes on all that was sent.
func (l *lab) finish() {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		l.Fatal(err)
	}
	l.balance()
}

// balance verifies that every message was processed or dropped, and that no memory is held.
func (l *lab) balance() {
	l.Helper()
	c := l.counters.snapshot()
	for i := range c.messages {
		if m := &c.messages[i]; m.received != m.done() {
			l.Errorf("%s: %d received, %d processed or dropped", typeName(i), m.received, m.done())
		}
	}
	if held := l.budget.used(); held != 0 {
		l.Errorf("%d bytes of the budget are held", held)
	}
}

// count returns a metric's value: name{label="value"} without the prefix; labels are sorted.
func (l *lab) count(series string) float64 {
	l.Helper()
	value, ok := gather(l, l.Receiver)[series]
	if !ok {
		l.Fatalf("no metric %s", series)
	}
	return value
}

// want compares a metric.
func (l *lab) want(series string, want float64) {
	l.Helper()
	if got := l.count(series); got != want {
		l.Errorf("%s: %v, want %v", series, got, want)
	}
}

// wait waits for a value of a metric.
func (l *lab) wait(series string, want float64) {
	l.Helper()
	testenv.Poll(l, patience, fmt.Sprintf("%s to be %v", series, want), func() bool { return l.count(series) == want })
}

// gather returns all metrics that are not histograms.
func gather(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	assert.NilError(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimPrefix(f.GetName(), "correlator_opencensus_")
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if h := m.GetHistogram(); h != nil {
				all[name+"_count"] = float64(h.GetSampleCount())
			} else {
				all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return all
}

func capture(t testing.TB, name string) []byte {
	t.Helper()
	return testenv.ReadFile(t, captures+name)
}
