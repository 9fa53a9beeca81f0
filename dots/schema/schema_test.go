package schema

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
)

var (
	color = MustEnum("DemoColor", Element{Name: "red", Tag: 1}, Element{Name: "blue", Tag: 5, Value: 4},
		Element{Name: "high", Tag: 1000, Value: 999})
	part   = MustStruct("DemoPart", Flags{Cached: true, SubstructOnly: true}, property("flag", 1, Builtin(Bool)))
	gadget = MustStruct("DemoGadget", Flags{Cached: true},
		Property{Name: "id", Tag: 3, Key: true, Type: Builtin(Uint32)},
		property("parts", 1, MustVector(OfStruct(part))),
		property("color", 31, OfEnum(color)),
		property("colors", 2, MustVector(OfEnum(color))))
)

func property(name string, tag uint32, t *Type) Property {
	return Property{Name: name, Tag: tag, Type: t}
}

func TestStruct(t *testing.T) {
	if gadget.Keys() != 1<<3 || gadget.All() != 1<<31|0b1110 {
		t.Errorf("keys %#x of %#x", gadget.Keys(), gadget.All())
	}
	p := gadget.ByTag(31)
	assert.Check(t, p != nil && p.Name == "color" && gadget.ByName("color") == p, "property 31 is %+v", p)
	for _, tag := range []uint32{0, 4, 32, 1 << 31} {
		p := gadget.ByTag(tag)
		assert.Check(t, p == nil, "property %d is %+v", tag, p)
	}
	p = gadget.ByName("x")
	assert.Check(t, p == nil, "property x is %+v", p)
}

func TestFlags(t *testing.T) {
	var f Flags
	for i, name := range flagNames {
		*f.ByName(name) = true
		assert.DeepEqual(t, f.Names(), flagNames[:i+1])
	}
	assert.Check(t, f == Flags{true, true, true, true, true, true} && f.ByName("key") == nil, "%+v", f)
}

func TestEnum(t *testing.T) {
	for tag, name := range map[uint32]string{0: "", 1: "red", 2: "", 5: "blue", 64: "", 1000: "high", 1001: ""} {
		e := color.ByTag(tag)
		assert.Check(t, color.Has(tag) == (name != "") && (e != nil) == (name != "") && (e == nil || e.Name == name),
			"enumerator %d is %+v, not %q", tag, e, name)
	}
}

func TestInvalidStructs(t *testing.T) {
	one := property("a", 1, Builtin(Bool))
	many := make([]Property, 1e5)
	for i := range many {
		many[i] = property(fmt.Sprint("p", i), uint32(i), Builtin(Bool))
	}
	tests := []struct {
		name, typeName string
		properties     []Property
	}{
		{"no property", "A", nil},
		{"100,000 properties", "A", many},
		{"tag 0", "A", []Property{property("a", 0, Builtin(Bool))}},
		{"tag 32", "A", []Property{property("a", 32, Builtin(Bool))}},
		{"highest tag", "A", []Property{property("a", 1<<32-1, Builtin(Bool))}},
		{"tag twice", "A", []Property{one, property("b", 1, Builtin(Bool))}},
		{"name twice", "A", []Property{one, property("a", 2, Builtin(Bool))}},
		{"no name", "", []Property{one}},
		{"no name of a property", "A", []Property{property("", 1, Builtin(Bool))}},
		{"space", "A b", []Property{one}},
		{"digit first", "1A", []Property{one}},
		{"not ASCII", "Ä", []Property{one}},
		{"name of a built-in type", "uint32", []Property{one}},
		{"vector", "vector", []Property{one}},
		{"huge name", strings.Repeat("A", 256), []Property{one}},
		{"huge name of a property", "A", []Property{property(strings.Repeat("A", 1<<20), 1, Builtin(Bool))}},
		{"no type", "A", []Property{property("a", 1, nil)}},
		{"key of any type", "A", []Property{{Name: "a", Tag: 1, Key: true, Type: Builtin(Any)}}},
		{"key of vectors of any type", "A", []Property{{Name: "a", Tag: 1, Key: true, Type: MustVector(Builtin(Any))}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := NewStruct(test.typeName, Flags{}, test.properties, "")
			assert.Assert(t, s == nil && errors.Is(err, ErrInvalid), "%v, error %v", s, err)
			assert.Check(t, len(err.Error()) <= 700, "a message of %d bytes", len(err.Error()))
		})
	}
	_, err := NewStruct(strings.Repeat("A", 255), Flags{}, []Property{one}, "")
	assert.Check(t, err)
}

func TestInvalidEnums(t *testing.T) {
	tests := []struct {
		name, enum string
		elements   []Element
	}{
		{"no enumerator", "A", nil},
		{"tag twice", "A", []Element{{Name: "a", Tag: 7}, {Name: "b", Tag: 1}, {Name: "c", Tag: 7}}},
		{"name twice", "A", []Element{{Name: "a", Tag: 1}, {Name: "a", Tag: 2}}},
		{"no name", "", []Element{{Name: "a", Tag: 1}}},
		{"no name of an enumerator", "A", []Element{{Tag: 1}}},
		{"built-in type", "string", []Element{{Name: "a", Tag: 1}}},
		{"too many enumerators", "A", make([]Element, MaxElements+1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, err := NewEnum(test.enum, test.elements, "")
			assert.Check(t, e == nil && errors.Is(err, ErrInvalid), "%v, error %v", e, err)
		})
	}
}

func TestDepthIsBounded(t *testing.T) {
	nested := Builtin(Bool)
	for depth := 1; depth <= MaxDepth+1; depth++ {
		s, err := NewStruct(fmt.Sprint("S", depth), Flags{}, []Property{property("a", 1, nested)}, "")
		ok := depth <= MaxDepth
		assert.Assert(t, ok == (err == nil), "depth %d: error %v", depth, err)
		if err == nil {
			nested = MustVector(OfStruct(s))
		}
	}
}

func TestResolveType(t *testing.T) {
	r := NewRegistry()
	_, err := r.AddStruct(gadget)
	assert.NilError(t, err)
	for _, name := range []string{"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
		"float32", "float64", "string", "uuid", "timepoint", "steady_timepoint", "duration", "property_set", "any",
		"DemoColor", "DemoPart", "DemoGadget", "vector<uint8>", "vector<DemoColor>", "vector<DemoGadget>",
		"vector<any>"} {
		got, err := r.ResolveType(name)
		assert.Check(t, err == nil && got.Name == name, "%s: %v, error %v", name, got, err)
	}
	for name, want := range map[string]error{
		"":                             ErrMissing,
		"NoType":                       ErrMissing,
		"float16":                      ErrMissing,
		"bytes":                        ErrMissing,
		"time_point":                   ErrMissing,
		"vector":                       ErrMissing,
		"vector<>":                     ErrMissing,
		"vector<NoType>":               ErrMissing,
		"vector<string":                ErrMissing,
		"vector<string>>":              ErrMissing,
		" string":                      ErrMissing,
		"vector<vector<string>>":       ErrInvalid,
		strings.Repeat("vector<", 1e5): ErrInvalid,
		strings.Repeat("A", 1<<20):     ErrInvalid,
	} {
		got, err := r.ResolveType(name)
		assert.Check(t, got == nil && errors.Is(err, want), "%.50s: %v, error %v", name, got, err)
	}
	for name, want := range map[string]string{ // the name may be meant for a terminal
		"NoType": `NoType`, "No\x1b[2J": `"No\x1b[2J"`, "No\u202e": `"No\u202e"`, "No\xff": `"No\xff"`, "No\n": `"No\n"`,
	} {
		_, err := r.ResolveType(name)
		assert.Check(t, err.Error() == "missing type dependency: "+want, err)
	}
}

func TestFirstOfANameStays(t *testing.T) {
	r := NewRegistry()
	got, err := r.AddStruct(gadget)
	assert.Assert(t, got == gadget && err == nil, "%v %v", got, err)
	same := MustStruct("DemoGadget", gadget.Flags, gadget.Properties...)
	got, err = r.AddStruct(same)
	assert.Check(t, got == gadget && err == nil, "the same again: %v, error %v", got, err)
	other := MustStruct("DemoGadget", gadget.Flags, gadget.Properties[:2]...)
	got, err = r.AddStruct(other)
	assert.Check(t, got == gadget && errors.Is(err, ErrConflict), "another one: %v, error %v", got, err)
	enum := MustEnum("DemoGadget", Element{Name: "a", Tag: 1})
	if got, err := r.AddEnum(enum); got != nil || !errors.Is(err, ErrConflict) {
		t.Errorf("an enum: %v, error %v", got, err)
	}
	values := MustEnum("DemoColor", Element{Name: "red", Tag: 1, Value: 100}, color.Elements[1], color.Elements[2])
	if got, err := r.AddEnum(values); got != color || err != nil {
		t.Errorf("other values: %v, error %v", got, err)
	}
	otherColor := MustEnum("DemoColor", Element{Name: "green", Tag: 1})
	user := MustStruct("User", Flags{}, property("color", 1, OfEnum(otherColor)))
	if got, err := r.AddStruct(user); got != nil || !errors.Is(err, ErrConflict) || r.Struct("User") != nil {
		t.Errorf("another dependency: %v, error %v", got, err)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	small := func(i int) *Struct { return MustStruct(fmt.Sprint("S", i), Flags{}, property("a", 1, Builtin(Bool))) }
	for name, limit := range map[string]func(r *Registry){
		"types": func(r *Registry) { r.Limit(3, 1<<30) },
		"bytes": func(r *Registry) { r.Limit(1000, 3*size(OfStruct(small(0)))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistry()
			limit(r)
			for i := range 5 {
				if _, err := r.AddStruct(small(i)); (err == nil) != (i < 3) || err != nil && !errors.Is(err, ErrFull) {
					t.Errorf("struct %d: error %v", i, err)
				}
			}
			n := len(r.Types())
			assert.Check(t, n == 3, "%d types", n)
		})
	}
}

func TestRegistryConcurrently(t *testing.T) {
	r := NewRegistry()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				got, err := r.AddStruct(gadget)
				assert.Check(t, got == gadget && err == nil, "%v %v", got, err)
				assert.Check(t, r.Struct("DemoPart") == part && r.StructBytes([]byte("DemoGadget")) == gadget &&
					r.Enum("DemoColor") == color,
					"a type is missing")
			}
		})
	}
	wg.Wait()
}

func TestDependencies(t *testing.T) {
	outer := MustStruct("Outer", Flags{}, property("a", 1, MustVector(OfStruct(gadget))),
		property("b", 2, OfStruct(part)),
		property("c", 3, OfStruct(gadget)))
	var names []string
	for _, dependency := range Dependencies(outer) {
		names = append(names, dependency.Name)
	}
	got := strings.Join(names, " ")
	assert.Check(t, got == "DemoPart DemoColor DemoGadget", "dependencies %s", got)
}

// Each struct has the one before it 31 times: 31 to the power of 15 instances, 16 structs.
func TestDependenciesOfMany(t *testing.T) {
	nested := Builtin(Bool)
	var s *Struct
	for depth := range MaxDepth {
		var properties []Property
		for tag := uint32(1); tag <= MaxTag; tag++ {
			properties = append(properties, property(fmt.Sprint("p", tag), tag, nested))
		}
		s = MustStruct(fmt.Sprint("S", depth), Flags{}, properties...)
		nested = OfStruct(s)
	}
	got := len(Dependencies(s))
	assert.Check(t, got == MaxDepth-1, "%d dependencies", got)
}
