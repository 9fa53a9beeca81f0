package metrics

import (
	"cmp"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// describe returns the metric of a family without points.
func describe(f *dto.MetricFamily) *metrics.Metric {
	m := &metrics.Metric{Name: valid(f.GetName()), Description: valid(f.GetHelp()), Unit: unit(f)}
	const cumulative = metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		m.Data = &metrics.Metric_Sum{Sum: &metrics.Sum{AggregationTemporality: cumulative, IsMonotonic: true}}
	case dto.MetricType_HISTOGRAM:
		m.Data = &metrics.Metric_Histogram{Histogram: &metrics.Histogram{AggregationTemporality: cumulative}}
	case dto.MetricType_SUMMARY:
		m.Data = &metrics.Metric_Summary{Summary: &metrics.Summary{}}
	default:
		m.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{}}
	}
	return m
}

// unit returns the unit of a family or in its name, in UCUM. Receivers that put units into names
// know these and find them there.
func unit(f *dto.MetricFamily) string {
	if f.GetUnit() != "" {
		return ucum(f.GetUnit())
	}
	name := strings.TrimSuffix(f.GetName(), "_total")
	return ucum(name[strings.LastIndexByte(name, '_')+1:])
}

func ucum(unit string) string {
	switch unit {
	case "seconds":
		return "s"
	case "bytes":
		return "By"
	}
	return ""
}

// point returns the point of a metric: a NumberDataPoint, HistogramDataPoint or SummaryDataPoint.
func (b *builder) point(kind dto.MetricType, m *dto.Metric) (p proto.Message, ok bool) {
	switch {
	case kind == dto.MetricType_COUNTER && m.Counter != nil:
		value := m.Counter.GetValue()
		return b.number(m, b.start, value), finite(value) && value >= 0
	case kind == dto.MetricType_GAUGE && m.Gauge != nil:
		return b.number(m, 0, m.Gauge.GetValue()), finite(m.Gauge.GetValue())
	case kind == dto.MetricType_UNTYPED && m.Untyped != nil:
		return b.number(m, 0, m.Untyped.GetValue()), finite(m.Untyped.GetValue())
	case kind == dto.MetricType_HISTOGRAM && m.Histogram != nil:
		return b.histogram(m), true
	case kind == dto.MetricType_SUMMARY && m.Summary != nil:
		return b.summary(m), true
	}
	return nil, false
}

// appendPoint appends a result of point to the result of describe for the same family.
func appendPoint(to *metrics.Metric, p proto.Message) {
	switch data := to.Data.(type) {
	case *metrics.Metric_Sum:
		data.Sum.DataPoints = append(data.Sum.DataPoints, p.(*metrics.NumberDataPoint))
	case *metrics.Metric_Gauge:
		data.Gauge.DataPoints = append(data.Gauge.DataPoints, p.(*metrics.NumberDataPoint))
	case *metrics.Metric_Histogram:
		data.Histogram.DataPoints = append(data.Histogram.DataPoints, p.(*metrics.HistogramDataPoint))
	case *metrics.Metric_Summary:
		data.Summary.DataPoints = append(data.Summary.DataPoints, p.(*metrics.SummaryDataPoint))
	}
}

func (b *builder) number(m *dto.Metric, start uint64, value float64) *metrics.NumberDataPoint {
	return &metrics.NumberDataPoint{
		Attributes: attributes(m), StartTimeUnixNano: start, TimeUnixNano: b.now,
		Value: &metrics.NumberDataPoint_AsDouble{AsDouble: value},
	}
}

// histogram converts cumulative buckets to separate ones, the last of which extends to infinity. A
// collector may have read its buckets at other moments than the count: then a bucket with less than
// the one before is empty, and the count is that of the buckets.
func (b *builder) histogram(m *dto.Metric) *metrics.HistogramDataPoint {
	h := m.Histogram
	p := &metrics.HistogramDataPoint{
		Attributes: attributes(m), StartTimeUnixNano: b.start, TimeUnixNano: b.now, Count: h.GetSampleCount(),
	}
	buckets := slices.Clone(h.Bucket)
	slices.SortStableFunc(buckets, func(a, b *dto.Bucket) int {
		return cmp.Compare(a.GetUpperBound(), b.GetUpperBound())
	})
	var before uint64 // in the buckets so far
	for _, bucket := range buckets {
		bound, upTo := bucket.GetUpperBound(), bucket.GetCumulativeCount()
		if math.IsNaN(bound) || math.IsInf(bound, 0) { // the count stands for all
			continue
		}
		own := max(upTo, before) - before
		before += own
		if n := len(p.ExplicitBounds); n > 0 && p.ExplicitBounds[n-1] == bound {
			p.BucketCounts[n-1] += own
			continue
		}
		p.ExplicitBounds, p.BucketCounts = append(p.ExplicitBounds, bound), append(p.BucketCounts, own)
	}
	if len(p.ExplicitBounds) > 0 {
		p.Count = max(p.Count, before)
		p.BucketCounts = append(p.BucketCounts, p.Count-before)
	}
	// A sum that can decrease, since values may be negative, is not allowed.
	if sum := h.GetSampleSum(); finite(sum) && sum >= 0 && (p.Count > 0 || sum == 0) {
		p.Sum = &sum
	}
	return p
}

func (b *builder) summary(m *dto.Metric) *metrics.SummaryDataPoint {
	s := m.Summary
	p := &metrics.SummaryDataPoint{
		Attributes: attributes(m), StartTimeUnixNano: b.start, TimeUnixNano: b.now, Count: s.GetSampleCount(),
	}
	if sum := s.GetSampleSum(); finite(sum) && p.Count > 0 {
		p.Sum = sum
	}
	for _, q := range s.Quantile {
		if q.GetQuantile() >= 0 && q.GetQuantile() <= 1 && q.GetValue() >= 0 && finite(q.GetValue()) {
			p.QuantileValues = append(p.QuantileValues, &metrics.SummaryDataPoint_ValueAtQuantile{
				Quantile: q.GetQuantile(), Value: q.GetValue(),
			})
		}
	}
	slices.SortFunc(p.QuantileValues, func(a, b *metrics.SummaryDataPoint_ValueAtQuantile) int {
		return cmp.Compare(a.Quantile, b.Quantile)
	})
	return p
}

func attributes(m *dto.Metric) []*common.KeyValue {
	var found []*common.KeyValue
	for _, label := range m.Label {
		if label.GetValue() != "" {
			found = append(found, attribute(label.GetName(), label.GetValue()))
		}
	}
	return found
}

func finite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }
