package generate

import (
	"fmt"
	"reflect"
	"strings"

	"correlator/dots/schema"
)

// field is a property with its names in Go.
type field struct {
	*schema.Property
	name   string // of the field
	goType string
	mask   string // name of the constant
}

func (g *generator) addStruct(s *schema.Struct) error {
	name := typeName(s.Name)
	fields, err := g.fields(s, name)
	if err != nil {
		return err
	}
	g.comment(name+" is a struct; any property may be unset.", s.Doc)
	g.printf("type %s struct {\n", name)
	for _, f := range fields {
		if f.Deprecated {
			g.printf("// %s\n//\n// Deprecated: by its description.\n", oneLine(f.name+" "+f.Doc))
			g.printf("%s\tvalue.Opt[%s]\n", f.name, f.goType)
			continue
		}
		g.printf("%s\tvalue.Opt[%s]", f.name, f.goType)
		if note := fieldNote(f); note != "" {
			g.printf("\t// %s", note)
		}
		g.printf("\n")
	}
	g.printf("}\n\n")

	g.printf("// Properties of %s.\nconst (\n", name)
	for _, f := range fields {
		g.printf("%s\tvalue.PropertySet\t= 1 << %d\n", f.mask, f.Tag)
	}
	g.printf(")\n\n")

	g.key(name, g.keys[s.Name], fields)
	g.descriptor(s, name, fields)
	g.valid(name, fields)
	g.appendInstance(name, fields)
	g.decodeInstance(name, fields)
	g.merge(name, fields)
	return nil
}

func fieldNote(f field) string {
	note := oneLine(f.Doc)
	switch {
	case f.Key && note != "":
		return "key: " + note
	case f.Key:
		return "key"
	}
	return note
}

// fields names the properties. A constant that would be named like a type is named more clearly.
func (g *generator) fields(s *schema.Struct, name string) ([]field, error) {
	fields := make([]field, len(s.Properties))
	names := make(map[string]string)
	for i := range s.Properties {
		p := &s.Properties[i]
		f := field{Property: p, name: fieldName(p.Name), goType: goType(p.Type)}
		if other, is := names[f.name]; is {
			return nil, fmt.Errorf("properties %s and %s of %s would both be %s in Go: %w", other, p.Name, s.Name, f.name,
				ErrUnsupported)
		}
		names[f.name] = p.Name
		var err error
		if f.mask, err = g.takeFree(name+f.name, "Property", "property "+s.Name+"."+p.Name); err != nil {
			return nil, err
		}
		if p.Key && !canBeKey(p.Type) && !isEncodedInKey(p.Type) {
			return nil, fmt.Errorf("property %s.%s, a key of type %s: %w", s.Name, p.Name, p.Type.Name, ErrUnsupported)
		}
		fields[i] = f
	}
	return fields, nil
}

// canBeKey reports whether values of a type can be the key of a Go map.
func canBeKey(t *schema.Type) bool { return t.Kinds()&(1<<schema.Vector|1<<schema.Any) == 0 }

// isEncodedInKey reports whether values of a type are in a key as they are encoded, since they cannot be one of a Go
// map: vectors, and structs with vectors.
func isEncodedInKey(t *schema.Type) bool { return t.Kinds()&(1<<schema.Any) == 0 }

// key writes the type of keys, and the method that returns one.
func (g *generator) key(name, key string, fields []field) {
	g.printf("// %s is the key of objects of type %s.\ntype %s ", key, name, key)
	var members, values, encoded []string
	for _, f := range fields {
		switch {
		case !f.Key:
		case canBeKey(f.Type):
			members = append(members, f.name+"\t"+f.goType+"\n")
			values = append(values, f.name+": x."+f.name+".Value()")
		default:
			members = append(members, f.name+"\tstring\t// encoded\n")
			variable := fmt.Sprintf("v%d", len(encoded))
			v := "x." + f.name + ".Value()"
			if f.Type.Kind == schema.Vector { // in a struct that has nothing else
				v = name + "{" + f.name + ": value.Some(" + v + ")}"
			}
			encoded = append(encoded, variable+" := "+v+"\n")
			values = append(values, fmt.Sprintf("%s: string(%s.AppendInstance(nil, %[2]s.Valid()))", f.name, variable))
		}
	}
	if len(members) > 0 {
		g.printf("struct {\n%s}\n\n", strings.Join(members, ""))
	} else {
		g.printf("struct{}\n\n")
	}
	g.printf("// Key returns the key; properties that are unset count as zero.\n")
	g.printf("func (x *%s) Key() %s {\n%sreturn %s{%s}\n}\n\n", name, key, strings.Join(encoded, ""), key,
		strings.Join(values, ", "))
}

func (g *generator) descriptor(s *schema.Struct, name string, fields []field) {
	descriptor := descriptorName(s.Name)
	g.printf("// Descriptor returns the description of the type.\n")
	g.printf("func (*%s) Descriptor() *schema.Struct {\nreturn %s\n}\n\n", name, descriptor)
	g.printf("var %s = schema.MustStruct(%q, schema.Flags{%s},\n", descriptor, s.Name, flags(s.Flags))
	for _, f := range fields {
		g.printf("schema.Property{Name: %q, Tag: %d, ", f.Name, f.Tag)
		if f.Key {
			g.printf("Key: true, ")
		}
		if f.Deprecated {
			g.printf("Deprecated: true, ")
		}
		g.printf("Type: %s},\n", typeExpression(f.Type))
	}
	g.printf(")\n\n")
}

func flags(f schema.Flags) string {
	var set []string
	for field, flag := range reflect.ValueOf(f).Fields() {
		if flag.Bool() {
			set = append(set, field.Name+": true")
		}
	}
	return strings.Join(set, ", ")
}

func (g *generator) valid(name string, fields []field) {
	g.printf("// Valid returns the properties that are set.\n")
	g.printf("func (x *%s) Valid() (set value.PropertySet) {\n", name)
	for _, f := range fields {
		g.printf("if x.%s.IsSet() {\nset |= %s\n}\n", f.name, f.mask)
	}
	g.printf("return set\n}\n\n")
}

func (g *generator) appendInstance(name string, fields []field) {
	g.printf("// AppendInstance appends those of the properties that are set, as a CBOR map.\n")
	g.printf("func (x *%s) AppendInstance(dst []byte, props value.PropertySet) []byte {\n", name)
	g.printf("props &= x.Valid()\ndst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))\n")
	for _, f := range fields {
		g.printf("if props&%s != 0 {\n", f.mask)
		g.appendProperty(f)
		g.printf("}\n")
	}
	g.printf("return dst\n}\n\n")
}

func (g *generator) appendProperty(f field) {
	g.printf("dst = append(dst, %s)\n", tagBytes(f.Tag))
	if f.Type.Kind != schema.Vector {
		g.appendValue(f.Type, "x."+f.name+".Value()")
		return
	}
	g.printf("v := x.%s.Value()\ndst = cbor.AppendArray(dst, len(v))\nfor i := range v {\n", f.name)
	g.appendValue(f.Type.Elem, "v[i]")
	g.printf("}\n")
}

// appendValue writes code that appends the value of an expression.
func (g *generator) appendValue(t *schema.Type, expression string) {
	switch t.Kind {
	case schema.StructKind:
		if !strings.HasPrefix(expression, "v[") {
			g.printf("v := %s\n", expression)
			expression = "v"
		}
		g.printf("dst = %s.AppendInstance(dst, ^value.PropertySet(0))\n", expression)
	default:
		c := codecs[t.Kind]
		if c.convert != "" {
			expression = c.convert + "(" + expression + ")"
		}
		g.printf("dst = cbor.Append%s(dst, %s)\n", c.append, expression)
	}
}

func (g *generator) decodeInstance(name string, fields []field) {
	g.printf("// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and\n")
	g.printf("// of a property that occurs twice the last value counts. Errors are those of the reader; after one,\n")
	g.printf("// the content is meaningless.\n")
	g.printf("func (x *%s) DecodeInstance(r *cbor.Reader) {\n*x = %s{}\n", name, name)
	g.printf("for range r.Map() {\nswitch r.Uint(64) {\n")
	for _, f := range fields {
		g.printf("case %d:\n", f.Tag)
		g.decodeProperty(f)
	}
	g.printf("default:\nr.Skip()\n}\n}\n}\n\n")
}

func (g *generator) decodeProperty(f field) {
	switch {
	case f.Type.Kind == schema.Vector && f.Type.Elem.Kind == schema.StructKind:
		elem := goType(f.Type.Elem)
		// A struct takes far more memory than the byte that its encoding takes at least.
		g.printf("var v []%s\nfor range r.ArrayOf(%d) {\n", elem, sizeOf(f.Type.Elem))
		g.printf("if r.Err() != nil {\nreturn\n}\nv = append(v, %s{})\n", elem)
		g.printf("v[len(v)-1].DecodeInstance(r)\n}\nx.%s.Set(v)\n", f.name)
	case f.Type.Kind == schema.Vector:
		g.printf("n := r.ArrayOf(%d)\n", sizeOf(f.Type.Elem))
		g.printf("v := make(%s, 0, min(n, %d))\n", f.goType, preallocated)
		g.printf("for range n {\nif r.Err() != nil {\nreturn\n}\n")
		g.decodeValue(f.Type.Elem, "v = append(v, %s)\n")
		g.printf("}\nx.%s.Set(v)\n", f.name)
	case f.Type.Kind == schema.StructKind:
		g.printf("var v %s\nv.DecodeInstance(r)\nx.%s.Set(v)\n", f.goType, f.name)
	default:
		g.decodeValue(f.Type, "x."+f.name+".Set(%s)\n")
	}
}

// preallocated is the number of elements that a vector gets memory for before they are read: a
// peer claims them with a byte each, and they take up to 24.
const preallocated = 64

// decodeValue writes code that does something with a value that is read.
func (g *generator) decodeValue(t *schema.Type, use string) {
	expression := codecs[t.Kind].read
	if t.Kind == schema.EnumKind {
		expression = "decode" + typeName(t.Name) + "(r)"
	}
	g.printf(use, expression)
}

func (g *generator) merge(name string, fields []field) {
	g.printf("// Merge takes properties over from another instance, also those that are unset there. Keys stay.\n")
	g.printf("func (x *%s) Merge(from *%s, props value.PropertySet) {\n", name, name)
	for _, f := range fields {
		if !f.Key {
			g.printf("if props&%s != 0 {\nx.%s = from.%s\n}\n", f.mask, f.name, f.name)
		}
	}
	g.printf("}\n\n")
}
