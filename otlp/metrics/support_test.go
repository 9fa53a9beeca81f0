package metrics

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

var (
	started = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now     = started.Add(time.Minute)
)

func testOptions() Options {
	return Options{Start: started, Version: "v1.2.3", HostID: "host", InstanceID: "instance"}
}

// encode encodes families, and decodes them again as a receiver does.
func encode(t testing.TB, o Options, families ...*dto.MetricFamily) (Result, []*collector.ExportMetricsServiceRequest) {
	t.Helper()
	result, err := NewEncoder(o).Encode(families, now)
	assert.NilError(t, err)
	var decoded []*collector.ExportMetricsServiceRequest
	for _, r := range result.Requests {
		request := new(collector.ExportMetricsServiceRequest)
		assert.NilError(t, proto.Unmarshal(r.Body, request))
		assert.Check(t, validate(request, r.Points))
		decoded = append(decoded, request)
	}
	return result, decoded
}

// validate holds a request against the rules of metrics.proto.
func validate(request *collector.ExportMetricsServiceRequest, points int) error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	times := func(name string, start, at uint64) {
		check(start == 0 || start == uint64(started.UnixNano()), "%s started at %d", name, start)
		check(at >= start && at > 0, "%s is of %d, started at %d", name, at, start)
	}
	unique := func(name string, attributes []*common.KeyValue) {
		seen := make(map[string]bool)
		for _, a := range attributes {
			check(a.Key != "" && !seen[a.Key] && a.Value.GetStringValue() != "", "%s has the attribute %v", name, a)
			seen[a.Key] = true
		}
	}
	for _, r := range request.ResourceMetrics {
		check(r.SchemaUrl == schemaURL && len(r.ScopeMetrics) == 1, "%v", r)
		unique("resource", r.Resource.Attributes)
		for _, m := range r.ScopeMetrics[0].Metrics {
			before := points
			switch data := m.Data.(type) {
			case *metrics.Metric_Gauge:
				for _, p := range data.Gauge.DataPoints {
					times(m.Name, p.StartTimeUnixNano, p.TimeUnixNano)
					unique(m.Name, p.Attributes)
					check(finite(p.GetAsDouble()), "%s is %v", m.Name, p.Value)
					points--
				}
			case *metrics.Metric_Sum:
				check(data.Sum.IsMonotonic && data.Sum.AggregationTemporality == 2, "%s: %v", m.Name, data.Sum)
				for _, p := range data.Sum.DataPoints {
					times(m.Name, p.StartTimeUnixNano, p.TimeUnixNano)
					unique(m.Name, p.Attributes)
					check(p.StartTimeUnixNano != 0 && finite(p.GetAsDouble()) && p.GetAsDouble() >= 0, "%s: %v", m.Name,
						p)
					points--
				}
			case *metrics.Metric_Histogram:
				check(data.Histogram.AggregationTemporality == 2, "%s: %v", m.Name, data.Histogram)
				for _, p := range data.Histogram.DataPoints {
					times(m.Name, p.StartTimeUnixNano, p.TimeUnixNano)
					unique(m.Name, p.Attributes)
					var sum uint64
					for _, n := range p.BucketCounts {
						sum += n
					}
					bounds := p.ExplicitBounds
					check(len(p.BucketCounts) == 0 && len(bounds) == 0 ||
						len(p.BucketCounts) == len(bounds)+1 && sum == p.Count, "%s: %v", m.Name, p)
					for i, bound := range bounds {
						check(finite(bound) && (i == 0 || bounds[i-1] < bound), "%s has the bounds %v", m.Name, bounds)
					}
					check(p.Sum == nil || finite(*p.Sum) && (p.Count > 0 || *p.Sum == 0), "%s has the sum %v of %d",
						m.Name, p.Sum, p.Count)
					points--
				}
			case *metrics.Metric_Summary:
				for _, p := range data.Summary.DataPoints {
					times(m.Name, p.StartTimeUnixNano, p.TimeUnixNano)
					unique(m.Name, p.Attributes)
					check(finite(p.Sum) && (p.Count > 0 || p.Sum == 0), "%s: %v", m.Name, p)
					for i, q := range p.QuantileValues {
						check(q.Value >= 0 && finite(q.Value) &&
							(i == 0 || p.QuantileValues[i-1].Quantile < q.Quantile), "%s: %v", m.Name, p)
					}
					points--
				}
			}
			check(points < before, "%s has no points", m.Name)
		}
	}
	check(points == 0, "%d points more than there are", points)
	return errors.Join(problems...)
}

// series are the values of all points by name and labels, those of buckets as Prometheus has them.
func series(requests []*collector.ExportMetricsServiceRequest) map[string]float64 {
	found := make(map[string]float64)
	set := func(name string, attributes []*common.KeyValue, value float64) {
		var labels []string
		for _, a := range attributes {
			labels = append(labels, a.Key+"="+a.Value.GetStringValue())
		}
		found[name+fmt.Sprint(labels)] = value
	}
	for _, r := range requests {
		for _, m := range r.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			for _, p := range append(m.GetGauge().GetDataPoints(), m.GetSum().GetDataPoints()...) {
				set(m.Name, p.Attributes, p.GetAsDouble())
			}
			for _, p := range m.GetHistogram().GetDataPoints() {
				set(m.Name+"_count", p.Attributes, float64(p.Count))
				set(m.Name+"_sum", p.Attributes, p.GetSum())
				up := uint64(0)
				for i, bound := range p.ExplicitBounds {
					up += p.BucketCounts[i]
					set(fmt.Sprint(m.Name, "_", bound), p.Attributes, float64(up))
				}
			}
			for _, p := range m.GetSummary().GetDataPoints() {
				set(m.Name+"_count", p.Attributes, float64(p.Count))
				set(m.Name+"_sum", p.Attributes, p.Sum)
				for _, q := range p.QuantileValues {
					set(fmt.Sprint(m.Name, "_q", q.Quantile), p.Attributes, q.Value)
				}
			}
		}
	}
	return found
}

// gathered are the same of what was gathered.
func gathered(families []*dto.MetricFamily) map[string]float64 {
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			set := func(name string, value float64) { found[f.GetName()+name+fmt.Sprint(labels)] = value }
			switch {
			case m.Counter != nil:
				set("", m.Counter.GetValue())
			case m.Gauge != nil:
				set("", m.Gauge.GetValue())
			case m.Untyped != nil:
				set("", m.Untyped.GetValue())
			case m.Histogram != nil:
				set("_count", float64(m.Histogram.GetSampleCount()))
				set("_sum", m.Histogram.GetSampleSum())
				for _, b := range m.Histogram.Bucket {
					if !math.IsInf(b.GetUpperBound(), 1) {
						set(fmt.Sprint("_", b.GetUpperBound()), float64(b.GetCumulativeCount()))
					}
				}
			case m.Summary != nil:
				set("_count", float64(m.Summary.GetSampleCount()))
				set("_sum", m.Summary.GetSampleSum())
				for _, q := range m.Summary.Quantile {
					set(fmt.Sprint("_q", q.GetQuantile()), q.GetValue())
				}
			}
		}
	}
	return found
}

// registry has metrics of all kinds.
func registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."},
		[]string{"code", "path"})
	requests.WithLabelValues("200", "/").Add(7)
	requests.WithLabelValues("500", "").Add(1.5)
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "waiting_bytes"})
	waiting.Set(-3)
	untyped := prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "untyped"}, func() float64 { return 5 })
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "latency_seconds",
		Buckets: []float64{.1, 1, 10}}, []string{"a"})
	for _, v := range []float64{0, .1, .5, 5, 50, 500} {
		latency.WithLabelValues("x").Observe(v)
	}
	latency.WithLabelValues("y")
	sizes := prometheus.NewSummary(prometheus.SummaryOpts{Name: "size_bytes",
		Objectives: map[float64]float64{.5: .05, .9: .01}})
	for i := range 100 {
		sizes.Observe(float64(i))
	}
	r.MustRegister(requests, waiting, untyped, latency, sizes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func gauge(value float64, labels ...*dto.LabelPair) *dto.Metric {
	return &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}}
}

func family(name string, kind dto.MetricType, all ...*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: &kind, Metric: all}
}
