package validate

import (
	"math"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

var (
	traceID = []byte("0123456789abcdef")
	spanID  = []byte("01234567")
)

func encode(t testing.TB, m proto.Message) request {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
	assert.NilError(t, err)
	return b
}

func stringValue(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

func referenceValue(i int32) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValueStrindex{StringValueStrindex: i}}
}

func attribute(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: stringValue(value)}
}

// nest is a value in that many values, itself included.
func nest(depth int) *common.AnyValue {
	v := stringValue("deep")
	for i := 1; i < depth; i++ {
		if i%2 == 0 {
			list := &common.ArrayValue{Values: []*common.AnyValue{v}}
			v = &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
		} else {
			list := &common.KeyValueList{Values: []*common.KeyValue{{Key: "k", Value: v}}}
			v = &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: list}}
		}
	}
	return v
}

func aResource() *resource.Resource {
	return &resource.Resource{
		Attributes: []*common.KeyValue{attribute("service.name", "shop"), attribute("host.id", "h")},
		EntityRefs: []*common.EntityRef{{Type: "service", IdKeys: []string{"service.name"}}},
	}
}

func aScope() *common.InstrumentationScope {
	return &common.InstrumentationScope{Name: "lib", Version: "1", Attributes: []*common.KeyValue{attribute("a", "b")}}
}

func aSpan(name string) *trace.Span {
	return &trace.Span{
		TraceId: traceID, SpanId: spanID, ParentSpanId: spanID, Name: name, TraceState: "a=b",
		StartTimeUnixNano: 5, EndTimeUnixNano: 7, Status: &trace.Status{Message: "fine", Code: 1}, Flags: 1,
		Attributes: []*common.KeyValue{attribute("http.method", "GET"), {Key: "list", Value: nest(5)}},
		Events: []*trace.Span_Event{{TimeUnixNano: 6, Name: "e", Attributes: []*common.KeyValue{attribute("x",
			"y")}}},
		Links: []*trace.Span_Link{{TraceId: traceID, SpanId: spanID},
			{Attributes: []*common.KeyValue{attribute("nowhere", "")}}},
	}
}

func traceRequest(spans ...*trace.Span) *collecttraces.ExportTraceServiceRequest {
	return &collecttraces.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: aResource(), SchemaUrl: "https://example.com/1",
		ScopeSpans: []*trace.ScopeSpans{{Scope: aScope(), Spans: spans}},
	}}}
}

func number(v float64) *metrics.NumberDataPoint {
	return &metrics.NumberDataPoint{
		StartTimeUnixNano: 1, TimeUnixNano: 2, Value: &metrics.NumberDataPoint_AsDouble{AsDouble: v},
		Attributes: []*common.KeyValue{attribute("a", "b")},
		Exemplars: []*metrics.Exemplar{{
			TraceId: traceID, SpanId: spanID, Value: &metrics.Exemplar_AsInt{AsInt: 1},
			FilteredAttributes: []*common.KeyValue{attribute("c", "d")},
		}},
	}
}

func gauge(points ...*metrics.NumberDataPoint) *metrics.Metric {
	return &metrics.Metric{
		Name: "g", Data: &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: points}},
		Metadata: []*common.KeyValue{attribute("m", "1"), attribute("n", "2")},
	}
}

func sum(points ...*metrics.NumberDataPoint) *metrics.Metric {
	return &metrics.Metric{Name: "s", Data: &metrics.Metric_Sum{Sum: &metrics.Sum{DataPoints: points,
		IsMonotonic: true}}}
}

func histogram(points ...*metrics.HistogramDataPoint) *metrics.Metric {
	return &metrics.Metric{Name: "h",
		Data: &metrics.Metric_Histogram{Histogram: &metrics.Histogram{DataPoints: points}}}
}

func buckets(counts []uint64, bounds ...float64) *metrics.HistogramDataPoint {
	return &metrics.HistogramDataPoint{TimeUnixNano: 2, Sum: proto.Float64(1), BucketCounts: counts,
		ExplicitBounds: bounds}
}

func exponential(points ...*metrics.ExponentialHistogramDataPoint) *metrics.Metric {
	return &metrics.Metric{Name: "e", Data: &metrics.Metric_ExponentialHistogram{
		ExponentialHistogram: &metrics.ExponentialHistogram{DataPoints: points},
	}}
}

func summary(points ...*metrics.SummaryDataPoint) *metrics.Metric {
	return &metrics.Metric{Name: "y", Data: &metrics.Metric_Summary{Summary: &metrics.Summary{DataPoints: points}}}
}

func quantile(q float64) *metrics.SummaryDataPoint {
	return &metrics.SummaryDataPoint{QuantileValues: []*metrics.SummaryDataPoint_ValueAtQuantile{{Quantile: q,
		Value: 3}}}
}

// someMetrics is one of each kind: six data points, and a metric without.
func someMetrics() []*metrics.Metric {
	return []*metrics.Metric{
		gauge(number(1), number(2)), sum(number(3)), histogram(buckets([]uint64{1, 2, 3}, math.Inf(-1), -1)),
		exponential(&metrics.ExponentialHistogramDataPoint{
			TimeUnixNano: 2, Positive: &metrics.ExponentialHistogramDataPoint_Buckets{Offset: -1,
				BucketCounts: []uint64{1, 300}},
		}),
		summary(quantile(0.5)), {Name: "none"},
	}
}

func metricRequest(list ...*metrics.Metric) *collectmetrics.ExportMetricsServiceRequest {
	return &collectmetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource: aResource(), ScopeMetrics: []*metrics.ScopeMetrics{{Scope: aScope(), Metrics: list}},
	}}}
}

func aDictionary() *profiles.ProfilesDictionary {
	return &profiles.ProfilesDictionary{
		StringTable:  []string{"", "samples", "count", "main", "key"},
		MappingTable: []*profiles.Mapping{{}, {MemoryStart: 4096, FilenameStrindex: 3, AttributeIndices: []int32{1}}},
		LocationTable: []*profiles.Location{{}, {
			MappingIndex: 1, Address: 5000, Lines: []*profiles.Line{{FunctionIndex: 1, Line: 7}},
			AttributeIndices: []int32{1},
		}},
		FunctionTable: []*profiles.Function{{}, {NameStrindex: 3, FilenameStrindex: 4}},
		LinkTable: []*profiles.Link{
			{TraceId: make([]byte, traceIDSize), SpanId: make([]byte, spanIDSize)}, {TraceId: traceID, SpanId: spanID},
		},
		AttributeTable: []*profiles.KeyValueAndUnit{
			{}, {KeyStrindex: 4, Value: stringValue("v"), UnitStrindex: 2}, {KeyStrindex: 4, Value: referenceValue(3)},
		},
		StackTable: []*profiles.Stack{{}, {LocationIndices: []int32{1, 1}}},
	}
}

func aSample() *profiles.Sample {
	return &profiles.Sample{
		StackIndex: 1, LinkIndex: 1, AttributeIndices: []int32{1, 2}, Values: []int64{1, -300},
		TimestampsUnixNano: []uint64{5, 6},
	}
}

// aProfile has two samples.
func aProfile() *profiles.Profile {
	return &profiles.Profile{
		SampleType: &profiles.ValueType{TypeStrindex: 1, UnitStrindex: 2},
		PeriodType: &profiles.ValueType{TypeStrindex: 1},
		Samples:    []*profiles.Sample{aSample(), {StackIndex: 1, Values: []int64{3}}}, ProfileId: traceID,
		OriginalPayloadFormat: "pprof", OriginalPayload: []byte{1}, AttributeIndices: []int32{1},
	}
}

func profileRequest(list ...*profiles.Profile) *collectprofiles.ExportProfilesServiceRequest {
	r := aResource()
	r.Attributes = append(r.Attributes, &common.KeyValue{KeyStrindex: 3, Value: referenceValue(2)},
		&common.KeyValue{KeyStrindex: 4, Value: referenceValue(2)})
	return &collectprofiles.ExportProfilesServiceRequest{
		Dictionary: aDictionary(),
		ResourceProfiles: []*profiles.ResourceProfiles{{
			Resource: r, ScopeProfiles: []*profiles.ScopeProfiles{{Scope: aScope(), Profiles: list}},
		}},
	}
}

// sound is a request of each signal with nothing wrong in it, and how many items in how many units
// it has.
func sound(t testing.TB, signal Signal) (body request, items, units int) {
	t.Helper()
	switch signal {
	case Traces:
		return encode(t, traceRequest(aSpan("a"), aSpan("b"))), 2, 2
	case Metrics:
		return encode(t, metricRequest(someMetrics()...)), 7, 7
	default:
		payload := &profiles.Profile{OriginalPayloadFormat: "jfr", OriginalPayload: []byte{1, 2}}
		return encode(t, profileRequest(aProfile(), payload)), 3, 2
	}
}
