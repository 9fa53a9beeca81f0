package system

import (
	"errors"
	"fmt"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// ErrDescription is what errors about descriptions wrap that lack something.
var ErrDescription = errors.New("incomplete description")

// MaxDescription is the size of the largest description that is read, in bytes. A struct of 31
// properties takes 17 KB at most, without documentation; decoded, a description takes up to 80
// times its size.
const MaxDescription = 256 << 10

// DescribeStruct returns the description of a struct as it is sent to peers.
func DescribeStruct(s *schema.Struct) *StructDescriptorData {
	d := &StructDescriptorData{Name: value.Some(s.Name)}
	properties := make([]StructPropertyData, len(s.Properties))
	for i, p := range s.Properties {
		properties[i] = StructPropertyData{Name: value.Some(p.Name), Tag: value.Some(p.Tag),
			IsKey: value.Some(p.Key), Type: value.Some(p.Type.Name)}
	}
	d.Properties.Set(properties)
	d.Flags.Set(DotsStructFlags{
		Cached:        value.Some(s.Flags.Cached),
		Internal:      value.Some(s.Flags.Internal),
		Persistent:    value.Some(s.Flags.Persistent),
		Cleanup:       value.Some(s.Flags.Cleanup),
		Local:         value.Some(s.Flags.Local),
		SubstructOnly: value.Some(s.Flags.SubstructOnly),
	})
	return d
}

// DescribeEnum returns the description of an enum as it is sent to peers.
func DescribeEnum(e *schema.Enum) *EnumDescriptorData {
	d := &EnumDescriptorData{Name: value.Some(e.Name)}
	elements := make([]EnumElementDescriptor, len(e.Elements))
	for i, element := range e.Elements {
		elements[i] = EnumElementDescriptor{EnumValue: value.Some(element.Value), Name: value.Some(element.Name),
			Tag: value.Some(element.Tag)}
	}
	d.Elements.Set(elements)
	return d
}

// AppendDescription appends the description of a struct or an enum as an instance of the type whose
// name is returned, with the properties that it has.
func AppendDescription(dst []byte, t *schema.Type) (instance []byte, typeName string, props value.PropertySet) {
	if t.Kind == schema.EnumKind {
		d := DescribeEnum(t.Enum)
		return d.AppendInstance(dst, d.Valid()), descriptorEnumDescriptorData.Name, d.Valid()
	}
	d := DescribeStruct(t.Struct)
	return d.AppendInstance(dst, d.Valid()), descriptorStructDescriptorData.Name, d.Valid()
}

// LearnStruct adds the struct that an instance of StructDescriptorData describes to the known ones,
// and returns what schema.Registry.AddStruct does.
func LearnStruct(known *schema.Registry, instance []byte) (*schema.Struct, error) {
	var d StructDescriptorData
	if err := decode(instance, d.DecodeInstance); err != nil {
		return nil, fmt.Errorf("decoding the description of a struct: %w", err)
	}
	s, err := StructOf(known, &d)
	if err != nil {
		return nil, err
	}
	return known.AddStruct(s)
}

// LearnEnum adds the enum that an instance of EnumDescriptorData describes to the known ones, and
// returns what schema.Registry.AddEnum does.
func LearnEnum(known *schema.Registry, instance []byte) (*schema.Enum, error) {
	var d EnumDescriptorData
	if err := decode(instance, d.DecodeInstance); err != nil {
		return nil, fmt.Errorf("decoding the description of an enum: %w", err)
	}
	e, err := EnumOf(&d)
	if err != nil {
		return nil, err
	}
	return known.AddEnum(e)
}

// decode decodes a whole instance.
func decode(instance []byte, into func(*cbor.Reader)) error {
	if len(instance) > MaxDescription {
		return fmt.Errorf("%d bytes, more than %d: %w", len(instance), MaxDescription, cbor.ErrRange)
	}
	r := cbor.NewReader(instance)
	into(&r)
	if r.Err() == nil && r.Len() > 0 {
		return fmt.Errorf("%d bytes behind it: %w", r.Len(), cbor.ErrRange)
	}
	return r.Err()
}

// StructOf returns the struct that is described. What its properties depend on must be known.
func StructOf(known *schema.Registry, d *StructDescriptorData) (*schema.Struct, error) {
	name, ok := d.Name.Get()
	if !ok {
		return nil, fmt.Errorf("struct without a name: %w", ErrDescription)
	}
	described := d.Properties.Value()
	if len(described) > schema.MaxTag {
		return nil, fmt.Errorf("struct %.255q: %w: %d properties", name, schema.ErrInvalid, len(described))
	}
	properties := make([]schema.Property, len(described))
	for i := range described {
		p := &described[i]
		if !p.Name.IsSet() || !p.Tag.IsSet() || !p.Type.IsSet() {
			return nil, fmt.Errorf("struct %.255q, property %d: %w", name, i, ErrDescription)
		}
		t, err := known.ResolveType(p.Type.Value())
		if err != nil {
			return nil, fmt.Errorf("struct %.255q, property %.255q: %w", name, p.Name.Value(), err)
		}
		properties[i] = schema.Property{Name: p.Name.Value(), Tag: p.Tag.Value(), Key: p.IsKey.Value(), Type: t}
	}
	flags := d.Flags.Value()
	return schema.NewStruct(name, schema.Flags{
		Cached:        flags.Cached.Value(),
		Internal:      flags.Internal.Value(),
		Persistent:    flags.Persistent.Value(),
		Cleanup:       flags.Cleanup.Value(),
		Local:         flags.Local.Value(),
		SubstructOnly: flags.SubstructOnly.Value(),
	}, properties, "")
}

// EnumOf returns the enum that is described.
func EnumOf(d *EnumDescriptorData) (*schema.Enum, error) {
	name, ok := d.Name.Get()
	if !ok {
		return nil, fmt.Errorf("enum without a name: %w", ErrDescription)
	}
	described := d.Elements.Value()
	elements := make([]schema.Element, len(described))
	for i := range described {
		e := &described[i]
		if !e.Name.IsSet() || !e.Tag.IsSet() {
			return nil, fmt.Errorf("enum %.255q, enumerator %d: %w", name, i, ErrDescription)
		}
		elements[i] = schema.Element{Name: e.Name.Value(), Tag: e.Tag.Value(),
			Value: e.EnumValue.Or(int32(e.Tag.Value() - 1))}
	}
	return schema.NewEnum(name, elements, "")
}
