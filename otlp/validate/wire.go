package validate

import (
	"cmp"
	"errors"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// request is an encoded Export request.
type request []byte

// part is a part of a request: the bytes from from up to, not including, to. Requests are much smaller than
// 4 GiB, and hostile ones have many parts.
type part struct{ from, to uint32 }

func (p part) size() int { return int(p.to - p.from) }

func (r request) all() part { return part{0, uint32(len(r))} }

// bytes is the contents of a part.
func (r request) bytes(p part) []byte { return r[p.from:p.to] }

// tag says which field of a message it is, and how it is encoded: number << 3 | wire type. A field with
// another wire type than its own is an unknown one.
type tag uint64

// Wire types, see protobuf.dev/programming-guides/encoding.
const (
	wireVarint  = tag(protowire.VarintType)
	wireFixed64 = tag(protowire.Fixed64Type)
	wireBytes   = tag(protowire.BytesType)
	wireFixed32 = tag(protowire.Fixed32Type)
)

func (t tag) number() int { return int(t >> 3) }
func (t tag) wire() tag   { return t & 7 }

// field is one field of a message.
type field struct {
	tag   tag
	whole part   // tag included
	body  part   // of wireBytes: the contents
	value uint64 // of the others, as it is encoded
}

var errNumber = errors.New("field number is impossible")

// next reads the field that begins at p.from, of a message that ends at p.to.
func (r request) next(p part) (field, error) {
	number, wire, n := protowire.ConsumeTag(r.bytes(p))
	if n < 0 {
		return field{}, protowire.ParseError(n)
	}
	if number > protowire.MaxValidNumber {
		return field{}, errNumber
	}
	f := field{tag: tag(number)<<3 | tag(wire)}
	at := p.from + uint32(n)
	rest := r[at:p.to]
	switch wire {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(rest)
	case protowire.Fixed64Type:
		f.value, n = protowire.ConsumeFixed64(rest)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(rest)
		f.value = uint64(v)
	case protowire.BytesType:
		var body []byte
		body, n = protowire.ConsumeBytes(rest)
		end := at + uint32(n)
		f.body = part{end - uint32(len(body)), end}
	default:
		n = protowire.ConsumeFieldValue(number, wire, rest)
	}
	if n < 0 {
		return field{}, protowire.ParseError(n)
	}
	f.whole = part{p.from, at + uint32(n)}
	return f, nil
}

// fields is the fields of a message, up to the first that is broken: none is once decode has seen it.
func (r request) fields(p part) iter.Seq[field] {
	return func(yield func(field) bool) {
		for p.from < p.to {
			f, err := r.next(p)
			if err != nil || !yield(f) {
				return
			}
			p.from = f.whole.to
		}
	}
}

// varints is the values of a repeated field of varints: of one, or of several that are packed.
func (r request) varints(f field) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if f.tag.wire() == wireVarint {
			yield(f.value)
			return
		}
		for b := r.bytes(f.body); len(b) > 0; {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 || !yield(v) {
				return
			}
			b = b[n:]
		}
	}
}

// fixed64s is the same for a repeated field of 64 bits.
func (r request) fixed64s(f field) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if f.tag.wire() == wireFixed64 {
			yield(f.value)
			return
		}
		for b := r.bytes(f.body); len(b) > 0; {
			v, n := protowire.ConsumeFixed64(b)
			if n < 0 || !yield(v) {
				return
			}
			b = b[n:]
		}
	}
}

// level is where a field lies that is taken out. Two that touch and are on the same level belong to the same
// message: between those of two messages there is at least the beginning of the second.
type level uint8

const (
	onInside level = iota // of an item, or of a resource or scope
	onResource
	onScope
	onItem
	onPoint
)

// cut is a field that is taken out, or a run of them in one message.
type cut struct {
	part
	level level
}

// without is the request less its cuts, the lengths around them made right. The cuts are in any order; one
// may lie in another, and begins later then. It changes them. The result has no spare capacity to speak of.
func (r request) without(cuts []cut) request {
	slices.SortFunc(cuts, func(a, b cut) int { return cmp.Compare(a.from, b.from) })
	outer := cuts[:0]
	left := len(r)
	for _, c := range cuts {
		if len(outer) == 0 || c.from >= outer[len(outer)-1].to {
			outer = append(outer, c)
			left -= c.size()
		}
	}
	w := writer{in: r, cuts: outer, out: make(request, 0, left)}
	w.message(r.all())
	return w.out
}

// writer copies a request without the cuts, which are in order and apart.
type writer struct {
	in, out request
	cuts    []cut
}

func (w *writer) message(p part) {
	pending := p.from // what was not copied yet begins here
	for at := p.from; len(w.cuts) > 0 && w.cuts[0].from < p.to; {
		cut := w.cuts[0]
		if cut.from == at {
			w.out = append(w.out, w.in[pending:at]...)
			at, pending = cut.to, cut.to
			w.cuts = w.cuts[1:]
			continue
		}
		f, err := w.in.next(part{at, p.to})
		if err != nil {
			break // not in a request that was decoded
		}
		if at = f.whole.to; cut.from < at {
			w.out = append(w.out, w.in[pending:f.whole.from]...)
			pending = at
			w.nested(f)
		}
	}
	w.out = append(w.out, w.in[pending:p.to]...)
}

// nested copies a field that is a message with cuts in it. Its length is known afterwards: room is left for
// the old one, and closed if the new one takes less.
func (w *writer) nested(f field) {
	w.out = protowire.AppendVarint(w.out, uint64(f.tag))
	prefix := len(w.out)
	room := protowire.SizeVarint(uint64(f.body.size()))
	w.out = append(w.out, make([]byte, room)...)
	body := len(w.out)
	w.message(f.body)
	length := uint64(len(w.out) - body)
	if n := protowire.SizeVarint(length); n < room {
		copy(w.out[prefix+n:], w.out[body:])
		w.out = w.out[:len(w.out)-(room-n)]
	}
	protowire.AppendVarint(w.out[:prefix], length) // there is room for it
}
