package dynamic

import (
	"encoding/binary"
	"math"

	"correlator/dots/cbor"
	"correlator/dots/schema"
)

// AppendKey appends the key of an instance such that bytes.Compare of two keys is the order of the
// objects: the key properties in the order of declaration, each as
//
//	type                  bytes
//	integers              fixed size, big-endian; signed ones with the sign bit inverted
//	enum, property_set    4 bytes, big-endian
//	bool                  1 byte
//	floats, times         8 bytes, big-endian; positive ones with the sign bit inverted, negative
//	                      ones with all bits inverted; -0 as 0, all that are not numbers alike
//	uuid                  16 bytes
//	string                bytes, 00 as 00 FF, then 00 00
//	struct                each property as 00 if it is unset, else 01 and its value
//	vector                01 and a value for each element, then 00
//
// l is the layout that Scan made of the instance, which must have all key properties.
func AppendKey(dst []byte, s *schema.Struct, instance []byte, l *Layout) []byte {
	keys := s.Keys() & l.Set
	for i := range s.Properties {
		if keys == 0 {
			break
		}
		if p := &s.Properties[i]; keys.Has(p.Tag) {
			keys &^= 1 << p.Tag
			r := cbor.NewReader(l.Value(instance, p.Tag))
			dst = appendKeyValue(dst, p.Type, &r)
		}
	}
	return dst
}

func appendKeyValue(dst []byte, t *schema.Type, r *cbor.Reader) []byte {
	switch t.Kind {
	case schema.StructKind:
		return appendKeyStruct(dst, t.Struct, r)
	case schema.Vector:
		for range r.Array() {
			dst = appendKeyValue(append(dst, 1), t.Elem, r)
		}
		return append(dst, 0)
	case schema.Any: // no type has such keys
		return append(dst, r.Value()...)
	case schema.Bool:
		if r.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case schema.Float32:
		return binary.BigEndian.AppendUint64(dst, sortable(float64(r.Float32())))
	case schema.Float64, schema.Timepoint, schema.SteadyTimepoint, schema.Duration:
		return binary.BigEndian.AppendUint64(dst, sortable(r.Float64()))
	case schema.String:
		return appendKeyText(dst, r.Text())
	case schema.UUID:
		u := r.Bytes16()
		return append(dst, u[:]...)
	}
	bits, signed := width(t.Kind)
	if !signed {
		return appendFixed(dst, r.Uint(bits), bits)
	}
	return appendFixed(dst, uint64(r.Int(bits))^1<<(bits-1), bits)
}

// appendFixed appends the lowest bits of a number, big-endian.
func appendFixed(dst []byte, v uint64, bits uint) []byte {
	for bits > 0 {
		bits -= 8
		dst = append(dst, byte(v>>bits))
	}
	return dst
}

// sortable returns bits of a float whose order is that of the floats.
func sortable(f float64) uint64 {
	switch {
	case f != f:
		return math.MaxUint64
	case f == 0:
		return 1 << 63
	}
	if bits := math.Float64bits(f); bits>>63 == 0 {
		return bits | 1<<63
	}
	return ^math.Float64bits(f)
}

func appendKeyText(dst, text []byte) []byte {
	for _, c := range text {
		if dst = append(dst, c); c == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 0)
}

func appendKeyStruct(dst []byte, s *schema.Struct, r *cbor.Reader) []byte {
	var values [32][]byte
	for left := r.Map(); left > 0 && r.Err() == nil; left-- {
		tag, v := r.Uint(64), r.Value()
		if byTag(s, tag) != nil {
			values[tag] = v
		}
	}
	for i := range s.Properties {
		p := &s.Properties[i]
		v := values[p.Tag&31]
		if v == nil {
			dst = append(dst, 0)
			continue
		}
		inner := cbor.NewReader(v)
		dst = appendKeyValue(append(dst, 1), p.Type, &inner)
	}
	return dst
}
