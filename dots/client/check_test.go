package client

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/schema"
)

// TestChecksOfNested: a type can have exponentially many nested properties, and may be a peer's.
// Looking at each of them would not end.
func TestChecksOfNested(t *testing.T) {
	for _, c := range []struct {
		leaf schema.Kind
		want checks
	}{
		{schema.Bool, checks{}},
		{schema.String, checks{values: true}},
		{schema.Float64, checks{keys: true}},
	} {
		nested := schema.Builtin(c.leaf)
		for depth := range schema.MaxDepth {
			properties := make([]schema.Property, schema.MaxTag)
			for i := range properties {
				properties[i] = schema.Property{Name: fmt.Sprint("p", i), Tag: uint32(i + 1), Type: nested, Key: i == 0}
			}
			nested = schema.OfStruct(schema.MustStruct(fmt.Sprint("S", depth), schema.Flags{}, properties...))
		}
		got := checksOf(nested.Struct)
		assert.Check(t, got == c.want, "%s: %+v", nested.Name, got)
	}
}

// TestChecksOf: what is no key may have floats, and vectors have what their elements have.
func TestChecksOf(t *testing.T) {
	color := schema.OfEnum(schema.MustEnum("Color", schema.Element{Name: "red", Tag: 1}))
	part := func(typ *schema.Type) *schema.Type {
		return schema.OfStruct(schema.MustStruct("Part", schema.Flags{}, schema.Property{Name: "a", Tag: 1, Type: typ}))
	}
	for _, c := range []struct {
		typ     *schema.Type
		asValue checks
		asKey   checks
	}{
		{schema.Builtin(schema.Uint32), checks{}, checks{}},
		{schema.MustVector(part(schema.Builtin(schema.Uint32))), checks{}, checks{}},
		{schema.MustVector(part(color)), checks{values: true}, checks{values: true}},
		{part(schema.MustVector(schema.Builtin(schema.String))), checks{values: true}, checks{values: true}},
		{schema.Builtin(schema.Timepoint), checks{}, checks{keys: true}},
		{part(schema.MustVector(schema.Builtin(schema.Float32))), checks{}, checks{keys: true}},
	} {
		for _, key := range []bool{false, true} {
			s := schema.MustStruct("S", schema.Flags{}, schema.Property{Name: "a", Tag: 1, Type: c.typ, Key: key})
			want := c.asValue
			if key {
				want = c.asKey
			}
			if got := checksOf(s); got != want {
				t.Errorf("%s, key %v: %+v", c.typ.Name, key, got)
			}
		}
	}
}
