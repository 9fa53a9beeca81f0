// Package language reads type descriptions, .dots files:
//
//	file     = { "import" ident | "package" ident { "." ident } | struct | enum } .
//	struct   = "struct" ident [ options ] "{" property { property } "}" .
//	property = number ":" [ options ] type ident ";" .
//	type     = "vector" "<" type ">" | ident .
//	enum     = "enum" ident "{" item { item } "}" .
//	item     = number ":" ident [ "=" [ "-" ] number ] [ "," ] .
//	options  = "[" ident [ "=" value ] { "," ident [ "=" value ] } "]" .
//	value    = string | "true" | "false" .
//
// Comments begin with // or are between /* and */. Those that begin with /// document the struct,
// enum, property or enumerator behind them, or, like those that begin with ///< or //<, the
// property or enumerator before them on the same line. No word is reserved: a struct may be named struct.
//
// Structs have the options cached, which is true unless it is switched off, internal, persistent,
// cleanup, local and substruct_only; properties have key and deprecated. Other options are ignored,
// as other implementations do.
package language

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"correlator/dots/schema"
)

// maxSource is the size of the largest file that is read. People write files of some KB.
const maxSource = 4 << 20

// Source is a file to parse.
type Source struct {
	Name string // for messages
	Text []byte
}

// File is what a file defines.
type File struct {
	Name    string
	Package string         // as written, "a.b": without effect
	Imports []string       // names of types that are defined in other files
	Types   []*schema.Type // structs and enums in the order of declaration
}

// Error is an error at a place in a file.
type Error struct {
	File         string
	Line, Column int // from 1; columns are counted in bytes
	Err          error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err) }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Parse reads files. Each may use the types that all of them define, and those that resolve returns
// for other names; a Registry's ResolveType is such a function, nil stands for one that knows none.
// Errors about the text are of type *Error. The first one ends the reading.
func Parse(resolve func(name string) (*schema.Type, error), sources ...Source) ([]*File, error) {
	if resolve == nil {
		resolve = schema.NewRegistry().ResolveType
	}
	b := &builder{resolve: resolve, declared: make(map[string]*declaration)}
	files := make([]*File, len(sources))
	declarations := make([][]*declaration, len(sources))
	for i, source := range sources {
		p, err := parse(source)
		if err != nil {
			return nil, err
		}
		files[i], declarations[i] = p.file, p.declarations
		for _, d := range p.declarations {
			if other := b.declared[d.name]; other != nil {
				return nil, d.at.errorf("%s is defined at %s:%d:%d already", d.name, other.at.file, other.at.line,
					other.at.column)
			}
			b.declared[d.name] = d
		}
	}
	for i, file := range files {
		for _, d := range declarations[i] {
			t, err := b.build(d, 1)
			if err != nil {
				return nil, err
			}
			file.Types = append(file.Types, t)
		}
	}
	return files, nil
}

func parse(source Source) (*parser, error) {
	start := position{file: source.Name, line: 1, column: 1}
	if len(source.Text) > maxSource {
		return nil, start.errorf("file of %d bytes, more than %d", len(source.Text), maxSource)
	}
	if !utf8.Valid(source.Text) {
		return nil, start.errorf("not UTF-8")
	}
	p := &parser{scanner: scanner{text: string(source.Text), at: start}, file: &File{Name: source.Name}}
	p.parseFile()
	return p, p.err
}

// position is a place in a file.
type position struct {
	file         string
	line, column int
}

func (p position) errorf(format string, args ...any) error {
	return p.wrap(fmt.Errorf(format, args...))
}

// wrap adds the position to an error, unless it has one.
func (p position) wrap(err error) error {
	var placed *Error
	if errors.As(err, &placed) {
		return err
	}
	return &Error{File: p.file, Line: p.line, Column: p.column, Err: err}
}
