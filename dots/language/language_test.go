package language

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/schema"
)

func parseOne(text string) (*File, error) {
	files, err := Parse(nil, Source{Name: "test.dots", Text: []byte(text)})
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

func printed(types []*schema.Type) string {
	var dst []byte
	for _, t := range types {
		dst = schema.AppendDots(dst, t)
	}
	return string(dst)
}

func TestParse(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"empty", "", ""},
		{"only comments", "// a\n/* b\n*/ // c", ""},
		{"one line", `struct A{1:bool a;}`, "struct A {\n    1: bool a;\n}\n"},
		{
			"words of the language as names", `struct struct { 1: [key] string import; 2: bool enum; 3: bool package; 4: bool key; }`,
			"struct struct {\n    1: [key] string import;\n    2: bool enum;\n    3: bool package;\n    4: bool key;\n}\n",
		},
		{
			"flags", `struct A [cached=FALSE, cleanup, persistent = True, local=true, internal, substruct_only] { 1: bool a; }`,
			"struct A [internal, cached=false, persistent, cleanup, local, substruct_only] {\n    1: bool a;\n}\n",
		},
		{
			"flags that are off, and unknown options",
			`struct A [cached, cleanup=false, author="a \"b\"", x=true] { 1: [removed] bool a; }`,
			"struct A {\n    1: bool a;\n}\n",
		},
		{
			"property options", `struct A { 1: [deprecated, key] bool a; 2: [key=false] bool b; 31: [deprecated="false", key=true] bool c; }`,
			"struct A {\n    1: [key, deprecated] bool a;\n    2: bool b;\n    31: [key] bool c;\n}\n",
		},
		{
			"enum values", "enum E { 1: a 2: b = 10, 5: c = -3 7: d = 6, }",
			"enum E {\n    1: a,\n    2: b = 10,\n    5: c = -3,\n    7: d\n}\n",
		},
		{
			"types that are defined behind their users",
			"struct A { 1: vector<B> b; 2: E e; } struct B { 1: vector < E > e; } enum E { 0: x = -1 }",
			"struct A {\n    1: vector<B> b;\n    2: E e;\n}\nstruct B {\n    1: vector<E> e;\n}\nenum E {\n    0: x\n}\n",
		},
		{
			"documentation", `
/// of A,
/// two lines
struct A {
    /// before
    1: bool a; /// behind
    2: bool b; ///< behind b
    //< of b, too
    // of nothing
    /// of c
    3: bool c;
}
/// of E
enum E {
    1: x, ///< of x
    /// of y
    2: y ///< behind y
}
/// of nothing`,
			`/// of A,
/// two lines
struct A {
    /// before
    /// behind
    1: bool a;
    /// behind b
    /// of b, too
    2: bool b;
    /// of c
    3: bool c;
}
/// of E
enum E {
    /// of x
    1: x,
    /// of y
    /// behind y
    2: y
}
`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file, err := parseOne(test.text)
			assert.NilError(t, err)
			got := printed(file.Types)
			assert.Check(t, got == test.want, "parsed as\n%snot\n%s", got, test.want)
			again, err := parseOne(got)
			assert.NilError(t, err)
			if printed(again.Types) != got {
				t.Errorf("printed, it is parsed as\n%s", printed(again.Types))
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"other word", "\n  union A {}", `2:3: "struct", "enum", "import" or "package" expected, found "union"`},
		{"other character", "struct A {\n\t1: bool §;", `2:10: unexpected character '§'`},
		{"end", "struct A {", `1:11: tag or "}" expected, found end of file`},
		{"end behind a line", "struct A {\n", `2:1: tag or "}" expected, found end of file`},
		{"no semicolon", "struct A { 1: bool a }", `1:22: ";" expected, found "}"`},
		{"no colon", "struct A { 1 bool a; }", `1:14: ":" expected, found "bool"`},
		{"no name", "struct { 1: bool a; }", `1:8: name of the struct expected, found "{"`},
		{"no type", "struct A { 1: ; }", `1:15: type expected, found ";"`},
		{"no enumerator", "enum A { 1: 2 }", `1:13: name of the enumerator expected, found "2"`},
		{"huge tag", "struct A { 4294967296: bool a; }", `1:12: tag 4294967296 is out of range`},
		{"huge value", "enum A { 1: a = 2147483648 }", `1:17: value 2147483648 is out of range`},
		{"options of enums", "enum A [internal] { 1: a }", `1:8: "{" expected, found "["`},
		{"option without end", "struct A [cached { 1: bool a; }", `1:18: "," or "]" expected, found "{"`},
		{"empty options", "struct A [] { 1: bool a; }", `1:11: name of an option expected, found "]"`},
		{"value of an option", "struct A [cached=maybe] { 1: bool a; }",
			`1:18: string, true or false expected, found "maybe"`},
		{"flag as a string", "struct A [cached=\"no\"] { 1: bool a; }", `1:11: option cached is neither true nor false`},
		{"comment without end", "struct A /* {\n1: bool a; }", `1:10: comment without end`},
		{"string without end", "struct A [a=\"\n] {}", `1:13: string without end, or with a wrong escape`},
		{"no UTF-8", "// \xff", `1:1: not UTF-8`},
		{"unknown type", "struct A {\n    1: bool a;\n    2: NoType b;\n}", `3:8: missing type dependency: NoType`},
		{"unknown type in a vector", "struct A { 1: vector<float128> a; }", `1:15: missing type dependency: float128`},
		{"vector of vectors", "struct A { 1: vector<vector<bool>> a; }",
			`1:22: a vector of vectors, which no implementation can decode`},
		{"defined twice", "struct A { 1: bool a; }\nenum A { 1: a }", `2:6: A is defined at test.dots:1:8 already`},
		{"empty struct", "struct A {}", `1:8: struct A: invalid type: 0 properties, not 1 to 31`},
		{"empty enum", "enum A {}", `1:6: enum A: invalid type: 0 enumerators, not 1 to 65536`},
		{"tag 0", "struct A { 0: bool a; }", `1:12: struct A, property "a": invalid type: tag 0, not 1 to 31`},
		{"tag 32", "struct A {\n 32: bool a;\n}", `2:2: struct A, property "a": invalid type: tag 32, not 1 to 31`},
		{"tag twice", "struct A { 1: bool a; 1: bool b; }",
			`1:23: struct A, property "b": invalid type: tag 1 is that of property a`},
		{"tag of enumerators twice", "enum A { 1: a\n1: b }", `2:1: enum A: tag 1 is that of another enumerator`},
		{"built-in name", "struct uuid { 1: bool a; }", `1:8: struct uuid: invalid type: the name of a built-in type`},
		{"contains itself", "struct A { 1: A a; }", `1:8: struct A contains itself`},
		{"cycle", "struct A { 1: vector<B> b; }\nstruct B { 1: A a; }", `1:8: struct A contains itself`},
		{"import without a name", "import;", `1:7: name of a type expected, found ";"`},
		{"package", "package a. {", `1:12: name of a package expected, found "{"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseOne(test.text)
			assert.Check(t, err != nil && err.Error() == "test.dots:"+test.want, "error %q, not %q", err, test.want)
			var placed *Error
			assert.Check(t, errors.As(err, &placed), "error of type %T", err)
		})
	}
}

func TestBounds(t *testing.T) {
	var many, deep, enum strings.Builder
	many.WriteString("struct A {\n")
	for range 100_000 {
		many.WriteString("1: bool a;\n")
	}
	many.WriteString("}")
	for i := range 100_000 {
		fmt.Fprintf(&deep, "struct S%d { 1: vector<S%d> a; }\n", i, i+1)
	}
	enum.WriteString("enum E {")
	for range schema.MaxElements + 1 {
		enum.WriteString("1:a ")
	}
	enum.WriteString("}")
	for name, text := range map[string]string{
		"huge file":           strings.Repeat(" ", maxSource+1),
		"huge name":           "struct " + strings.Repeat("A", 1<<20) + " { 1: bool a; }",
		"huge property":       "struct A { 1: bool " + strings.Repeat("a", 1<<20) + "; }",
		"huge tag":            "struct A { " + strings.Repeat("1", 1<<20) + ": bool a; }",
		"huge value":          "enum A { 1: a = " + strings.Repeat("1", 1<<20) + " }",
		"many properties":     many.String(),
		"many enumerators":    enum.String(),
		"many vectors":        "struct A { 1: " + strings.Repeat("vector<", 1<<18),
		"many braces":         strings.Repeat("{", 1<<20),
		"huge unknown type":   "struct A { 1: " + strings.Repeat("B", 1<<20) + " a; }",
		"many nested structs": deep.String(),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOne(text)
			assert.Assert(t, err != nil, "no error")
			assert.Check(t, len(err.Error()) <= 700, "a message of %d bytes", len(err.Error()))
		})
	}
}

func TestSeveralFiles(t *testing.T) {
	known := schema.NewRegistry()
	color, err := known.AddEnum(schema.MustEnum("Color", schema.Element{Name: "red", Tag: 1}))
	assert.NilError(t, err)
	files, err := Parse(known.ResolveType,
		Source{"a.dots", []byte("package x.y\nimport B\nimport Color\nstruct A { 1: B b; 2: vector<Color> c; }")},
		Source{"b.dots", []byte("struct B { 1: bool a; }")})
	assert.NilError(t, err)
	a, b := files[0], files[1]
	if a.Package != "x.y" || strings.Join(a.Imports, " ") != "B Color" || len(a.Types) != 1 || len(b.Types) != 1 {
		t.Errorf("files %+v and %+v", a, b)
	}
	s := a.Types[0].Struct
	if s.ByTag(1).Type.Struct != b.Types[0].Struct || s.ByTag(2).Type.Elem.Enum != color {
		t.Errorf("struct of %v and %v", s.ByTag(1).Type, s.ByTag(2).Type)
	}
	_, err = Parse(nil, Source{"a.dots", []byte("struct A { 1: bool a; }")},
		Source{"b.dots", []byte("\nstruct A { 1: bool a; }")})
	assert.Check(t, err != nil && err.Error() == "b.dots:2:8: A is defined at a.dots:1:8 already", err)
}

// What is parsed is printed so that it is parsed as the same.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"../system/system.dots", "../internal/demo/demo.dots"} {
		text, err := os.ReadFile(name)
		assert.NilError(f, err)
		f.Add(string(text))
	}
	f.Add("/** a */ package a.b import C struct A [x=\"\\\"\", cached=False] { 1: [key] uuid a; ///< a\n} enum B { 1: a = -1, }")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := parseOne(text)
		if err != nil {
			var placed *Error
			assert.Assert(t, errors.As(err, &placed) && placed.Line >= 1 &&
				placed.Line <= 1+strings.Count(text, "\n") && placed.Column >= 1,
				"error without a place: %v", err)
			return
		}
		text = printed(file.Types)
		again, err := parseOne(text)
		assert.NilError(t, err, text)
		got := printed(again.Types)
		assert.Check(t, got == text, "printed as\n%s, then as\n%s", text, got)
	})
}
