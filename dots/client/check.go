package client

import (
	"fmt"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// checks says what may be wrong with instances that code has encoded. Most of what Go's types allow
// is right always; what is wrong would cost the connection.
type checks struct {
	values bool // some values of the type are no values of DOTS
	keys   bool // some keys have floats, which may be NaN
}

func checksOf(s *schema.Struct) checks {
	var c checks
	for i := range s.Properties {
		p := &s.Properties[i]
		c.values = c.values || has(p.Type, func(k schema.Kind) bool {
			return k == schema.String || k == schema.EnumKind || k == schema.Any
		})
		c.keys = c.keys || p.Key && has(p.Type, isFloat)
	}
	return c
}

func isFloat(k schema.Kind) bool {
	switch k {
	case schema.Float32, schema.Float64, schema.Timepoint, schema.SteadyTimepoint, schema.Duration:
		return true
	}
	return false
}

// has reports whether a type, or one in it, is of a kind.
func has(t *schema.Type, of func(schema.Kind) bool) bool {
	switch t.Kind {
	case schema.Vector:
		return has(t.Elem, of)
	case schema.StructKind:
		for i := range t.Struct.Properties {
			if has(t.Struct.Properties[i].Type, of) {
				return true
			}
		}
		return false
	}
	return of(t.Kind)
}

// check returns what is wrong with an encoded instance of a type.
func (c *checks) check(s *schema.Struct, instance []byte, layout *dynamic.Layout) error {
	if !c.values && !c.keys {
		return nil
	}
	if _, err := dynamic.Scan(s, instance, layout); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if !c.keys {
		return nil
	}
	o, _, err := dynamic.Decode(s, instance)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for i := range s.Properties {
		if p := &s.Properties[i]; p.Key && hasNaN(o.Get(p.Tag)) {
			return fmt.Errorf("%w: key property %s of %s is not a number", ErrInvalid, p.Name, s.Name)
		}
	}
	return nil
}

// hasNaN reports whether a value of a dynamic.Object has a float that is not a number.
func hasNaN(v any) bool {
	switch v := v.(type) {
	case float32:
		return v != v
	case float64:
		return v != v
	case value.Timepoint:
		return v != v
	case value.SteadyTimepoint:
		return v != v
	case value.Duration:
		return v != v
	case *dynamic.Object:
		for i := range v.Type.Properties {
			if hasNaN(v.Get(v.Type.Properties[i].Tag)) {
				return true
			}
		}
	}
	return false
}
