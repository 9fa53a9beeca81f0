package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"gotest.tools/v3/assert"

	"correlator/internal/out/agent"
)

func TestBuildInfo(t *testing.T) {
	metric := gather(t)["correlator_build_info"].GetMetric()
	assert.Assert(t, len(metric) == 1 && metric[0].GetGauge().GetValue() == 1, "build info %v", metric)
	s := series("", metric[0])
	assert.Check(t, strings.Contains(s, `revision="0123abcd"`) && strings.Contains(s, `version="v1.2.3"`),
		"build info %s", s)
}

// The metrics of the process and of the Go runtime are there, too.
func TestGoMetrics(t *testing.T) {
	gathered := gather(t)
	for _, name := range []string{"process_cpu_seconds_total", "go_goroutines"} {
		assert.Check(t, gathered[name] != nil, "no %s", name)
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
