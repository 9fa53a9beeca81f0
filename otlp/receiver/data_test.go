package receiver

import (
	"bytes"
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

	"correlator/otlp"
)

var (
	traceID = []byte("0123456789abcdef")
	spanID  = []byte("01234567")
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	assert.NilError(t, err)
	return b
}

func attribute(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func aResource() *resource.Resource {
	return &resource.Resource{Attributes: []*common.KeyValue{attribute("service.name", "shop")}}
}

func aSpan(name string) *trace.Span {
	return &trace.Span{
		TraceId: traceID, SpanId: spanID, Name: name, StartTimeUnixNano: 5, EndTimeUnixNano: 7,
		Attributes: []*common.KeyValue{attribute("http.method", "GET")},
	}
}

func badSpan() *trace.Span { return &trace.Span{TraceId: traceID, SpanId: spanID[:7], Name: "bad"} }

// largeSpan returns a span of a little more than n bytes.
func largeSpan(n int) *trace.Span { return aSpan(string(bytes.Repeat([]byte("n"), n))) }

func traceRequest(spans ...*trace.Span) *collecttraces.ExportTraceServiceRequest {
	return &collecttraces.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: aResource(), ScopeSpans: []*trace.ScopeSpans{{Spans: spans}},
	}}}
}

func gauge(values ...float64) *metrics.Metric {
	var points []*metrics.NumberDataPoint
	for _, v := range values {
		points = append(points, &metrics.NumberDataPoint{TimeUnixNano: 2,
			Value: &metrics.NumberDataPoint_AsDouble{AsDouble: v}})
	}
	return &metrics.Metric{Name: "g", Data: &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: points}}}
}

func metricRequest(list ...*metrics.Metric) *collectmetrics.ExportMetricsServiceRequest {
	return &collectmetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource: aResource(), ScopeMetrics: []*metrics.ScopeMetrics{{Metrics: list}},
	}}}
}

// aProfile returns a profile with one sample for each number of values.
func aProfile(values ...int) *profiles.Profile {
	p := &profiles.Profile{ProfileId: traceID, OriginalPayloadFormat: "pprof", OriginalPayload: []byte{1, 0, 2}}
	for _, n := range values {
		p.Samples = append(p.Samples, &profiles.Sample{
			StackIndex: 1, LinkIndex: 1, Values: make([]int64, n), TimestampsUnixNano: make([]uint64, n),
		})
	}
	return p
}

func profileRequest(list ...*profiles.Profile) *collectprofiles.ExportProfilesServiceRequest {
	return &collectprofiles.ExportProfilesServiceRequest{
		Dictionary: &profiles.ProfilesDictionary{
			StringTable: []string{""}, MappingTable: []*profiles.Mapping{{}},
			LocationTable: []*profiles.Location{{}, {Address: 5000}},
			FunctionTable: []*profiles.Function{{}}, AttributeTable: []*profiles.KeyValueAndUnit{{}},
			LinkTable: []*profiles.Link{{TraceId: make([]byte, 16), SpanId: make([]byte, 8)},
				{TraceId: traceID, SpanId: spanID}},
			StackTable: []*profiles.Stack{{}, {LocationIndices: []int32{1}}},
		},
		ResourceProfiles: []*profiles.ResourceProfiles{{
			Resource: aResource(), ScopeProfiles: []*profiles.ScopeProfiles{{Profiles: list}},
		}},
	}
}

// sound returns a valid request of a signal, and the number of its items.
func sound(t testing.TB, signal otlp.Signal) ([]byte, int) {
	t.Helper()
	switch signal {
	case otlp.Traces:
		return encode(t, traceRequest(aSpan("a"), aSpan("b"))), 2
	case otlp.Metrics:
		return encode(t, metricRequest(gauge(1, 2), gauge(3), &metrics.Metric{Name: "none"})), 4
	default:
		return encode(t, profileRequest(aProfile(1, 2), aProfile())), 3
	}
}
