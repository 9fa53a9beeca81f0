package spans

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/opencensus/wire"
	"correlator/otlp/field"
)

// members are the members of a span's object that are used. A key that occurs again replaces the
// first; other keys are ignored.
type members struct {
	traceID, spanID, parent, name, kind value
	start, end                          dateTime
	status, attributes                  value
	stackTrace                          []byte // as text
	timeEvents, links, sameParent       value
}

// members reads the next value, which is an object.
func (e *encoding) members(r *reader) (to members) {
	for name := range r.members {
		switch string(name) {
		case "traceId":
			to.traceID = r.value()
		case "spanId":
			to.spanID = r.value()
		case "parentSpanId":
			to.parent = r.value()
		case "name":
			to.name = r.value()
		case "kind":
			to.kind = r.value()
		case "startTime":
			to.start = r.dateTime()
		case "endTime":
			to.end = r.dateTime()
		case "status":
			to.status = r.value()
		case "attributes":
			to.attributes = r.value()
		case "stackTrace":
			to.stackTrace = e.stackTrace(r)
		case "timeEvents":
			to.timeEvents = r.value()
		case "links":
			to.links = r.value()
		case "sameProcessAsParentSpan":
			to.sameParent = r.value()
		default:
			r.value()
		}
	}
	return to
}

// The fields of a Span that are used (trace.proto).
//
//	field  type      content
//	    1  bytes     trace_id, 16
//	    2  bytes     span_id, 8
//	    4  bytes     parent_span_id, 8
//	    5  text      name
//	    6  enum      kind
//	    7  fixed64   start_time_unix_nano
//	    8  fixed64   end_time_unix_nano
//	    9  messages  KeyValue
//	   10  varint    dropped_attributes_count
//	   11  messages  Event
//	   12  varint    dropped_events_count
//	   13  messages  Link
//	   14  varint    dropped_links_count
//	   15  message   Status
//	   16  fixed32   flags

// span appends a span, or counts why it is dropped.
func (e *encoding) span(m *members) {
	var traceID [16]byte
	var spanID [8]byte
	if !wire.ReadID(traceID[:], e.text(m.traceID)) {
		e.Dropped[BadTraceID]++
		return
	}
	if !wire.ReadID(spanID[:], e.text(m.spanID)) {
		e.Dropped[BadSpanID]++
		return
	}
	out, from := field.Begin(e.out, 2)
	out = field.Append(out, 1, traceID[:])
	e.out = field.Append(out, 2, spanID[:])
	flags := e.parent(m)
	kind := readKind(e.text(m.kind))
	e.name(m.name, kind)
	out = field.AppendVarint(e.out, 6, uint64(kind))
	start, end, unfinished := e.times(m)
	out = field.AppendFixed64(out, 7, start)
	e.out = field.AppendFixed64(out, 8, end)
	httpStatus := e.attributes(m, unfinished)
	e.events(m.timeEvents, start)
	e.links(m.links)
	e.status(m.status, kind, httpStatus)
	out = protowire.AppendTag(e.out, 16, protowire.Fixed32Type)
	out = protowire.AppendFixed32(out, flags)
	e.out = field.End(out, from)
	e.Spans++
}

// Flags of a span.
const (
	sampled     = 1 << 0
	hasIsRemote = 1 << 8 // the next is known
	isRemote    = 1 << 9 // the parent is in another process
)

// parent appends the parent, and returns the flags. A parent may come from a header that anybody
// can send: a wrong one does not cost the span.
func (e *encoding) parent(m *members) uint32 {
	digits := e.text(m.parent)
	var id [8]byte
	if !wire.ReadID(id[:], digits) {
		if len(digits) > 2*len(id) || len(bytes.Trim(digits, "0")) > 0 {
			e.InvalidParents++
		}
		return sampled
	}
	e.out = field.Append(e.out, 4, id[:])
	switch string(m.sameParent) {
	case "true":
		return sampled | hasIsRemote
	case "false":
		return sampled | hasIsRemote | isRemote
	}
	return sampled
}

// spanKind is the kind of a span, by its number in OTLP.
type spanKind uint8

const (
	internal spanKind = 1
	server   spanKind = 2
	client   spanKind = 3
	producer spanKind = 4
	consumer spanKind = 5
)

// readKind returns the kind of a name. The client has none for spans that are neither of a server
// nor of a client, which OTLP calls internal.
func readKind(name []byte) spanKind {
	switch string(name) {
	case "SERVER":
		return server
	case "CLIENT":
		return client
	case "PRODUCER":
		return producer
	case "CONSUMER":
		return consumer
	}
	return internal
}

// name appends the name.
func (e *encoding) name(v value, kind spanKind) {
	name := e.text(v)
	if e.options.CutQueries && kind == server {
		name, _, _ = bytes.Cut(name, []byte("?"))
	}
	if len(name) == 0 {
		name = []byte("unknown")
	}
	e.out = field.Append(e.out, 5, name)
}
