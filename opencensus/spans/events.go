package spans

import (
	"correlator/opencensus/wire"
	"correlator/otlp/field"
)

// The client sends events and links as empty objects, so that only their number arrives: they have
// private members in PHP, which its JSON leaves out. They are read with the members they have
// there, as a client sends them whose classes support JSON.

// The fields of an Event and of a Link that are used (trace.proto).
//
//	message  field  type      content
//	Event        1  fixed64   time_unix_nano
//	             2  text      name
//	             3  messages  KeyValue
//	             4  varint    dropped_attributes_count
//	Link         1  bytes     trace_id, 16
//	             2  bytes     span_id, 8
//	             4  messages  KeyValue
//	             5  varint    dropped_attributes_count

// event are the members of an event's object: those of an annotation, then those of a message.
type event struct {
	time, description, attributes      value
	kind, id, uncompressed, compressed value
}

// events appends the events of a span, and the number of those without content.
func (e *encoding) events(v value, start uint64) {
	dropped := e.each(v, func(r *reader) bool { return e.event(r, start) })
	e.DroppedEvents += dropped
	e.out = field.AppendVarint(e.out, 12, uint64(dropped))
}

// each appends the elements of a list, and returns of how many that was not possible.
func (e *encoding) each(v value, element func(*reader) bool) (dropped int) {
	if !v.hasContent() {
		return 0
	}
	r := e.open(v)
	defer e.close()
	for range r.elements {
		if !element(r) {
			dropped++
		}
	}
	return dropped
}

// event appends an event, or reports that it has no content.
func (e *encoding) event(r *reader, start uint64) bool {
	var ev event
	r.into(place{"time", &ev.time}, place{"description", &ev.description}, place{"attributes", &ev.attributes},
		place{"type", &ev.kind}, place{"id", &ev.id}, place{"uncompressedSize", &ev.uncompressed},
		place{"compressedSize", &ev.compressed})
	annotation := ev.description.isText() || ev.attributes.isContainer()
	if !annotation && !ev.kind.isText() && !ev.id.isText() {
		return false
	}
	at := start
	if ev.time.hasContent() {
		if seen, ok := e.time(e.open(ev.time).dateTime()); ok {
			at = seen
		}
		e.close()
	}
	out, from := field.Begin(e.out, 11)
	e.out = field.AppendFixed64(out, 1, at)
	if annotation {
		e.annotation(&ev)
	} else {
		e.message(&ev)
	}
	e.out = field.End(e.out, from)
	return true
}

func (e *encoding) annotation(ev *event) {
	name := e.text(ev.description)
	if len(name) == 0 {
		name = []byte("annotation")
	}
	e.out = field.Append(e.out, 2, name)
	l := e.newList(3, itemLevel)
	e.addAll(&l, ev.attributes)
	e.finish(&l)
	e.out = field.AppendVarint(e.out, 4, uint64(l.dropped))
}

func (e *encoding) message(ev *event) {
	e.out = field.Append(e.out, 2, "message")
	l := e.newList(3, itemLevel)
	if kind := e.text(ev.kind); string(kind) == "SENT" || string(kind) == "RECEIVED" {
		addText(e, &l, "message.type", kind)
	}
	if ev.id.isText() {
		if n, ok := decimal(e.text(ev.id)); ok {
			e.addInt(&l, "message.id", n)
		} else {
			addText(e, &l, "message.id", e.text(ev.id))
		}
	}
	if n, ok := integer(ev.uncompressed); ok {
		e.addInt(&l, "message.uncompressed_size", n)
	}
	if n, ok := integer(ev.compressed); ok {
		e.addInt(&l, "message.compressed_size", n)
	}
	e.finish(&l)
}

// links appends the links of a span, and the number of those without valid ids.
func (e *encoding) links(v value) {
	dropped := e.each(v, e.link)
	e.DroppedLinks += dropped
	e.out = field.AppendVarint(e.out, 14, uint64(dropped))
}

// link appends a link, or reports that it has no valid ids.
func (e *encoding) link(r *reader) bool {
	var traceDigits, spanDigits, kind, attributes value
	r.into(place{"traceId", &traceDigits}, place{"spanId", &spanDigits}, place{"type", &kind},
		place{"attributes", &attributes})
	var traceID [16]byte
	var spanID [8]byte
	if !wire.ReadID(traceID[:], e.text(traceDigits)) || !wire.ReadID(spanID[:], e.text(spanDigits)) {
		return false
	}
	out, from := field.Begin(e.out, 13)
	out = field.Append(out, 1, traceID[:])
	e.out = field.Append(out, 2, spanID[:])
	l := e.newList(4, itemLevel)
	e.addAll(&l, attributes)
	if kind := e.text(kind); len(kind) > 0 && string(kind) != "TYPE_UNSPECIFIED" {
		addText(e, &l, "opencensus.link.type", kind)
	}
	e.finish(&l)
	e.out = field.End(field.AppendVarint(e.out, 5, uint64(l.dropped)), from)
	return true
}
