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

// part is the range [from, to) of the bytes of a request. Its offsets have 32 bits, since hostile
// requests have many parts; requests are much smaller than 4 GiB.
type part struct{ from, to uint32 }

func (p part) size() int { return int(p.to - p.from) }

func (r request) all() part { return part{0, uint32(len(r))} }

// bytes returns the contents of a part.
func (r request) bytes(p part) []byte { return r[p.from:p.to] }

// tag is the number and the wire type of a field: number << 3 | wire type. A field with another
// wire type than the schema's is unknown.
type tag uint64

// Wire types, see protobuf.dev/programming-guides/encoding.
const (
	wireVarint  = tag(protowire.VarintType)
	wireFixed64 = tag(protowire.Fixed64Type)
	wireBytes   = tag(protowire.BytesType)
	wireGroup   = tag(protowire.StartGroupType)
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

// fields iterates over the fields of a message, up to the first malformed one. decode leaves none.
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

// varints iterates over the values of a repeated field of varints, packed or not.
func (r request) varints(f field) iter.Seq[uint64] {
	return r.values(f, wireVarint, protowire.ConsumeVarint)
}

// fixed64s iterates over the values of a repeated field of 64 bits, packed or not.
func (r request) fixed64s(f field) iter.Seq[uint64] {
	return r.values(f, wireFixed64, protowire.ConsumeFixed64)
}

func (r request) values(f field, unpacked tag, consume func([]byte) (uint64, int)) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if f.tag.wire() == unpacked {
			yield(f.value)
			return
		}
		for b := r.bytes(f.body); len(b) > 0; {
			v, n := consume(b)
			if n < 0 || !yield(v) {
				return
			}
			b = b[n:]
		}
	}
}

// level is where a removed field lies. Two adjacent ones of the same level belong to the same
// message: between those of two messages there is at least the tag of the second.
type level uint8

const (
	onInside level = iota // of an item, or of a resource or scope
	onResource
	onScope
	onItem
	onPoint
)

// removedRange is a field that is removed, or several adjacent ones of one message.
type removedRange struct {
	part
	level level
}

// without returns a copy of the request without the removed ranges, with the lengths of the
// messages around them adjusted. The ranges may be in any order; one within another begins after
// it. without reorders them. The copy has next to no spare capacity.
func (r request) without(removed []removedRange) request {
	slices.SortFunc(removed, func(a, b removedRange) int { return cmp.Compare(a.from, b.from) })
	outer := removed[:0]
	left := len(r)
	for _, c := range removed {
		if len(outer) == 0 || c.from >= outer[len(outer)-1].to {
			outer = append(outer, c)
			left -= c.size()
		}
	}
	w := writer{in: r, removed: outer, out: make(request, 0, left)}
	w.message(r.all())
	return w.out
}

// writer copies a request without the removed ranges, which are sorted and do not overlap.
type writer struct {
	in, out request
	removed []removedRange
}

func (w *writer) message(p part) {
	pending := p.from // where what has not been copied begins
	for at := p.from; len(w.removed) > 0 && w.removed[0].from < p.to; {
		next := w.removed[0]
		if next.from == at {
			w.out = append(w.out, w.in[pending:at]...)
			at, pending = next.to, next.to
			w.removed = w.removed[1:]
			continue
		}
		f, err := w.in.next(part{at, p.to})
		if err != nil {
			break // not in a request that can be decoded
		}
		if at = f.whole.to; next.from < at {
			w.out = append(w.out, w.in[pending:f.whole.from]...)
			pending = at
			w.nested(f)
		}
	}
	w.out = append(w.out, w.in[pending:p.to]...)
}

// nested copies a field that is a message with removed ranges in it. Its length is known
// afterwards, so space is left for the old one, and closed if the new one is shorter.
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
	protowire.AppendVarint(w.out[:prefix], length) // there is space for it
}
