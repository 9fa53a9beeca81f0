package validate

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxDepth limits the nesting of AnyValues. Protobuf allows 10,000 nested messages, for which some
// backends have no stack; real data has a few.
const maxDepth = 100

// decode returns a violation for what no protobuf decoder accepts as a message of the schema, but for
// texts that are not UTF-8, which it adds to bad. It skips values nested deeper than maxDepth, which
// are removed later.
func (r request) decode(m *messageType, p part, depth int, bad *[]part) *violation {
	for p.from < p.to {
		f, err := r.next(p)
		if err != nil {
			return &violation{p.from, "broken encoding: " + plainText(err)}
		}
		e := describe(m, f.tag)
		switch {
		case e.kind == text || e.kind == texts:
			if utf8.Valid(r.bytes(f.body)) {
				break
			}
			if len(*bad) == maxRemoved(len(r)) {
				return &violation{p.from, "invalid UTF-8, as too many texts before"}
			}
			*bad = append(*bad, f.body)
		case e.kind.nested():
			inner := deeper(depth, e)
			if inner > maxDepth {
				break
			}
			if t := r.decode(e.message, f.body, inner, bad); t != nil {
				return t
			}
		case f.tag.wire() == wireBytes && !r.packed(e.kind, f.body):
			return &violation{p.from, "broken encoding: a packed list ends within a number"}
		}
		p.from = f.whole.to
	}
	return nil
}

// repaired returns a copy of a request with a question mark for each byte of some texts that is not of
// UTF-8. So nothing else changes its place.
func (r request) repaired(bad []part) request {
	out := make(request, len(r))
	copy(out, r)
	for _, p := range bad {
		for text := out.bytes(p); len(text) > 0; {
			_, n := utf8.DecodeRune(text)
			if n == 1 && text[0] >= utf8.RuneSelf {
				text[0] = '?'
			}
			text = text[n:]
		}
	}
	return out
}

// plainText returns the text of an error of the protobuf library without its prefix, which ends in
// either a space or a no-break space, at random.
func plainText(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

// deeper returns the number of AnyValues around a field of a message at depth, the field included.
func deeper(depth int, e *entry) int {
	if e.message == msgAnyValue {
		return depth + 1
	}
	return depth
}

// packed reports whether p is a valid packed list.
func (r request) packed(k kind, p part) bool {
	switch k {
	case fixed64s:
		return p.size()%8 == 0
	case varints, indices:
		for b := r.bytes(p); len(b) > 0; {
			_, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return false
			}
			b = b[n:]
		}
	}
	return true
}

// path returns the path of the field at an offset: resource_spans[0].scope_spans[2].spans[17].name.
func (r request) path(m *messageType, at uint32) string {
	var path strings.Builder
	for p := r.all(); ; {
		e, f, nth := r.find(m, p, at)
		if e.kind == unknown {
			return path.String()
		}
		if path.Len() > 0 {
			path.WriteByte('.')
		}
		path.WriteString(e.name)
		if e.kind.many() {
			fmt.Fprintf(&path, "[%d]", nth)
		}
		if !e.kind.nested() || at <= f.whole.from {
			return path.String()
		}
		m, p = e.message, f.body
	}
}

// find returns the field of a message that contains an offset, and how many fields of its number
// precede it.
func (r request) find(m *messageType, p part, at uint32) (*entry, field, int) {
	nth := make([]int, len(m.fields))
	for f := range r.fields(p) {
		e := describe(m, f.tag)
		if at < f.whole.to {
			return e, f, nth[min(f.tag.number(), len(nth)-1)]
		}
		if e.kind != unknown {
			nth[f.tag.number()]++
		}
	}
	return &unknownField, field{}, 0
}
