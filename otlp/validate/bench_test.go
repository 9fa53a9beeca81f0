package validate

import (
	"fmt"
	"testing"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// BenchmarkCheck is a request of 500 spans, points or samples, sound or with every tenth of them
// bad; and for comparison what the protobuf library needs to decode the spans.
func BenchmarkCheck(b *testing.B) {
	list := func(n int) (all []*common.KeyValue) {
		for i := range n {
			all = append(all, attribute(fmt.Sprintf("attribute.%d", i), "some value"))
		}
		return all
	}
	var spans, bad []*trace.Span
	var points []*metrics.NumberDataPoint
	profile := aProfile()
	for i := range 500 {
		span := &trace.Span{TraceId: traceID, SpanId: spanID, Name: "GET /", Attributes: list(10)}
		spans = append(spans, span)
		if i%10 == 0 {
			span = &trace.Span{TraceId: traceID, Name: "GET /", Attributes: list(10)}
		}
		bad = append(bad, span)
		points = append(points, &metrics.NumberDataPoint{Value: &metrics.NumberDataPoint_AsInt{AsInt: 1},
			Attributes: list(4)})
		profile.Samples = append(profile.Samples, aSample())
	}
	for _, c := range []struct {
		name   string
		signal Signal
		body   proto.Message
	}{
		{"traces", Traces, traceRequest(spans...)},
		{"bad traces", Traces, traceRequest(bad...)},
		{"metrics", Metrics, metricRequest(sum(points...))},
		{"profiles", Profiles, profileRequest([]*profiles.Profile{profile}...)},
	} {
		body := encode(b, c.body)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := Check(c.signal, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	body := encode(b, traceRequest(spans...))
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if err := proto.Unmarshal(body, newMessage(Traces)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
