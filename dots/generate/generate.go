// Package generate makes Go code of type descriptions. Of
//
//	struct DemoGadget {
//	    1: [key] uint32 id;
//	    2: string name;
//	    3: vector<DemoColor> colors;
//	}
//
// it makes the type DemoGadget with the fields ID, Name and Colors, which may be unset; the sets
// DemoGadgetID, DemoGadgetName and DemoGadgetColors; the comparable type DemoGadgetKey; and methods
// that encode, decode and merge instances without reflection. Of an enum it makes an integer type,
// whose values are the tags, and constants.
//
// The code is formatted and depends on the descriptions only, not on the time or the place.
package generate

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"correlator/dots/language"
	"correlator/dots/schema"
)

// ErrUnsupported is what errors about types wrap that there is no Go code for.
var ErrUnsupported = errors.New("unsupported")

// Options say how code is made.
type Options struct {
	Package string // of the code
	Source  string // what the code is said to be generated from, a file's name
}

// FromSource returns the Go code for a .dots file. Types that it does not define must be known to
// resolve, as language.Parse says, and have Go code in the same package.
func FromSource(options Options, text []byte, resolve func(string) (*schema.Type, error)) ([]byte, error) {
	files, err := language.Parse(resolve, language.Source{Name: options.Source, Text: text})
	if err != nil {
		return nil, err
	}
	codes, err := Go(options.Package, files...)
	if err != nil {
		return nil, err
	}
	return codes[0], nil
}

// Go returns the Go code for each of the files of a package. What their types depend on and is not
// among them must have Go code in the same package.
func Go(pkg string, files ...*language.File) (codes [][]byte, err error) {
	g := &generator{taken: make(map[string]string), keys: make(map[string]string)}
	if err := g.takeNames(files); err != nil {
		return nil, err
	}
	for _, file := range files {
		code, err := g.file(pkg, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		codes = append(codes, code)
	}
	return codes, nil
}

func (g *generator) file(pkg string, file *language.File) ([]byte, error) {
	g.out = bytes.Buffer{}
	for _, t := range file.Types {
		if err := g.addType(t); err != nil {
			return nil, err
		}
	}
	body := g.out
	g.out = bytes.Buffer{}
	g.printf("// Code generated from %s by correlator/dots/generate. DO NOT EDIT.\n\n", path.Base(file.Name))
	g.printf("package %s\n\n", pkg)
	g.imports(file.Types)
	g.out.Write(body.Bytes())
	return layOut(g.out.Bytes())
}

// generator collects code, as lines without indentation: layOut has the rest.
type generator struct {
	out   bytes.Buffer
	taken map[string]string // identifiers of the package: what they are for
	keys  map[string]string // names of the types of keys, by type
}

func (g *generator) printf(format string, args ...any) { fmt.Fprintf(&g.out, format, args...) }

// imports writes the imports that the code for types needs.
func (g *generator) imports(types []*schema.Type) {
	enums := slices.ContainsFunc(types, func(t *schema.Type) bool { return t.Kind == schema.EnumKind })
	structs := slices.ContainsFunc(types, func(t *schema.Type) bool { return t.Kind == schema.StructKind })
	if !enums && !structs {
		return
	}
	g.printf("import (\n")
	if enums {
		g.printf("%q\n", "fmt")
	}
	if structs {
		g.printf("%q\n", "math/bits")
	}
	if enums {
		g.printf("%q\n", "strconv")
	}
	g.printf("\n%q\n%q\n", "correlator/dots/cbor", "correlator/dots/schema")
	if structs {
		g.printf("%q\n", "correlator/dots/value")
	}
	g.printf(")\n\n")
}

// take reserves an identifier of the package.
func (g *generator) take(identifier, what string) error {
	if other, is := g.taken[identifier]; is {
		return fmt.Errorf("%s and %s would both be %s in Go: %w", other, what, identifier, ErrUnsupported)
	}
	g.taken[identifier] = what
	return nil
}

// takeFree reserves an identifier, or, if it is taken, a longer one, and returns it.
func (g *generator) takeFree(identifier, suffix, what string) (string, error) {
	if _, is := g.taken[identifier]; is {
		identifier += suffix
	}
	return identifier, g.take(identifier, what)
}

// takeNames reserves the names of all types, so that all others make way, and then of their keys.
func (g *generator) takeNames(files []*language.File) error {
	for _, file := range files {
		for _, t := range file.Types {
			if err := g.take(typeName(t.Name), t.Name); err != nil {
				return fmt.Errorf("%s: %w", file.Name, err)
			}
		}
	}
	for _, file := range files {
		for _, t := range file.Types {
			if t.Kind != schema.StructKind {
				continue
			}
			key, err := g.takeFree(typeName(t.Name)+"Key", "Type", "the key of "+t.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", file.Name, err)
			}
			g.keys[t.Name] = key
		}
	}
	return nil
}

func (g *generator) addType(t *schema.Type) error {
	switch t.Kind {
	case schema.EnumKind:
		return g.addEnum(t.Enum)
	case schema.StructKind:
		return g.addStruct(t.Struct)
	}
	return fmt.Errorf("type %s, which is neither enum nor struct: %w", t.Name, ErrUnsupported)
}

// comment writes documentation, behind a first line.
func (g *generator) comment(first, doc string) {
	g.printf("// %s\n", first)
	if doc == "" {
		return
	}
	g.printf("//\n")
	for line := range strings.Lines(doc) {
		g.printf("// %s\n", oneLine(line))
	}
}

// oneLine returns documentation as a part of a comment, without what Go does not allow there.
func oneLine(doc string) string {
	printable := strings.Map(func(r rune) rune {
		if r == '\uFEFF' || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, doc)
	return strings.Join(strings.Fields(printable), " ")
}

func (g *generator) addEnum(e *schema.Enum) error {
	name := typeName(e.Name)
	g.comment(name+" is an enum; its values are the tags.", e.Doc)
	g.printf("type %s uint32\n\nconst (\n", name)
	var tags []string
	values := false
	for _, element := range e.Elements {
		what := "enumerator " + e.Name + "." + element.Name
		constant, err := g.takeFree(name+goName(element.Name), "Enumerator", what)
		if err != nil {
			return err
		}
		g.printf("%s\t%s\t= %d", constant, name, element.Tag)
		if note := oneLine(element.Doc); note != "" {
			g.printf("\t// %s", note)
		}
		g.printf("\n")
		tags = append(tags, constant)
		values = values || element.Value != int32(element.Tag-1)
	}
	g.printf(")\n\n")

	g.printf("// String returns the name in the description.\nfunc (x %s) String() string {\nswitch x {\n", name)
	for i, element := range e.Elements {
		g.printf("case %s:\nreturn %q\n", tags[i], element.Name)
	}
	g.printf("}\nreturn %q + strconv.FormatUint(uint64(x), 10) + \")\"\n}\n\n", e.Name+"(")

	if values {
		g.printf("// Value returns the number that the description gives; tags are transmitted instead.\n")
		g.printf("func (x %s) Value() int32 {\nswitch x {\n", name)
		for i, element := range e.Elements {
			g.printf("case %s:\nreturn %d\n", tags[i], element.Value)
		}
		g.printf("}\nreturn 0\n}\n\n")
	}

	descriptor := descriptorName(e.Name)
	g.printf("// Descriptor returns the description.\nfunc (%s) Descriptor() *schema.Enum {\nreturn %s\n}\n\n",
		name, descriptor)
	g.printf("var %s = schema.MustEnum(%q,\n", descriptor, e.Name)
	for _, element := range e.Elements {
		g.printf("schema.Element{Name: %q, Tag: %d, Value: %d},\n", element.Name, element.Tag, element.Value)
	}
	g.printf(")\n\n")

	g.printf("func decode%s(r *cbor.Reader) %s {\nx := %s(r.Uint(32))\nswitch x {\n", name, name, name)
	g.printf("case %s:\nreturn x\n}\n", strings.Join(tags, ", "))
	g.printf("r.Fail(fmt.Errorf(\"enumerator %s %%d: %%w\", x, cbor.ErrRange))\nreturn x\n}\n\n", e.Name)
	return nil
}

// tagBytes returns the encoding of a tag as arguments of append.
func tagBytes(tag uint32) string {
	if tag < 24 {
		return strconv.Itoa(int(tag))
	}
	return "24, " + strconv.Itoa(int(tag))
}
