package validate

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxDepth is how deep an AnyValue may lie in others. Protobuf allows 10,000 messages in each other, for
// which some receivers have no stack; nobody needs more than a few.
const maxDepth = 100

// decode is an error for what no protobuf decoder takes as a message of the schema. It does not look into
// values that lie deeper than maxDepth: their items are rejected later.
func (r request) decode(m messageID, p part, depth int) *trouble {
	for p.from < p.to {
		f, err := r.next(p)
		if err != nil {
			return &trouble{p.from, "broken encoding: " + plainText(err)}
		}
		e := describe(m, f.tag)
		switch {
		case e.kind == text || e.kind == texts:
			if !utf8.Valid(r.bytes(f.body)) {
				return &trouble{p.from, "invalid UTF-8"}
			}
		case e.kind.nested():
			inner := deeper(depth, e)
			if inner > maxDepth {
				break
			}
			if t := r.decode(e.ref, f.body, inner); t != nil {
				return t
			}
		case f.tag.wire() == wireBytes && !r.packed(e.kind, f.body):
			return &trouble{p.from, "broken encoding: a packed list ends within a number"}
		}
		p.from = f.whole.to
	}
	return nil
}

// plainText is the text of an error of the protobuf library, without its prefix: that ends in a space, or in
// one of Unicode, as the library likes.
func plainText(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

// deeper is the number of AnyValues that the field of a message at depth lies in, itself included.
func deeper(depth int, e entry) int {
	if e.ref == msgAnyValue {
		return depth + 1
	}
	return depth
}

// packed says whether a packed list is one.
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

// path names the field at an offset: resource_spans[0].scope_spans[2].spans[17].name.
func (r request) path(m messageID, at uint32) string {
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
		m, p = e.ref, f.body
	}
}

// find is the field of a message in which an offset lies, and how many of its number there are before it.
func (r request) find(m messageID, p part, at uint32) (entry, field, int) {
	nth := make([]int, len(schema[m]))
	for f := range r.fields(p) {
		e := describe(m, f.tag)
		if at < f.whole.to {
			return e, f, nth[min(f.tag.number(), len(nth)-1)]
		}
		if e.kind != unknown {
			nth[f.tag.number()]++
		}
	}
	return entry{}, field{}, 0
}
