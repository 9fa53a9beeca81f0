package schema

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrInvalid is what the errors about impossible types wrap.
var ErrInvalid = errors.New("invalid type")

const (
	// MaxName is the length of the longest name of a type, a property or an enumerator, in bytes.
	// No peer has a limit; people write shorter ones.
	MaxName = 255

	// MaxTag is the highest tag of a property: sets of properties have 32 bits, of which the
	// first is unused.
	MaxTag = 31

	// MaxElements is how many enumerators an enum may have, so that their indexes have 16 bits.
	MaxElements = 1 << 16

	// MaxDepth is how deeply structs may be nested, the outermost counted. With a vector on each
	// level these are 32 nested values, what decoders allow.
	MaxDepth = 16
)

// NewStruct makes a struct of properties in the order of their declaration. It refuses what brokers
// cannot handle, with an error that wraps ErrInvalid.
func NewStruct(name string, flags Flags, properties []Property, doc string) (*Struct, error) {
	if err := CheckTypeName(name); err != nil {
		return nil, fmt.Errorf("struct %s: %w", quote(name), err)
	}
	if len(properties) == 0 || len(properties) > MaxTag {
		return nil, fmt.Errorf("struct %s: %w: %d properties, not 1 to %d", name, ErrInvalid, len(properties), MaxTag)
	}
	s := &Struct{Name: name, Properties: slices.Clone(properties), Flags: flags, Doc: doc, depth: 1}
	for i := range s.Properties {
		if err := s.add(i); err != nil {
			return nil, fmt.Errorf("struct %s, property %s: %w", name, quote(s.Properties[i].Name), err)
		}
	}
	return s, nil
}

// add checks a property against those before it, and indexes it.
func (s *Struct) add(i int) error {
	p := &s.Properties[i]
	if err := checkName(p.Name); err != nil {
		return err
	}
	if p.Tag < 1 || p.Tag > MaxTag {
		return fmt.Errorf("%w: tag %d, not 1 to %d", ErrInvalid, p.Tag, MaxTag)
	}
	if other := s.ByTag(p.Tag); other != nil {
		return fmt.Errorf("%w: tag %d is that of property %s", ErrInvalid, p.Tag, other.Name)
	}
	if s.ByName(p.Name) != p {
		return fmt.Errorf("%w: a second property of this name", ErrInvalid)
	}
	if p.Type == nil {
		return fmt.Errorf("%w: no type", ErrInvalid)
	}
	if p.Key && p.Type.base().Kind == Any {
		return fmt.Errorf("%w: a key of type %s", ErrInvalid, p.Type.Name)
	}
	if nested := p.Type.base().Struct; nested != nil {
		s.depth = max(s.depth, nested.depth+1)
	}
	if s.depth > MaxDepth {
		return fmt.Errorf("%w: structs nested more than %d times", ErrInvalid, MaxDepth)
	}
	s.kinds |= p.Type.Kinds()
	s.index[p.Tag] = uint8(i + 1)
	s.all |= 1 << p.Tag
	if p.Key {
		s.keys |= 1 << p.Tag
	}
	return nil
}

// NewEnum makes an enum of enumerators in the order of their declaration, or returns an error that
// wraps ErrInvalid.
func NewEnum(name string, elements []Element, doc string) (*Enum, error) {
	if err := CheckTypeName(name); err != nil {
		return nil, fmt.Errorf("enum %s: %w", quote(name), err)
	}
	if len(elements) == 0 || len(elements) > MaxElements {
		return nil, fmt.Errorf("enum %s: %w: %d enumerators, not 1 to %d", name, ErrInvalid, len(elements), MaxElements)
	}
	e := &Enum{Name: name, Elements: slices.Clone(elements), Doc: doc, sorted: make([]uint16, len(elements))}
	names := make(map[string]struct{}, len(elements))
	for i := range e.Elements {
		element := &e.Elements[i]
		if err := checkName(element.Name); err != nil {
			return nil, fmt.Errorf("enum %s, enumerator %s: %w", name, quote(element.Name), err)
		}
		if _, twice := names[element.Name]; twice {
			return nil, fmt.Errorf("enum %s: %w: two enumerators %s", name, ErrInvalid, element.Name)
		}
		names[element.Name] = struct{}{}
		e.sorted[i] = uint16(i)
		if element.Tag < 64 {
			e.small |= 1 << element.Tag
		}
	}
	slices.SortFunc(e.sorted, func(a, b uint16) int { return cmp.Compare(e.Elements[a].Tag, e.Elements[b].Tag) })
	for i := 1; i < len(e.sorted); i++ {
		if tag := e.Elements[e.sorted[i]].Tag; tag == e.Elements[e.sorted[i-1]].Tag {
			return nil, fmt.Errorf("enum %s: %w: two enumerators with tag %d", name, ErrInvalid, tag)
		}
	}
	return e, nil
}

// base returns the type of the elements of a vector, and other types as they are.
func (t *Type) base() *Type {
	if t.Kind == Vector {
		return t.Elem
	}
	return t
}

var builtins = func() (types [len(kindNames)]Type) {
	for kind, name := range kindNames {
		types[kind] = Type{Kind: Kind(kind), Name: name}
	}
	return types
}()

// Builtin returns the type of a kind before EnumKind.
func Builtin(kind Kind) *Type { return &builtins[kind] }

// OfEnum returns the type whose values are the enumerators of an enum.
func OfEnum(e *Enum) *Type { return &Type{Kind: EnumKind, Name: e.Name, Enum: e} }

// OfStruct returns the type whose values are instances of a struct.
func OfStruct(s *Struct) *Type { return &Type{Kind: StructKind, Name: s.Name, Struct: s} }

// VectorOf returns the type of vectors of a type, which must not be a vector: other implementations
// cannot decode vectors of those.
func VectorOf(elem *Type) (*Type, error) {
	if elem.Kind == Vector {
		return nil, fmt.Errorf("%w: vector<%s>, a vector of vectors", ErrInvalid, elem.Name)
	}
	return &Type{Kind: Vector, Name: "vector<" + elem.Name + ">", Elem: elem}, nil
}

// CheckTypeName checks the name of a struct or an enum: whether it is an identifier that names no
// built-in type. The error wraps ErrInvalid.
func CheckTypeName(name string) error {
	if builtin(name) != nil || name == "vector" {
		return fmt.Errorf("%w: the name of a built-in type", ErrInvalid)
	}
	return checkName(name)
}

func builtin(name string) *Type {
	for kind := Bool; kind < EnumKind; kind++ {
		if kindNames[kind] == name {
			return Builtin(kind)
		}
	}
	return nil
}

// checkName checks that a name is an identifier of the language.
func checkName(name string) error {
	if len(name) == 0 || len(name) > MaxName {
		return fmt.Errorf("%w: a name of %d bytes, not 1 to %d", ErrInvalid, len(name), MaxName)
	}
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%w: a name that is no identifier", ErrInvalid)
		}
	}
	return nil
}

// quote returns a name for a message: quoted and not longer than names may be.
func quote(name string) string {
	return fmt.Sprintf("%.255q", name)
}

// MustStruct is NewStruct for generated code: it panics where that returns an error.
func MustStruct(name string, flags Flags, properties ...Property) *Struct {
	return must(NewStruct(name, flags, properties, ""))
}

// MustEnum is NewEnum for generated code.
func MustEnum(name string, elements ...Element) *Enum { return must(NewEnum(name, elements, "")) }

// MustVector is VectorOf for generated code.
func MustVector(elem *Type) *Type { return must(VectorOf(elem)) }

func must[T any](t T, err error) T {
	if err != nil {
		panic(err)
	}
	return t
}
