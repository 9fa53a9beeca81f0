package validate

import "bytes"

// Lengths of ids in bytes: trace.proto.
const (
	traceIDSize = 16
	spanIDSize  = 8
)

// Tags of a Span and a Span.Link.
const (
	tagTraceID      = 1<<3 | wireBytes
	tagSpanID       = 2<<3 | wireBytes
	tagParentSpanID = 4<<3 | wireBytes
	tagStart        = 7<<3 | wireFixed64
	tagEnd          = 8<<3 | wireFixed64
	tagLinks        = 13<<3 | wireBytes
)

// span checks that a span has ids of the right length that are not zero, that the ids of other
// spans have the right length or are absent, and that it does not end before it starts.
func (c *checker) span(f field, bad problem) {
	before := c.save()
	if !bad.found() {
		bad = c.spanFields(f)
	}
	if !bad.found() {
		bad = c.clean(msgSpan, f.body, 0)
	}
	c.complete(f, onItem, 1, bad, before)
}

func (c *checker) spanFields(span field) problem {
	var traceID, spanID, parent field
	var start, end uint64
	endAt := span.whole.from
	for f := range c.fields(span.body) {
		switch f.tag {
		case tagTraceID:
			traceID = f
		case tagSpanID:
			spanID = f
		case tagParentSpanID:
			parent = f
		case tagStart:
			start = f.value
		case tagEnd:
			end, endAt = f.value, f.whole.from
		case tagLinks:
			if bad := c.reference(f, tagTraceID, tagSpanID); bad.found() {
				return bad
			}
		}
	}
	switch {
	case !c.isID(traceID, traceIDSize):
		return found(BadID, at(traceID, span), "trace_id is not 16 bytes, or zero")
	case !c.isID(spanID, spanIDSize):
		return found(BadID, at(spanID, span), "span_id is not 8 bytes, or zero")
	case parent.body.size() != 0 && parent.body.size() != spanIDSize:
		return found(BadID, parent.whole.from, "parent_span_id is not 8 bytes")
	case end < start:
		return found(BadTime, endAt, "ends before it starts")
	}
	return problem{}
}

// reference checks the ids of a link or an exemplar. They may be absent: links that only have
// attributes, and exemplars that only have a value, are valid.
func (c *checker) reference(m field, traceID, spanID tag) problem {
	for f := range c.fields(m.body) {
		n := f.body.size()
		if n != 0 && (f.tag == traceID && n != traceIDSize || f.tag == spanID && n != spanIDSize) {
			return found(BadID, f.whole.from, "id has the wrong length")
		}
	}
	return problem{}
}

// at returns the offset of a field, or of the message that lacks it.
func at(f, in field) uint32 {
	if f.tag == 0 {
		return in.whole.from
	}
	return f.whole.from
}

// isID reports whether a field is an id of that length.
func (c *checker) isID(f field, size int) bool {
	return f.body.size() == size && !c.isZero(f.body)
}

func (c *checker) isZero(p part) bool {
	return len(bytes.Trim(c.bytes(p), "\x00")) == 0
}
