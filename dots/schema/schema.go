// Package schema describes the types of a bus: structs, enums and the types of their properties, as
// descriptors tell them on the wire and .dots files define them. A Registry holds the types that
// are known, by their names.
//
// Descriptions are immutable once they are made, and may be shared.
package schema

import (
	"cmp"
	"slices"

	"correlator/dots/value"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values. Those before Enum are named like the type in a description.
const (
	Bool Kind = iota + 1
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float32
	Float64
	String
	UUID
	Timepoint
	SteadyTimepoint
	Duration
	PropertySet
	Any // a type's name and an instance of it, opaque for brokers; Rust's clients alone have it
	EnumKind
	StructKind
	Vector
)

// kindNames are the names of the built-in types.
var kindNames = [...]string{
	Bool: "bool", Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64",
	Uint8: "uint8", Uint16: "uint16", Uint32: "uint32", Uint64: "uint64",
	Float32: "float32", Float64: "float64", String: "string", UUID: "uuid",
	Timepoint: "timepoint", SteadyTimepoint: "steady_timepoint", Duration: "duration",
	PropertySet: "property_set", Any: "any",
}

// Type is the type of a property.
type Type struct {
	Kind   Kind
	Name   string  // as on the wire: "uint32", "vector<string>", "DemoColor"
	Elem   *Type   // of a Vector, and no Vector itself
	Enum   *Enum   // of an EnumKind
	Struct *Struct // of a StructKind
}

// Kinds is a set of kinds: 1 << Bool and so on.
type Kinds uint32

// Kinds returns the kinds of the values that a value of the type may contain, itself included.
func (t *Type) Kinds() Kinds {
	switch t.Kind {
	case Vector:
		return 1<<Vector | t.Elem.Kinds()
	case StructKind:
		return 1<<StructKind | t.Struct.kinds
	}
	return 1 << t.Kind
}

// Property is a property of a struct.
type Property struct {
	Name       string
	Tag        uint32 // 1 to 31
	Key        bool
	Deprecated bool
	Type       *Type
	Doc        string
}

// Flags are the flags of a struct.
type Flags struct {
	Cached        bool // the broker keeps the objects, and tells them to whoever joins later
	Internal      bool // a part of the protocol, never described on the wire
	Persistent    bool
	Cleanup       bool // objects are removed when the guest that updated them last disconnects
	Local         bool
	SubstructOnly bool // only as a property of other structs
}

// flagNames are the names of flags in the language, in the order of the fields of Flags.
var flagNames = [...]string{"cached", "internal", "persistent", "cleanup", "local", "substruct_only"}

func (f *Flags) fields() [len(flagNames)]*bool {
	return [...]*bool{&f.Cached, &f.Internal, &f.Persistent, &f.Cleanup, &f.Local, &f.SubstructOnly}
}

// ByName returns the flag that has a name in the language, nil if there is none.
func (f *Flags) ByName(name string) *bool {
	if i := slices.Index(flagNames[:], name); i >= 0 {
		return f.fields()[i]
	}
	return nil
}

// Names returns the names of the flags that are set.
func (f Flags) Names() (names []string) {
	for i, flag := range f.fields() {
		if *flag {
			names = append(names, flagNames[i])
		}
	}
	return names
}

// Struct describes a struct.
type Struct struct {
	Name       string
	Properties []Property // in the order of declaration
	Flags      Flags
	Doc        string

	keys  value.PropertySet
	all   value.PropertySet
	index [32]uint8 // by tag: 1 + index in Properties; 0: there is none
	depth int       // how deeply structs are nested, 1 for one that contains no other
	kinds Kinds     // in its properties; found only once, as nested structs have exponentially many
}

// Enum describes an enum.
type Enum struct {
	Name     string
	Elements []Element // in the order of declaration
	Doc      string

	small  uint64   // bit n: there is an enumerator with tag n
	sorted []uint16 // indexes in Elements by ascending tag
}

// Element is an enumerator.
type Element struct {
	Name  string
	Tag   uint32 // what is transmitted
	Value int32  // what languages may use, never transmitted as a value
	Doc   string
}

// Keys returns the properties that make the key.
func (s *Struct) Keys() value.PropertySet { return s.keys }

// All returns all properties.
func (s *Struct) All() value.PropertySet { return s.all }

// ByTag returns the property with a tag, nil if there is none.
func (s *Struct) ByTag(tag uint32) *Property {
	if tag >= uint32(len(s.index)) || s.index[tag] == 0 {
		return nil
	}
	return &s.Properties[s.index[tag]-1]
}

// ByName returns the property with a name, nil if there is none.
func (s *Struct) ByName(name string) *Property {
	for i := range s.Properties {
		if s.Properties[i].Name == name {
			return &s.Properties[i]
		}
	}
	return nil
}

// Has reports whether there is an enumerator with a tag.
func (e *Enum) Has(tag uint32) bool {
	if tag < 64 {
		return e.small>>tag&1 != 0
	}
	return e.ByTag(tag) != nil
}

// ByTag returns the enumerator with a tag, nil if there is none.
func (e *Enum) ByTag(tag uint32) *Element {
	i, found := slices.BinarySearchFunc(e.sorted, tag, func(index uint16, tag uint32) int {
		return cmp.Compare(e.Elements[index].Tag, tag)
	})
	if !found {
		return nil
	}
	return &e.Elements[e.sorted[i]]
}
