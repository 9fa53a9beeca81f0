package backend

import (
	"maps"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
)

// Span identifies a span. Ids are in hexadecimal digits.
type Span struct {
	Service, Name   string
	TraceID, SpanID string
	Parent          string // a span id; empty: none
	Process         string // process.pid
	Start, End      uint64 // ns since 1970
}

// Spans returns how many times each span was received.
func (b *Backend) Spans() map[Span]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.spans)
}

func addSpans(into map[Span]int, request *collector.ExportTraceServiceRequest) {
	for _, ofResource := range request.ResourceSpans {
		resource := resourceAttributes(ofResource.Resource)
		for _, ofScope := range ofResource.ScopeSpans {
			for _, s := range ofScope.Spans {
				into[Span{
					Service: resource["service.name"], Name: s.Name, TraceID: id(s.TraceId), SpanID: id(s.SpanId),
					Parent: id(s.ParentSpanId), Process: resource["process.pid"],
					Start: s.StartTimeUnixNano, End: s.EndTimeUnixNano,
				}]++
			}
		}
	}
}
