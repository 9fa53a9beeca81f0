package language

import (
	"fmt"

	"correlator/dots/schema"
)

// builder makes types of declarations, those that others depend on first.
type builder struct {
	resolve  func(name string) (*schema.Type, error)
	declared map[string]*declaration
	built    map[*declaration]*schema.Type
}

// build makes the type of a declaration, at a depth of nested structs.
func (b *builder) build(d *declaration, depth int) (*schema.Type, error) {
	if t := b.built[d]; t != nil {
		return t, nil
	}
	if d.building {
		return nil, d.at.errorf("struct %s contains itself", d.name)
	}
	d.building = true
	defer func() { d.building = false }()
	build := b.buildStruct
	if d.enum {
		build = b.buildEnum
	}
	t, err := build(d, depth)
	if err != nil {
		return nil, d.at.wrap(err)
	}
	if b.built == nil {
		b.built = map[*declaration]*schema.Type{}
	}
	b.built[d] = t
	return t, nil
}

func (b *builder) buildStruct(d *declaration, depth int) (*schema.Type, error) {
	if depth > schema.MaxDepth {
		return nil, d.at.errorf("structs nested more than %d times", schema.MaxDepth)
	}
	if err := schema.CheckTypeName(d.name); err != nil {
		return nil, fmt.Errorf("struct %s: %w", shorten(d.name), err)
	}
	flags, err := structFlags(d.options)
	if err != nil {
		return nil, err
	}
	if len(d.items) > schema.MaxTag {
		return nil, d.items[schema.MaxTag].at.errorf("struct %s has more than %d properties", d.name, schema.MaxTag)
	}
	properties := make([]schema.Property, 0, len(d.items))
	for _, i := range d.items {
		p := schema.Property{Name: i.name, Tag: i.tag, Doc: i.doc}
		if p.Key, err = isOn(i.options, "key"); err != nil {
			return nil, err
		}
		if p.Deprecated, err = isOn(i.options, "deprecated"); err != nil {
			return nil, err
		}
		if p.Type, err = b.typeOf(i, depth); err != nil {
			return nil, i.typeAt.wrap(err)
		}
		properties = append(properties, p)
		// With this property too, so that an error is known to be about it.
		if _, err := schema.NewStruct(d.name, flags, properties, ""); err != nil {
			return nil, i.at.wrap(err)
		}
	}
	s, err := schema.NewStruct(d.name, flags, properties, d.doc)
	if err != nil {
		return nil, err
	}
	return schema.OfStruct(s), nil
}

func (b *builder) buildEnum(d *declaration, _ int) (*schema.Type, error) {
	tags := make(map[uint32]bool)
	elements := make([]schema.Element, 0, len(d.items))
	for _, i := range d.items {
		e := schema.Element{Name: i.name, Tag: i.tag, Value: int32(i.tag - 1), Doc: i.doc}
		if i.hasValue {
			e.Value = i.value
		}
		if tags[i.tag] {
			return nil, i.at.errorf("enum %s: tag %d is that of another enumerator", d.name, i.tag)
		}
		tags[i.tag] = true
		elements = append(elements, e)
	}
	e, err := schema.NewEnum(d.name, elements, d.doc)
	if err != nil {
		return nil, err
	}
	return schema.OfEnum(e), nil
}

// typeOf returns the type of a property.
func (b *builder) typeOf(i item, depth int) (*schema.Type, error) {
	name, vector := i.typeName, false
	if len(name) > 7 && name[:7] == "vector<" {
		name, vector = name[7:len(name)-1], true
	}
	t, err := b.named(name, depth)
	if err != nil || !vector {
		return t, err
	}
	return schema.VectorOf(t)
}

// named returns the type of a name. Definitions of these files come first.
func (b *builder) named(name string, depth int) (*schema.Type, error) {
	if d := b.declared[name]; d != nil {
		return b.build(d, depth+1)
	}
	return b.resolve(name)
}

// structFlags returns the flags that options set.
func structFlags(options []option) (schema.Flags, error) {
	flags := schema.Flags{Cached: true}
	for _, o := range options {
		flag := flags.ByName(o.name)
		if flag == nil {
			continue
		}
		on, err := o.bool()
		if err != nil {
			return flags, err
		}
		*flag = on
	}
	return flags, nil
}

// isOn reports whether an option is switched on, by the last one of its name.
func isOn(options []option, name string) (on bool, err error) {
	for _, o := range options {
		if o.name == name {
			if on, err = o.bool(); err != nil {
				return false, err
			}
		}
	}
	return on, nil
}

func (o option) bool() (bool, error) {
	switch o.value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, o.at.errorf("option %s is neither true nor false", o.name)
}
