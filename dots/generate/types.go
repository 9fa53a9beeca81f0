package generate

import "correlator/dots/schema"

// codec is what code uses for values of a type.
type codec struct {
	goType  string
	append  string // suffix of the function of package cbor
	convert string // what that function needs
	read    string // expression that reads a value of goType
	kind    string // name of the constant in package schema
}

var codecs = map[schema.Kind]codec{
	schema.Bool:    {"bool", "Bool", "", "r.Bool()", "Bool"},
	schema.Int8:    {"int8", "Int", "int64", "int8(r.Int(8))", "Int8"},
	schema.Int16:   {"int16", "Int", "int64", "int16(r.Int(16))", "Int16"},
	schema.Int32:   {"int32", "Int", "int64", "int32(r.Int(32))", "Int32"},
	schema.Int64:   {"int64", "Int", "", "r.Int(64)", "Int64"},
	schema.Uint8:   {"uint8", "Uint", "uint64", "uint8(r.Uint(8))", "Uint8"},
	schema.Uint16:  {"uint16", "Uint", "uint64", "uint16(r.Uint(16))", "Uint16"},
	schema.Uint32:  {"uint32", "Uint", "uint64", "uint32(r.Uint(32))", "Uint32"},
	schema.Uint64:  {"uint64", "Uint", "", "r.Uint(64)", "Uint64"},
	schema.Float32: {"float32", "Float32", "", "r.Float32()", "Float32"},
	schema.Float64: {"float64", "Float64", "", "r.Float64()", "Float64"},
	schema.String:  {"string", "String", "", "r.String()", "String"},
	schema.UUID:    {"value.UUID", "UUID", "", "r.Bytes16()", "UUID"},
	schema.Timepoint: {"value.Timepoint", "Float64", "float64",
		"value.Timepoint(r.Float64())", "Timepoint"},
	schema.SteadyTimepoint: {"value.SteadyTimepoint", "Float64", "float64",
		"value.SteadyTimepoint(r.Float64())", "SteadyTimepoint"},
	schema.Duration: {"value.Duration", "Float64", "float64",
		"value.Duration(r.Float64())", "Duration"},
	schema.PropertySet: {"value.PropertySet", "Uint", "uint64",
		"value.PropertySet(r.Uint(32))", "PropertySet"},
	schema.Any:      {"value.Any", "Any", "", "r.Any()", "Any"},
	schema.EnumKind: {append: "Uint", convert: "uint64"},
}

// goType returns the Go type of values of a type.
func goType(t *schema.Type) string {
	switch t.Kind {
	case schema.Vector:
		return "[]" + goType(t.Elem)
	case schema.EnumKind, schema.StructKind:
		return typeName(t.Name)
	}
	return codecs[t.Kind].goType
}

// typeExpression returns the Go expression of a type.
func typeExpression(t *schema.Type) string {
	switch t.Kind {
	case schema.Vector:
		return "schema.MustVector(" + typeExpression(t.Elem) + ")"
	case schema.EnumKind:
		return "schema.OfEnum(" + descriptorName(t.Name) + ")"
	case schema.StructKind:
		return "schema.OfStruct(" + descriptorName(t.Name) + ")"
	}
	return "schema.Builtin(schema." + codecs[t.Kind].kind + ")"
}

// sizeOf returns how many bytes of memory a value takes, on 64-bit machines and with as much padding
// as there may be; what it refers to is not counted.
func sizeOf(t *schema.Type) int {
	switch t.Kind {
	case schema.Bool, schema.Int8, schema.Uint8:
		return 1
	case schema.Int16, schema.Uint16:
		return 2
	case schema.Int32, schema.Uint32, schema.Float32, schema.PropertySet, schema.EnumKind:
		return 4
	case schema.String, schema.UUID:
		return 16
	case schema.Vector:
		return 24
	case schema.Any:
		return 40
	case schema.StructKind:
		size := 0
		for _, p := range t.Struct.Properties {
			size += sizeOf(p.Type) + 8 // and whether it is set
		}
		return (size + 7) &^ 7
	}
	return 8
}
