package dynamic

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// Object is an instance of a type that is known at run time. Its values are
//
//	type                        Go
//	bool                        bool
//	int8 to int64               int64
//	uint8 to uint64             uint64
//	enum                        uint32, the tag
//	float32, float64, string    the same
//	uuid, timepoint, steady_timepoint, duration, property_set, any
//	                            value.UUID, value.Timepoint, ...
//	struct                      *Object
//	vector                      []any
type Object struct {
	Type   *schema.Struct
	fields []field // those that are set; a peer's vector of empty objects must not take much memory
}

type field struct {
	tag   uint32
	value any
}

// ErrNoProperty is returned for a property that the type does not have.
var ErrNoProperty = errors.New("no such property")

// New returns an Object without any property.
func New(s *schema.Struct) *Object { return &Object{Type: s} }

// Decode decodes the instance of a type that data begins with, and returns its length. The Object
// keeps no part of data.
func Decode(s *schema.Struct, data []byte) (o *Object, n int, err error) {
	var l Layout
	if n, err = Scan(s, data, &l); err != nil {
		return nil, 0, err
	}
	r := cbor.NewReader(data[:n])
	o = decodeObject(s, &r)
	if err := r.Err(); err != nil {
		return nil, 0, fmt.Errorf("decoding an instance of %s: %w", s.Name, err)
	}
	return o, n, nil
}

// Valid returns the properties that are set.
func (o *Object) Valid() value.PropertySet {
	var set value.PropertySet
	for _, f := range o.fields {
		set |= 1 << f.tag
	}
	return set
}

// Get returns the value of the property with a tag, nil if it is unset.
func (o *Object) Get(tag uint32) any {
	for _, f := range o.fields {
		if f.tag == tag {
			return f.value
		}
	}
	return nil
}

// ByName returns the value of the property with a name, nil if it is unset.
func (o *Object) ByName(name string) any {
	if p := o.Type.ByName(name); p != nil {
		return o.Get(p.Tag)
	}
	return nil
}

// Set sets the property with a tag to a value of its type; nil unsets it. The Object keeps vectors
// and Objects as they are, they are not copied.
func (o *Object) Set(tag uint32, v any) error {
	p := o.Type.ByTag(tag)
	if p == nil {
		return fmt.Errorf("%s: tag %d: %w", o.Type.Name, tag, ErrNoProperty)
	}
	if v != nil {
		if err := check(p.Type, v); err != nil {
			return fmt.Errorf("property %s of %s: %w", p.Name, o.Type.Name, err)
		}
	}
	o.put(tag, v)
	return nil
}

func (o *Object) put(tag uint32, v any) {
	for i := range o.fields {
		if o.fields[i].tag != tag {
			continue
		}
		if v == nil {
			o.fields = slices.Delete(o.fields, i, i+1)
		} else {
			o.fields[i].value = v
		}
		return
	}
	if v != nil {
		o.fields = append(o.fields, field{tag: tag, value: v})
	}
}

// SetByName sets the property with a name, as Set does.
func (o *Object) SetByName(name string, v any) error {
	p := o.Type.ByName(name)
	if p == nil {
		return fmt.Errorf("%s: %q: %w", o.Type.Name, name, ErrNoProperty)
	}
	return o.Set(p.Tag, v)
}

// Append appends the properties of an Object that are set and in a set, in canonical form. Structs
// and vectors within it must not have been given other content than Set would take.
func (o *Object) Append(dst []byte, props value.PropertySet) []byte {
	props &= o.Valid()
	dst = cbor.AppendMap(dst, props.Len())
	for i := range o.Type.Properties {
		p := &o.Type.Properties[i]
		if props.Has(p.Tag) {
			dst = appendAny(cbor.AppendUint(dst, uint64(p.Tag)), o.Get(p.Tag))
		}
	}
	return dst
}

func appendAny(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return cbor.AppendBool(dst, v)
	case int64:
		return cbor.AppendInt(dst, v)
	case uint64:
		return cbor.AppendUint(dst, v)
	case uint32:
		return cbor.AppendUint(dst, uint64(v))
	case value.PropertySet:
		return cbor.AppendUint(dst, uint64(v))
	case float32:
		return cbor.AppendFloat32(dst, v)
	case float64:
		return cbor.AppendFloat64(dst, v)
	case value.Timepoint:
		return cbor.AppendFloat64(dst, float64(v))
	case value.SteadyTimepoint:
		return cbor.AppendFloat64(dst, float64(v))
	case value.Duration:
		return cbor.AppendFloat64(dst, float64(v))
	case string:
		return cbor.AppendString(dst, v)
	case value.UUID:
		return cbor.AppendUUID(dst, v)
	case *Object:
		return v.Append(dst, math.MaxUint32)
	case []any:
		dst = cbor.AppendArray(dst, len(v))
		for _, elem := range v {
			dst = appendAny(dst, elem)
		}
		return dst
	case value.Any:
		return cbor.AppendAny(dst, v)
	}
	return dst
}

// check reports whether a value has the Go type of a type and fits.
func check(t *schema.Type, v any) error {
	ok := false
	switch v := v.(type) {
	case bool:
		ok = t.Kind == schema.Bool
	case int64:
		bits, signed := width(t.Kind)
		ok = signed && v<<(64-bits)>>(64-bits) == v
	case uint64:
		bits, signed := width(t.Kind)
		ok = bits != 0 && !signed && v>>(bits-1)>>1 == 0 && isUint(t.Kind)
	case uint32:
		ok = t.Kind == schema.EnumKind && t.Enum.Has(v)
	case value.PropertySet:
		ok = t.Kind == schema.PropertySet
	case float32:
		ok = t.Kind == schema.Float32
	case float64:
		ok = t.Kind == schema.Float64
	case value.Timepoint:
		ok = t.Kind == schema.Timepoint
	case value.SteadyTimepoint:
		ok = t.Kind == schema.SteadyTimepoint
	case value.Duration:
		ok = t.Kind == schema.Duration
	case string:
		ok = t.Kind == schema.String && utf8.ValidString(v)
	case value.UUID:
		ok = t.Kind == schema.UUID
	case value.Any:
		ok = t.Kind == schema.Any && utf8.ValidString(v.TypeName)
	case *Object:
		return checkObject(t, v)
	case []any:
		return checkVector(t, v)
	}
	if !ok {
		return fmt.Errorf("%T %v is no %s: %w", v, v, t.Name, cbor.ErrRange)
	}
	return nil
}

func isUint(k schema.Kind) bool { return k >= schema.Uint8 && k <= schema.Uint64 }

func checkObject(t *schema.Type, o *Object) error {
	if t.Kind != schema.StructKind || o == nil || o.Type != t.Struct {
		return fmt.Errorf("an object is no %s: %w", t.Name, cbor.ErrType)
	}
	return nil
}

func checkVector(t *schema.Type, v []any) error {
	if t.Kind != schema.Vector {
		return fmt.Errorf("a vector is no %s: %w", t.Name, cbor.ErrType)
	}
	for i, elem := range v {
		if err := check(t.Elem, elem); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// decodeObject decodes what was checked.
func decodeObject(s *schema.Struct, r *cbor.Reader) *Object {
	o := New(s)
	n := r.Map()
	o.fields = make([]field, 0, min(n, len(s.Properties)))
	for ; n > 0 && r.Err() == nil; n-- {
		if p := byTag(s, r.Uint(64)); p != nil {
			o.put(p.Tag, decodeValue(p.Type, r))
		} else {
			r.Skip()
		}
	}
	return o
}

func decodeValue(t *schema.Type, r *cbor.Reader) any {
	switch t.Kind {
	case schema.Bool:
		return r.Bool()
	case schema.Float32:
		return r.Float32()
	case schema.Float64:
		return r.Float64()
	case schema.Timepoint:
		return value.Timepoint(r.Float64())
	case schema.SteadyTimepoint:
		return value.SteadyTimepoint(r.Float64())
	case schema.Duration:
		return value.Duration(r.Float64())
	case schema.String:
		return r.String()
	case schema.UUID:
		return r.Bytes16()
	case schema.PropertySet:
		return value.PropertySet(r.Uint(32))
	case schema.EnumKind:
		return uint32(r.Uint(32))
	case schema.StructKind:
		return decodeObject(t.Struct, r)
	case schema.Any:
		return r.Any()
	case schema.Vector:
		elems := make([]any, r.Array())
		for i := range elems {
			elems[i] = decodeValue(t.Elem, r)
		}
		return elems
	}
	bits, signed := width(t.Kind)
	if signed {
		return r.Int(bits)
	}
	return r.Uint(bits)
}
