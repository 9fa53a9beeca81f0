// Package spantimes reads from requests of spans when those began and ended with which a process has entered a trace.
package spantimes

import "google.golang.org/protobuf/encoding/protowire"

// Span is when a span began and ended.
type Span struct {
	TraceID    [16]byte
	ID         [8]byte
	Start, End uint64 // ns since 1970
}

// The fields of ExportTraceServiceRequest (trace_service.proto), ResourceSpans and ScopeSpans (trace.proto) on the way
// to a Span, and those of it.
const (
	resourceSpans, scopeSpans, spans = 1, 2, 2

	traceID, spanID, parentSpanID, kind, startTime, endTime, flags = 1, 2, 4, 6, 7, 8, 16
)

// Span.SpanKind, and Span.flags.
const (
	server, consumer = 2, 5
	isRemote         = 0x300 // it is known whether the parent is of another process, and it is
)

// Entries calls yield with the spans of an encoded request with which work begins in a process: those without a
// parent, those of servers and consumers, and those whose parent is said to be of another process. What follows
// something that is no protobuf is left out.
func Entries(request []byte, yield func(*Span)) {
	each(request, resourceSpans, func(of []byte) {
		each(of, scopeSpans, func(of []byte) {
			each(of, spans, func(of []byte) {
				if s := (&Span{}); s.read(of) {
					yield(s)
				}
			})
		})
	})
}

// each calls yield with each message in a field.
func each(message []byte, number protowire.Number, yield func([]byte)) {
	eachField(message, func(n protowire.Number, content []byte, _ uint64) {
		if n == number && content != nil {
			yield(content)
		}
	})
}

// eachField calls yield with each field of a message: its content, which is not nil, or its value.
func eachField(message []byte, yield func(number protowire.Number, content []byte, value uint64)) {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		var content []byte
		var value uint64
		switch wire {
		case protowire.BytesType:
			if content, n = protowire.ConsumeBytes(message); content == nil {
				content = []byte{}
			}
		case protowire.Fixed64Type:
			value, n = protowire.ConsumeFixed64(message)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var short uint32
			short, n = protowire.ConsumeFixed32(message)
			value = uint64(short)
		default:
			n = protowire.ConsumeFieldValue(number, wire, message)
		}
		if n < 0 {
			return
		}
		message = message[n:]
		yield(number, content, value)
	}
}

// read reads a span, and reports whether work begins with it in a process.
func (s *Span) read(message []byte) bool {
	hasIDs, hasParent, enters := [2]bool{}, false, false
	eachField(message, func(number protowire.Number, content []byte, value uint64) {
		switch number {
		case traceID:
			hasIDs[0] = copy(s.TraceID[:], content) == len(content) && len(content) == len(s.TraceID)
		case spanID:
			hasIDs[1] = copy(s.ID[:], content) == len(content) && len(content) == len(s.ID)
		case parentSpanID:
			hasParent = len(content) > 0
		case kind:
			enters = enters || value == server || value == consumer
		case flags:
			enters = enters || value&isRemote == isRemote
		case startTime:
			s.Start = value
		case endTime:
			s.End = value
		}
	})
	return hasIDs[0] && hasIDs[1] && (enters || !hasParent)
}
