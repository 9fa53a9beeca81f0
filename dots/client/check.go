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

const (
	checkedKinds = schema.Kinds(1<<schema.String | 1<<schema.EnumKind | 1<<schema.Any)
	floatKinds   = schema.Kinds(1<<schema.Float32 | 1<<schema.Float64 |
		1<<schema.Timepoint | 1<<schema.SteadyTimepoint | 1<<schema.Duration)
)

func checksOf(s *schema.Struct) checks {
	var c checks
	for i := range s.Properties {
		p := &s.Properties[i]
		kinds := p.Type.Kinds()
		c.values = c.values || kinds&checkedKinds != 0
		c.keys = c.keys || p.Key && kinds&floatKinds != 0
	}
	return c
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
