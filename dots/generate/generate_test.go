package generate

import (
	"errors"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/language"
)

// The committed code is what is generated now, and so for each file independent of where and when.
func TestCommittedCode(t *testing.T) {
	for _, file := range []struct{ dir, name, pkg string }{
		{"../system/", "system", "system"}, {"../internal/demo/", "demo", "demo"}, {"../internal/demo/", "odd", "demo"},
	} {
		text, err := os.ReadFile(file.dir + file.name + ".dots")
		assert.NilError(t, err)
		want, err := os.ReadFile(file.dir + file.name + "_types.go")
		assert.NilError(t, err)
		got, err := FromSource(Options{Package: file.pkg, Source: file.name + ".dots"}, text, nil)
		assert.NilError(t, err)
		assert.Check(t, string(got) == string(want),
			"%s_types.go is not generated from %s.dots: run make generate", file.name, file.name)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"id": "ID", "userId": "UserID", "user_id": "UserID", "ID": "ID", "IDs": "IDs", "idName": "IDName",
		"IDName":     "IDName",
		"HTTPServer": "HTTPServer", "serverUrl": "ServerURL", "userCpuTime": "UserCPUTime", "i8": "I8", "uid": "UID",
		"early_subscribe": "EarlySubscribe", "isIn": "IsIn", "MAX_VALUE": "MAXVALUE", "_": "X", "__": "X", "_1": "X1",
		"_a_": "A", "a__b": "AB", "nrTypes": "NrTypes", "x": "X", "a1B": "A1B",
	} {
		got := goName(name)
		assert.Check(t, got == want, "%s becomes %s, not %s", name, got, want)
	}
	for name, want := range map[string]string{"DemoUrl": "DemoUrl", "demo_url": "DemoURL", "Demo_Url": "DemoURL",
		"demo": "Demo"} {
		got := typeName(name)
		assert.Check(t, got == want, "type %s becomes %s, not %s", name, got, want)
	}
	got := fieldName("valid")
	assert.Check(t, got == "ValidProperty", "valid becomes %s", got)
}

// A vector, or a struct with one, is in a key as it is encoded: values of Go's maps are compared.
func TestKeyWithVector(t *testing.T) {
	code, err := FromSource(Options{Package: "p", Source: "a.dots"}, []byte(
		"struct A { 1: [key] B b; 2: [key] uint8 n; } struct B { 1: C c; } struct C { 1: vector<bool> a; } "+
			"struct D { 1: [key] vector<C> c; 2: bool b; }"), nil)
	assert.NilError(t, err)
	for _, want := range []string{
		"type AKey struct {\n\tB string // encoded\n\tN uint8\n}\n",
		"func (x *A) Key() AKey {\n\tv0 := x.B.Value()\n\treturn AKey{B: string(v0.AppendInstance(nil, v0.Valid())), " +
			"N: x.N.Value()}\n}\n",
		"type DKey struct {\n\tC string // encoded\n}\n",
		"func (x *D) Key() DKey {\n\tv0 := D{C: value.Some(x.C.Value())}\n\treturn DKey{C: string(v0.AppendInstance(nil, " +
			"v0.Valid()))}\n}\n",
	} {
		assert.Check(t, strings.Contains(string(code), want), "%s\n%s", want, code)
	}
}

func TestUnsupported(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"two properties", "struct A { 1: bool aB; 2: bool a_b; }",
			"a.dots: properties aB and a_b of A would both be AB in Go: unsupported"},
		{"two types", "struct A_b { 1: bool a; } enum AB { 1: a }", "a.dots: A_b and AB would both be AB in Go: unsupported"},
		{"two enumerators", "enum A { 1: aB 2: a_b 3: A_b }",
			"a.dots: enumerator A.a_b and enumerator A.A_b would both be AABEnumerator in Go: unsupported"},
		{"type like a key", "struct A { 1: bool a; } struct AKey { 1: bool a; } struct AKeyType { 1: bool a; }",
			"a.dots: AKeyType and the key of A would both be AKeyType in Go: unsupported"},
		{"key of a struct with any type", "struct A { 1: [key] B b; } struct B { 1: any a; }",
			"a.dots: property A.b, a key of type B: unsupported"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, err := FromSource(Options{Package: "p", Source: "a.dots"}, []byte(test.text), nil)
			assert.Check(t, code == nil && errors.Is(err, ErrUnsupported) && err.Error() == test.want,
				"error %v, not %s", err, test.want)
		})
	}
	var placed *language.Error
	_, err := FromSource(Options{Source: "dir/a.dots"}, []byte("\nstruct"), nil)
	assert.Check(t, errors.As(err, &placed) && strings.HasPrefix(err.Error(), "dir/a.dots:2:7: "), "error %v", err)
}

// Names of types, keys, enumerators and properties make way for each other, also of several files.
func TestNamesMakeWay(t *testing.T) {
	files, err := language.Parse(nil,
		language.Source{Name: "a.dots", Text: []byte("struct Room { 1: [key] bool id; 2: A a; } enum A { 1: b 2: c }")},
		language.Source{Name: "b.dots", Text: []byte("struct RoomKey { 1: bool a; } enum AB { 1: a } struct RoomID { 1: bool a; }")},
		language.Source{Name: "c.dots", Text: []byte("enum Ro { 1: omA } enum R { 1: oomA }")})
	assert.NilError(t, err)
	codes, err := Go("p", files...)
	assert.NilError(t, err)
	declared := make(map[string]bool)
	for i, code := range codes {
		file, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
		assert.NilError(t, err)
		for name := range names(file) {
			assert.Check(t, !declared[name], "file %d: %s is declared twice", i, name)
			declared[name] = true
		}
	}
	for _, name := range []string{"RoomKeyType", "RoomKeyKey", "ABEnumerator", "RoomIDProperty"} {
		assert.Check(t, declared[name], "%s is not declared", name)
	}
}

// names returns the types, constants, variables and functions of a file, methods excepted.
func names(file *ast.File) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && !yield(d.Name.Name) {
					return
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					var declared []*ast.Ident
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						declared = []*ast.Ident{spec.Name}
					case *ast.ValueSpec:
						declared = spec.Names
					}
					for _, name := range declared {
						if !yield(name.Name) {
							return
						}
					}
				}
			}
		}
	}
}

func TestWithoutTypes(t *testing.T) {
	code, err := FromSource(Options{Package: "p", Source: "dir/a.dots"}, []byte("// nothing"), nil)
	const want = "// Code generated from a.dots by correlator/dots/generate. DO NOT EDIT.\n\npackage p\n"
	assert.Check(t, err == nil && string(code) == want, "%s, error %v", code, err)
}

// Whatever is described becomes code as gofmt has it, but for the text of comments, or is unsupported.
func FuzzGo(f *testing.F) {
	for _, name := range []string{"../internal/demo/demo.dots", "../internal/demo/odd.dots", "../system/system.dots"} {
		text, err := os.ReadFile(name)
		assert.NilError(f, err)
		f.Add(string(text))
	}
	f.Add("/// a\x00\ufeff\r*/ b\nstruct A { 1: bool a; ///< \x01\n}")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := language.Parse(nil, language.Source{Text: []byte(text)}); err != nil {
			return
		}
		code, err := FromSource(Options{Package: "p", Source: "a.dots"}, []byte(text), nil)
		if err != nil {
			assert.Assert(t, errors.Is(err, ErrUnsupported), err)
			return
		}
		again, err := format.Source(code)
		assert.Check(t, err == nil && withoutComments(again) == withoutComments(code), "formatted: %v\n%s\n%s", err,
			code, again)
	})
}

// withoutComments returns code without lines that are comments: gofmt changes what looks like a list or a heading.
func withoutComments(code []byte) string {
	return regexp.MustCompile(`(?m)^\t*//.*\n`).ReplaceAllString(string(code), "")
}
