package spantimes

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
)

var traceOf, parent = []byte("0123456789abcdef"), []byte("parentId")

// request has spans with numbers, in several messages.
func request(t *testing.T, change ...func(*trace.Span)) []byte {
	t.Helper()
	q := &collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{}}}
	for i, change := range change {
		span := &trace.Span{TraceId: traceOf, SpanId: fmt.Appendf(nil, "span%04d", i), ParentSpanId: parent,
			Name:              "GET /",
			StartTimeUnixNano: uint64(i), EndTimeUnixNano: uint64(100 + i), Kind: trace.Span_SPAN_KIND_INTERNAL,
			Attributes: []*common.KeyValue{{Key: "a", Value: &common.AnyValue{}}}}
		change(span)
		q.ResourceSpans = append(q.ResourceSpans,
			&trace.ResourceSpans{ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{span}}, {}}})
	}
	encoded, err := proto.Marshal(q)
	assert.NilError(t, err)
	return encoded
}

func entries(encoded []byte) (ids []string) {
	Entries(encoded, func(s *Span) { ids = append(ids, fmt.Sprintf("%s %s %d %d", s.TraceID, s.ID, s.Start, s.End)) })
	return ids
}

// The spans with which work begins in a process are found, with their times; others, and those without ids, are not.
func TestEntries(t *testing.T) {
	encoded := request(t,
		func(*trace.Span) {},
		func(s *trace.Span) { s.ParentSpanId = nil },
		func(s *trace.Span) { s.Kind = trace.Span_SPAN_KIND_SERVER },
		func(s *trace.Span) { s.Kind = trace.Span_SPAN_KIND_CONSUMER },
		func(s *trace.Span) { s.Kind = trace.Span_SPAN_KIND_CLIENT },
		func(s *trace.Span) { s.Flags = 0x301 },
		func(s *trace.Span) { s.Flags = 0x101 },
		func(s *trace.Span) { s.Flags = 0x201 },
		func(s *trace.Span) { s.ParentSpanId, s.TraceId = nil, traceOf[:8] },
		func(s *trace.Span) { s.ParentSpanId, s.SpanId = nil, nil },
		func(s *trace.Span) { s.ParentSpanId, s.SpanId = nil, traceOf },
	)
	want := []string{}
	for _, i := range []int{1, 2, 3, 5} {
		want = append(want, fmt.Sprintf("0123456789abcdef span%04d %d %d", i, i, 100+i))
	}
	assert.DeepEqual(t, entries(encoded), want)
}

// Whatever is cut or changed in a request, nothing is read beyond it.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\n\x05\x12\x03\x12\x01\x09"))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		Entries(encoded, func(s *Span) { assert.Check(t, s != nil) })
	})
}

// Of a request that is cut off, spans are those that it has, unchanged.
func TestEntriesOfPart(t *testing.T) {
	whole := request(t, func(s *trace.Span) { s.ParentSpanId = nil }, func(s *trace.Span) { s.ParentSpanId = nil })
	all := entries(whole)
	for n := range whole {
		part := entries(whole[:n])
		assert.Check(t, len(part) <= len(all), "%d bytes: %q", n, part)
		for i, got := range part {
			assert.Check(t, got == all[i], "%d bytes: %q", n, got)
		}
	}
}
