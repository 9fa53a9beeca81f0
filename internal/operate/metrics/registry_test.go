package metrics

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"correlator/internal/out/agent"
)

func TestBuildInfo(t *testing.T) {
	metric := gather(t)["correlator_build_info"].GetMetric()
	if len(metric) != 1 || metric[0].GetGauge().GetValue() != 1 {
		t.Fatalf("build info %v", metric)
	}
	if s := series("", metric[0]); !strings.Contains(s, `revision="0123abcd"`) ||
		!strings.Contains(s, `version="v1.2.3"`) {
		t.Errorf("build info %s", s)
	}
}

// The metrics of the process and of the Go runtime are there, too.
func TestGoMetrics(t *testing.T) {
	gathered := gather(t)
	for _, name := range []string{"process_cpu_seconds_total", "go_goroutines"} {
		if gathered[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}

// metricName matches the names of the correlator's metrics.
var metricName = regexp.MustCompile(`\bcorrelator_[a-z_]+\b`)

func TestLint(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(slices.Collect(maps.Values(gatherAll(t)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Help texts are sentences, and the metrics that they refer to exist.
func TestHelp(t *testing.T) {
	gathered := gatherAll(t)
	for name, f := range gathered {
		if !strings.HasPrefix(name, "correlator_") {
			continue
		}
		if !strings.HasSuffix(f.GetHelp(), ".") || strings.Contains(f.GetHelp(), "\n") {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
		for _, other := range metricName.FindAllString(f.GetHelp(), -1) {
			if gathered[other] == nil {
				t.Errorf("%s refers to %s", name, other)
			}
		}
	}
}

// BenchmarkScrape measures a scrape of an agent: gathering and encoding.
func BenchmarkScrape(b *testing.B) {
	gatherer := NewGatherer(testBuild, agent.NewCollector(&fakeAgent{}))
	handler := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}) // without paced
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
