package stats

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"correlator/opencensus/wire"
	"correlator/otlp/field"
)

// exemplar is an encoded Exemplar.
type exemplar struct {
	encoded []byte
	user    *user // is charged exemplarBytes and the capacity
}

// exemplarParts is what the exemplars of a record have in common.
type exemplarParts struct {
	present bool     // the record has attachments
	encoded []byte   // attributes of attachments, ids, time
	keys    [][]byte // of attributes: first those of attachments
	ends    []int    // of the attributes of attachments in encoded
	whole   []byte   // scratch: the exemplar of a view
}

// Sizes of encoded fields of an Exemplar: a time or value, and both ids.
const (
	fixedFieldBytes = 1 + 8
	idFieldsBytes   = 2 + 16 + 2 + 8
)

// prepareExemplar encodes what the exemplars of a record have in common.
func (u *Update) prepareExemplar(attachments []wire.KeyValue, sent time.Time) {
	p := &u.exemplar
	p.present, p.encoded, p.keys, p.ends = len(attachments) > 0, p.encoded[:0], p.keys[:0], p.ends[:0]
	if !p.present {
		return
	}
	if over := len(attachments) - maxTags; over > 0 {
		u.s.counts.Lost[TagsTooMany] += uint64(over)
		attachments = attachments[:maxTags]
	}
	var traceID [16]byte
	var spanID [8]byte
	var hasTrace, hasSpan bool
	for _, a := range attachments {
		switch {
		case !hasTrace && isName(a.Key, "trace_id", "traceid") && len(a.Value) == 32 &&
			wire.ReadID(traceID[:], a.Value):
			hasTrace = true
		case !hasSpan && isName(a.Key, "span_id", "spanid") && wire.ReadID(spanID[:], a.Value):
			hasSpan = true
		case len(a.Key) > maxName:
			u.s.counts.Lost[TagName]++
		default:
			u.exemplarAttribute(validBytes(a.Key), u.value(a.Value, maxText))
		}
	}
	if hasTrace {
		p.encoded = field.Append(p.encoded, exemplarTrace, traceID[:])
	}
	if hasSpan {
		p.encoded = field.Append(p.encoded, exemplarSpanID, spanID[:])
	}
	if difference := u.now.Sub(sent).Abs(); sent.IsZero() || difference > exemplarAge {
		sent = u.now
	}
	p.encoded = field.AppendFixed64(p.encoded, exemplarTime, nanoseconds(sent))
	u.chooseTags()
}

// exemplarAttribute adds an attachment, unless it is too large, or its key is empty or there already.
func (u *Update) exemplarAttribute(key, value []byte) {
	p := &u.exemplar
	size := len(p.encoded) + field.TextAttributeSize(len(key), len(value)) + idFieldsBytes + 2*fixedFieldBytes
	if size > maxExemplar || len(key) == 0 || p.has(key) {
		u.s.counts.Lost[ExemplarAttribute]++
		return
	}
	p.keys = append(p.keys, key)
	p.encoded = field.AppendTextAttribute(p.encoded, exemplarAttribute, key, value)
	p.ends = append(p.ends, len(p.encoded))
}

func (p *exemplarParts) has(key []byte) bool {
	return slices.ContainsFunc(p.keys, func(k []byte) bool { return bytes.Equal(k, key) })
}

// chooseTags sets which tags exemplars can have beside the attachments.
func (u *Update) chooseTags() {
	p := &u.exemplar
	for i := range u.tags {
		t := &u.tags[i]
		if t.exemplar = len(t.key) > 0 && !p.has(t.key); !t.exemplar {
			u.s.counts.Lost[ExemplarAttribute]++
			continue
		}
		p.keys = append(p.keys, t.key)
	}
}

// isName reports whether the key of an attachment is one of these names, in any case.
func isName(key []byte, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return len(key) == len(name) && strings.EqualFold(string(key), name)
	})
}

// keepExemplar keeps the exemplar of a measurement instead of the one before, of the same bucket if
// there are buckets.
func (u *Update) keepExemplar(v *view, x *series, bucket int, n value) {
	s := u.s
	encoded := u.encodeExemplar(v, n)
	if x.exemplars == nil {
		x.exemplars = make([]*exemplar, max(len(x.buckets), 1))
	}
	e := x.exemplars[bucket]
	if e != nil && cap(e.encoded) < len(encoded) {
		s.clearExemplar(e)
		x.exemplars[bucket], e = nil, nil
	}
	if e == nil {
		if !s.memory.take(u.owner(), exemplarBytes+len(encoded)) {
			s.counts.Lost[ExemplarNoRoom]++
			return
		}
		e = &exemplar{encoded: make([]byte, 0, len(encoded)), user: u.owner()}
		x.exemplars[bucket] = e
	}
	e.encoded = append(e.encoded[:0], encoded...)
}

// encodeExemplar returns the exemplar of a measurement for a view: with the attachments and tags
// whose keys the view does not have. It is valid until the next call.
func (u *Update) encodeExemplar(v *view, n value) []byte {
	p := &u.exemplar
	b, from := p.whole[:0], 0
	for i, end := range p.ends {
		if v.hasKey(p.keys[i]) {
			u.s.counts.Lost[ExemplarAttribute]++
		} else {
			b = append(b, p.encoded[from:end]...)
		}
		from = end
	}
	b = append(b, p.encoded[from:]...)
	u.match(v, func(key int, t *tag) {
		switch {
		case key >= 0 || !t.exemplar:
		case len(b)+field.TextAttributeSize(len(t.key), len(t.value))+fixedFieldBytes > maxExemplar:
			u.s.counts.Lost[ExemplarAttribute]++
		default:
			b = field.AppendTextAttribute(b, exemplarAttribute, t.key, t.value)
		}
	})
	if n.kind == wire.Int {
		b = field.AppendFixed64(b, exemplarInt, uint64(n.int))
	} else {
		b = appendDouble(b, exemplarDouble, n.float)
	}
	p.whole = b
	return b
}

// hasKey reports whether a tag of the view has that key.
func (v *view) hasKey(key []byte) bool {
	_, has := slices.BinarySearchFunc(v.keys, key, func(k string, key []byte) int {
		switch { // without a copy of the key
		case k < string(key):
			return -1
		case k > string(key):
			return 1
		}
		return 0
	})
	return has
}

// clearExemplars removes the exemplars of a series.
func (s *State) clearExemplars(x *series) {
	for _, e := range x.exemplars {
		if e != nil {
			s.clearExemplar(e)
		}
	}
	x.exemplars = nil
}

func (s *State) clearExemplar(e *exemplar) { s.memory.give(e.user, exemplarBytes+cap(e.encoded)) }
