package dynamic

import (
	"fmt"

	"correlator/dots/cbor"
	"correlator/dots/schema"
)

// Major types of CBOR.
const (
	majorUint  = 0
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
)

// Canonicalize appends an instance in its canonical form. What Scan refuses is an error, and so is
// data after the instance.
func Canonicalize(dst []byte, s *schema.Struct, instance []byte) ([]byte, error) {
	var l Layout
	n, err := Scan(s, instance, &l)
	if err != nil {
		return dst, err
	}
	if n != len(instance) {
		return dst, fmt.Errorf("%s: %d bytes: %w", s.Name, len(instance)-n, ErrExcess)
	}
	if l.Canonical {
		return append(dst, instance...), nil
	}
	r := cbor.NewReader(instance)
	result := appendObject(dst, s, &r)
	if err := r.Err(); err != nil {
		return dst, fmt.Errorf("decoding an instance of %s: %w", s.Name, err)
	}
	return result, nil
}

// appendObject appends the map that r reads next, which was checked, in canonical form.
func appendObject(dst []byte, s *schema.Struct, r *cbor.Reader) []byte {
	var values [32][]byte
	n := 0
	for left := r.Map(); left > 0 && r.Err() == nil; left-- {
		tag, v := r.Uint(64), r.Value()
		if p := byTag(s, tag); p != nil {
			if values[tag] == nil {
				n++
			}
			values[tag] = v
		}
	}
	dst = cbor.AppendMap(dst, n)
	for i := range s.Properties {
		p := &s.Properties[i]
		if v := values[p.Tag&31]; v != nil {
			inner := cbor.NewReader(v)
			dst = appendValue(cbor.AppendUint(dst, uint64(p.Tag)), p.Type, &inner)
			if err := inner.Err(); err != nil {
				r.Fail(err)
			}
		}
	}
	return dst
}

// appendValue appends the value of a type that r reads next in canonical form.
func appendValue(dst []byte, t *schema.Type, r *cbor.Reader) []byte {
	switch t.Kind {
	case schema.StructKind:
		return appendObject(dst, t.Struct, r)
	case schema.Vector:
		n := r.Array()
		dst = cbor.AppendArray(dst, n)
		for range n {
			dst = appendValue(dst, t.Elem, r)
		}
		return dst
	case schema.Any:
		dst = cbor.AppendArray(dst, r.Array())
		dst = cbor.AppendText(dst, r.Text())
		return cbor.AppendBytes(dst, r.Bytes())
	case schema.Bool:
		return cbor.AppendBool(dst, r.Bool())
	case schema.Float32:
		return cbor.AppendFloat32(dst, r.Float32())
	case schema.Float64, schema.Timepoint, schema.SteadyTimepoint, schema.Duration:
		return cbor.AppendFloat64(dst, r.Float64())
	case schema.String:
		return cbor.AppendText(dst, r.Text())
	case schema.UUID:
		return cbor.AppendUUID(dst, r.Bytes16())
	}
	bits, signed := width(t.Kind)
	if signed {
		return cbor.AppendInt(dst, r.Int(bits))
	}
	return cbor.AppendUint(dst, r.Uint(bits))
}
