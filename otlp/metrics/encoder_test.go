package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// Everything that is gathered arrives as it is at /metrics.
func TestAllKinds(t *testing.T) {
	families, err := registry().Gather()
	assert.NilError(t, err)
	result, requests := encode(t, testOptions(), families...)
	assert.Assert(t, len(requests) == 1 && result.Skipped == 0 && result.TooLarge == 0,
		"%d requests, %d skipped, %d too large", len(requests), result.Skipped, result.TooLarge)
	got, want := series(requests), gathered(families)
	assert.Check(t, maps.Equal(got, want), "%v, want %v", got, want)
	for _, name := range []string{
		"requests_total[code=200 path=/]", "requests_total[code=500]", "waiting_bytes[]", "untyped[]",
		"latency_seconds_10[a=x]", "latency_seconds_sum[a=y]", "size_bytes_q0.9[]", "go_goroutines[]",
		"process_cpu_seconds_total[]",
	} {
		_, ok := got[name]
		assert.Check(t, ok, "%s is missing", name)
	}
	resource := make(map[string]string)
	for _, a := range requests[0].ResourceMetrics[0].Resource.Attributes {
		resource[a.Key] = a.Value.GetStringValue()
	}
	if want := map[string]string{
		"service.name": "correlator", "service.version": "v1.2.3", "service.instance.id": "instance", "host.id": "host",
	}; !maps.Equal(resource, want) {
		t.Errorf("resource %v", resource)
	}
}

func TestMetric(t *testing.T) {
	families, err := registry().Gather()
	assert.NilError(t, err)
	_, requests := encode(t, testOptions(), families...)
	units := make(map[string]string)
	for _, m := range requests[0].ResourceMetrics[0].ScopeMetrics[0].Metrics {
		units[m.Name] = m.Unit
		switch m.Name {
		case "requests_total":
			p := m.GetSum().DataPoints[0]
			assert.Check(t, p.StartTimeUnixNano == uint64(started.UnixNano()) &&
				p.TimeUnixNano == uint64(now.UnixNano()) && m.Description == "Requests.",
				m)
		case "latency_seconds":
			p := m.GetHistogram().DataPoints[0]
			assert.Check(t, slices.Equal(p.ExplicitBounds, []float64{.1, 1, 10}) &&
				slices.Equal(p.BucketCounts, []uint64{2, 1, 1, 2}) && p.Count == 6 && p.GetSum() == 555.6 &&
				p.StartTimeUnixNano == uint64(started.UnixNano()),
				p)
		case "waiting_bytes":
			assert.Check(t, m.GetGauge().DataPoints[0].StartTimeUnixNano == 0, m)
		}
	}
	for name, want := range map[string]string{
		"requests_total": "", "waiting_bytes": "By", "latency_seconds": "s", "size_bytes": "By",
		"process_cpu_seconds_total": "s", "go_goroutines": "",
	} {
		assert.Check(t, units[name] == want, "%s has the unit %q", name, units[name])
	}
}

// What is no number is no point, and says so.
func TestNoNumbers(t *testing.T) {
	counter := func(value float64) *dto.Metric { return &dto.Metric{Counter: &dto.Counter{Value: &value}} }
	nan := math.NaN()
	summary := &dto.Metric{Summary: &dto.Summary{
		SampleSum: &nan, Quantile: []*dto.Quantile{
			{Quantile: proto.Float64(.9), Value: proto.Float64(2)}, {Quantile: proto.Float64(.5), Value: &nan},
			{Quantile: proto.Float64(.1), Value: proto.Float64(1)},
		},
	}}
	histogram := &dto.Metric{Histogram: &dto.Histogram{SampleCount: proto.Uint64(1), SampleSum: &nan}}
	result, requests := encode(t, testOptions(),
		family("g", dto.MetricType_GAUGE, gauge(nan), gauge(math.Inf(1)), gauge(math.Inf(-1)), gauge(1)),
		family("c", dto.MetricType_COUNTER, counter(nan), counter(math.Inf(1)), counter(-1), counter(2)),
		family("nothing", dto.MetricType_GAUGE, gauge(nan)), family("empty", dto.MetricType_GAUGE),
		family("other", dto.MetricType_COUNTER, gauge(1)), family("unknown", dto.MetricType_GAUGE_HISTOGRAM, histogram),
		family("s", dto.MetricType_SUMMARY, summary), family("h", dto.MetricType_HISTOGRAM, histogram))
	if result.Skipped != 9 || result.Requests[0].Points != 4 {
		t.Errorf("%d skipped, %d points", result.Skipped, result.Requests[0].Points)
	}
	want := map[string]float64{"g[]": 1, "c[]": 2, "s_count[]": 0, "s_sum[]": 0, "s_q0.1[]": 1, "s_q0.9[]": 2,
		"h_count[]": 1, "h_sum[]": 0}
	got := series(requests)
	assert.Check(t, maps.Equal(got, want), "%v, want %v", got, want)
	for _, m := range requests[0].ResourceMetrics[0].ScopeMetrics[0].Metrics {
		if h := m.GetHistogram(); h != nil && h.DataPoints[0].Sum != nil {
			t.Errorf("sum %v", *h.DataPoints[0].Sum)
		}
	}
}

// Buckets that were not counted at one moment, or come in no order.
func TestBuckets(t *testing.T) {
	bucket := func(bound float64, upTo uint64) *dto.Bucket {
		return &dto.Bucket{UpperBound: &bound, CumulativeCount: &upTo}
	}
	for _, c := range []struct {
		name    string
		count   uint64
		buckets []*dto.Bucket
		bounds  []float64
		counts  []uint64
		total   uint64
	}{
		{"none", 3, nil, nil, nil, 3},
		{"infinity alone", 3, []*dto.Bucket{bucket(math.Inf(1), 3)}, nil, nil, 3},
		{"with infinity", 5, []*dto.Bucket{bucket(1, 2), bucket(math.Inf(1), 5)}, []float64{1}, []uint64{2, 3}, 5},
		{"no order", 5, []*dto.Bucket{bucket(2, 4), bucket(1, 1)}, []float64{1, 2}, []uint64{1, 3, 1}, 5},
		{"count read before", 3, []*dto.Bucket{bucket(1, 2), bucket(2, 4)}, []float64{1, 2}, []uint64{2, 2, 0}, 4},
		{"bucket read before", 5, []*dto.Bucket{bucket(1, 3), bucket(2, 2), bucket(3, 4)}, []float64{1, 2, 3},
			[]uint64{3, 0, 1, 1}, 5},
		{"bound twice", 5, []*dto.Bucket{bucket(1, 2), bucket(1, 3)}, []float64{1}, []uint64{3, 2}, 5},
		{"no bounds", 5, []*dto.Bucket{bucket(math.NaN(), 2), bucket(math.Inf(-1), 1), bucket(1, 3)}, []float64{1},
			[]uint64{3, 2}, 5},
	} {
		_, requests := encode(t, testOptions(), family("h", dto.MetricType_HISTOGRAM,
			&dto.Metric{Histogram: &dto.Histogram{SampleCount: &c.count, SampleSum: proto.Float64(1),
				Bucket: c.buckets}}))
		p := requests[0].ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetHistogram().DataPoints[0]
		if !slices.Equal(p.ExplicitBounds, c.bounds) || !slices.Equal(p.BucketCounts, c.counts) || p.Count != c.total {
			t.Errorf("%s: %v", c.name, p)
		}
	}
}

// A native histogram and an exemplar, which are not sent, take nothing else with them.
func TestNativeHistogram(t *testing.T) {
	r := prometheus.NewRegistry()
	native := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "native_seconds",
		NativeHistogramBucketFactor: 1.1})
	both := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "both_seconds", NativeHistogramBucketFactor: 1.1,
		Buckets: []float64{1, 2}})
	r.MustRegister(native, both)
	for _, v := range []float64{.5, 1.5, 4} {
		native.Observe(v)
		both.(prometheus.ExemplarObserver).ObserveWithExemplar(v, prometheus.Labels{"trace_id": "1"})
	}
	families, err := r.Gather()
	assert.NilError(t, err)
	result, requests := encode(t, testOptions(), families...)
	want := map[string]float64{
		"native_seconds_count[]": 3, "native_seconds_sum[]": 6,
		"both_seconds_count[]": 3, "both_seconds_sum[]": 6, "both_seconds_1[]": 1, "both_seconds_2[]": 2,
	}
	got := series(requests)
	assert.Check(t, result.Skipped == 0 && maps.Equal(got, want), "%d skipped, %v, want %v", result.Skipped, got, want)
}

// FuzzHistogram holds histograms with any buckets against the rules.
func FuzzHistogram(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 2, 1, 255, 9, 254, 3}, uint64(5), 1.5)
	f.Add([]byte{}, uint64(0), math.Inf(1))
	f.Fuzz(func(t *testing.T, b []byte, count uint64, sum float64) {
		h := &dto.Histogram{SampleCount: &count, SampleSum: &sum}
		bounds, most := make(map[float64]bool), count
		for ; len(b) >= 2; b = b[2:] {
			bound, upTo := float64(b[0])-10, uint64(b[1])<<(b[1]%60)
			switch b[0] {
			case 255:
				bound = math.Inf(1)
			case 254:
				bound = math.NaN()
			case 253:
				bound = math.Inf(-1)
			default:
				bounds[bound], most = true, max(most, upTo)
			}
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &bound, CumulativeCount: &upTo})
		}
		_, requests := encode(t, testOptions(), family("h", dto.MetricType_HISTOGRAM, &dto.Metric{Histogram: h}))
		p := requests[0].ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetHistogram().DataPoints[0]
		assert.Check(t, p.Count == most && len(p.ExplicitBounds) == len(bounds), "%v of %v", p, h)
	})
}

func TestText(t *testing.T) {
	help := "h\xff"
	f := family("n\xff", dto.MetricType_GAUGE, gauge(1, label("l\xff", "v\xff")))
	f.Help = &help
	o := testOptions()
	o.Version, o.HostID = "v\xff", "h\xff"
	_, requests := encode(t, o, f)
	m := requests[0].ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
	assert.Check(t, m.Name == "n\ufffd" && m.Description == "h\ufffd" &&
		m.GetGauge().DataPoints[0].Attributes[0].Value.GetStringValue() == "v\ufffd",
		m)
}

// When the clock is set to before the start, points have the time that it shows, and a start that is
// not after it, also when it is set again.
func TestClockSetBack(t *testing.T) {
	e := NewEncoder(testOptions())
	for _, step := range []struct{ now, start time.Duration }{
		{time.Minute, 0}, {-time.Hour, -time.Hour}, {-time.Minute, -time.Hour}, {time.Minute, -time.Hour},
	} {
		one := float64(1)
		c := family("c", dto.MetricType_COUNTER, &dto.Metric{Counter: &dto.Counter{Value: &one}})
		result, err := e.Encode([]*dto.MetricFamily{c}, started.Add(step.now))
		assert.NilError(t, err)
		request := new(collector.ExportMetricsServiceRequest)
		assert.NilError(t, proto.Unmarshal(result.Requests[0].Body, request))
		p := request.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetSum().DataPoints[0]
		assert.Check(t, p.TimeUnixNano == uint64(started.Add(step.now).UnixNano()) &&
			p.StartTimeUnixNano == uint64(started.Add(step.start).UnixNano()),
			"at %v: %v", step.now, p)
	}
}

func TestNothing(t *testing.T) {
	result, _ := encode(t, testOptions())
	assert.Check(t, len(result.Requests) == 0, "%d requests of nothing", len(result.Requests))
}

// What does not fit into one request goes on in the next, within a family too.
func TestSplit(t *testing.T) {
	value := strings.Repeat("v", 100)
	var families []*dto.MetricFamily
	for _, name := range []string{"few", "many", "more"} {
		f := family(name, dto.MetricType_GAUGE)
		for i := range map[string]int{"few": 2, "many": 20_000, "more": 100}[name] {
			f.Metric = append(f.Metric, gauge(float64(i), label("a", value), label("b", fmt.Sprint(i))))
		}
		families = append(families, f)
	}
	large := strings.Repeat("x", requestBytes)
	huge := strings.Repeat("x", MaxRequestBytes)
	families = append(families, family("large", dto.MetricType_GAUGE, gauge(1, label("a", large)),
		gauge(2, label("a", huge)), gauge(3, label("a", "c"))))
	result, requests := encode(t, testOptions(), families...)
	assert.Check(t, result.TooLarge == 1, "%d too large", result.TooLarge)
	over := 0
	for _, r := range result.Requests {
		if len(r.Body) > requestBytes {
			over++
			assert.Check(t, r.Points == 1 && len(r.Body) <= MaxRequestBytes,
				"request of %d bytes with %d points", len(r.Body), r.Points)
		}
	}
	assert.Check(t, over == 1 && len(result.Requests) >= 5 && len(result.Requests[1].Body) >= requestBytes*8/10,
		"%d requests, %d over the limit", len(result.Requests), over)
	families[3].Metric = slices.Delete(families[3].Metric, 1, 2)
	got, want := series(requests), gathered(families)
	assert.Check(t, maps.Equal(got, want), "%d series, want %d", len(got), len(want))
}
