package unwind

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"unicode/utf16"
)

const (
	// maxV8CodeBytes bounds how far before a program counter the beginning of its code is looked for. What
	// is compiled has some kilobytes.
	maxV8CodeBytes = 1 << 20

	// maxV8TableBytes bounds a table of positions, and a function's byte code.
	maxV8TableBytes = 512 << 10

	// maxV8SourceBytes bounds the text of a script that is read for the ends of its lines, where V8 has not
	// found these.
	maxV8SourceBytes = 16 << 20

	// maxV8Lines bounds the lines of a script that are known, maxV8AllLines those of all scripts at a time, each of
	// 4 bytes, and maxV8Scripts the scripts.
	maxV8Lines, maxV8AllLines, maxV8Scripts = 1 << 18, 1 << 20, 64

	// maxV8Characters bounds what is read of texts in a request. A script is read once.
	maxV8Characters = 4 * maxV8SourceBytes

	// maxV8Depth bounds how deep a string is made of others.
	maxV8Depth = 16

	// maxV8Locals is how many variables of a context have their names in the description of a scope: with
	// more, it has a table of them.
	maxV8Locals = 75

	// v8ScopeWords is how many words after those of variables the names of a function are looked for in. At
	// most five come before.
	v8ScopeWords = 6

	v8UserBits = 47 // of an address
)

var errV8Object = errors.New("not the object of V8 that was expected")

// v8Reader reads V8's objects in a process, for one word. A collector of garbage may move them meanwhile, so the type
// of each is checked, and what refers to which is recorded: as long as that is the same, so are names.
type v8Reader struct {
	*v8Layout
	words   io.ReaderAt // by pages, recorded
	pages   io.ReaderAt // by pages
	memory  io.ReaderAt // for what is large
	scripts *v8Scripts
	reads   int
}

// maxV8Reads bounds what is read for one word, some 100 in practice: strings may be made of others without end.
const maxV8Reads = 1 << 12

// v8Script is a file of JavaScript, or other text.
type v8Script struct {
	file string
	ends []uint32 // of lines; nil: they are not known
}

// v8Scripts are the scripts that were read in a request.
type v8Scripts struct {
	known      map[uint64]*v8Script
	lines      int  // of them
	characters int  // that were read of their texts
	isShort    bool // more would have been
}

func newV8Scripts() *v8Scripts { return &v8Scripts{known: make(map[uint64]*v8Script)} }

// add adds a script. Where there is no room for it, the others are forgotten, and read again when they are needed.
func (s *v8Scripts) add(at uint64, script *v8Script) {
	if len(s.known) == maxV8Scripts || s.lines+len(script.ends) > maxV8AllLines {
		clear(s.known)
		s.lines = 0
	}
	s.known[at], s.lines = script, s.lines+len(script.ends)
}

// spend counts characters before they are read; an error says that they may not be.
func (s *v8Scripts) spend(characters uint32) error {
	if int(characters) > maxV8Characters-s.characters {
		s.isShort = true
		return errV8Object
	}
	s.characters += int(characters)
	return nil
}

// end forgets what was read in a request.
func (s *v8Scripts) end() {
	clear(s.known)
	s.lines, s.characters, s.isShort = 0, 0, false
}

// v8Function is a function's name and script.
type v8Function struct {
	name   string
	script *v8Script
}

func (r *v8Reader) uint64(at uint64) (uint64, error) {
	if r.reads++; r.reads > maxV8Reads {
		return 0, errV8Object
	}
	var b [8]byte
	_, err := r.words.ReadAt(b[:], int64(at))
	return binary.LittleEndian.Uint64(b[:]), err
}

// object returns the address and the type of an object that a tagged word refers to, perhaps weakly.
func (r *v8Reader) object(tagged uint64) (at uint64, kind uint32, err error) {
	if tagged&v8Tag == 0 || tagged>>v8UserBits != 0 {
		return 0, 0, errV8Object
	}
	at = tagged &^ v8TagMask
	class, err := r.uint64(at + v8MapOffset)
	if err != nil {
		return 0, 0, err
	}
	kind, err = r.typeOf(class)
	return at, kind, err
}

// typeOf returns the type of objects with a map, which is a tagged word.
func (r *v8Reader) typeOf(class uint64) (uint32, error) {
	if r.reads++; r.reads > maxV8Reads || class&v8TagMask != v8Tag || class>>v8UserBits != 0 {
		return 0, errV8Object
	}
	var b [2]byte
	_, err := r.pages.ReadAt(b[:], int64(class-v8Tag+v8TypeOffset))
	return uint32(binary.LittleEndian.Uint16(b[:])), err
}

// objectAt returns the address and the type of the object that a word at an address refers to.
func (r *v8Reader) objectAt(at uint64) (object uint64, kind uint32, err error) {
	tagged, err := r.uint64(at)
	if err != nil {
		return 0, 0, err
	}
	return r.object(tagged)
}

// field is objectAt for an object of one of some types.
func (r *v8Reader) field(at uint64, kinds ...uint32) (object uint64, kind uint32, err error) {
	object, kind, err = r.objectAt(at)
	if err == nil && !slices.Contains(kinds, kind) {
		err = errV8Object
	}
	return object, kind, err
}

// smi returns a small integer, which is in the upper half of a word.
func smi(word uint64) (uint32, bool) { return uint32(word >> 32), word&(1<<32-1) == 0 }

// elements returns what is in an array of so many bytes for each element.
func (r *v8Reader) elements(array uint64, size, limit uint32) ([]byte, error) {
	word, err := r.uint64(array + uint64(r.arrayLength))
	if err != nil {
		return nil, err
	}
	n, ok := smi(word)
	if !ok || n > limit/size {
		return nil, errV8Object
	}
	b := make([]byte, n*size)
	_, err = r.memory.ReadAt(b, int64(array)+int64(r.arrayData))
	return b, err
}

// code returns the code that has a program counter: V8 has it in a stream of instructions that begins with what it
// is. No such stream is in another one, and what is found says where it ends.
func (r *v8Reader) code(pc uint64) (code uint64, err error) {
	page, start := make([]byte, pageBytes+8), uint64(0)
	for at := pc &^ 7; at > pc-min(pc, maxV8CodeBytes); at -= 8 {
		if start == 0 || at < start {
			start = at &^ (pageBytes - 1)
			if _, err := r.pages.ReadAt(page, int64(start)); err != nil {
				// The next page may not be there.
				if _, err := r.pages.ReadAt(page[:pageBytes], int64(start)); err != nil {
					return 0, err
				}
			}
		}
		class, owner := binary.LittleEndian.Uint64(page[at-start:]), binary.LittleEndian.Uint64(page[at-start+8:])
		if class&v8TagMask != v8Tag || owner&v8TagMask != v8Tag || class>>v8UserBits != 0 || owner>>v8UserBits != 0 {
			continue
		}
		if kind, err := r.typeOf(class); err != nil || kind != r.typeStream {
			continue
		}
		code, kind, err := r.object(owner)
		if err != nil || kind != r.typeCode {
			continue
		}
		first, err := r.uint64(code + uint64(r.codeStart))
		if err != nil || first != at+uint64(r.streamStart) {
			continue
		}
		size, err := r.uint64(code + uint64(r.codeSize))
		if err != nil || pc < first || pc-first >= uint64(uint32(size)) {
			return 0, errV8Object
		}
		return code, nil
	}
	return 0, errV8Object
}

// function returns the name and the script of a function, by a tagged word.
func (r *v8Reader) function(tagged uint64) (*v8Function, error) {
	at, kind, err := r.object(tagged)
	if err != nil {
		return nil, err
	}
	if kind != r.typeSFI {
		return nil, errV8Object
	}
	f := &v8Function{name: "<anonymous>", script: new(v8Script)}
	word, err := r.uint64(at + uint64(r.sfiName))
	if err != nil {
		return nil, err
	}
	if name, kind, err := r.object(word); err == nil {
		text := ""
		switch {
		case kind == r.typeScope:
			text, err = r.scopeName(name)
		case kind < r.notString:
			text, err = r.text(name, kind, maxV8Depth)
		}
		if err != nil || text != "" { // a name that cannot be read is not known
			f.name = text
		}
	}
	f.name = boundName(f.name)
	if script, _, err := r.field(at+uint64(r.sfiScript), r.typeScript); err == nil {
		f.script = r.script(script)
	}
	return f, nil
}

// scopeName returns the name of a function, or else what V8 has inferred, from the description of its scope: after
// names and descriptions of variables, there are words for what it has, the names first. It is empty if there is none.
func (r *v8Reader) scopeName(scope uint64) (string, error) {
	words := scope + 8
	word, err := r.uint64(words + 8*uint64(r.scopeLocals))
	locals, ok := smi(word)
	if err != nil || !ok || locals > maxV8TableBytes {
		return "", cmp.Or(err, errV8Object)
	}
	variables := 2 * uint64(locals)
	if locals > maxV8Locals {
		variables = 1 + uint64(locals)
	}
	for i := range uint64(v8ScopeWords) {
		word, err := r.uint64(words + 8*(uint64(r.scopeVariables)+variables+i))
		if err != nil {
			return "", err
		}
		at, kind, err := r.object(word)
		if err != nil {
			continue // a number
		}
		if kind == r.typeScope {
			return "", nil // that of the outer scope: there are no more names
		}
		if kind >= r.notString {
			continue
		}
		if text, err := r.text(at, kind, maxV8Depth); err != nil || text != "" {
			return text, err
		}
	}
	return "", nil
}

// text returns a string of at most maxNameBytes characters.
func (r *v8Reader) text(at uint64, kind uint32, depth int) (string, error) {
	var text []byte
	left := uint32(maxNameBytes)
	err := r.characters(at, kind, 0, &left, depth, func(_ uint32, units []uint16) error {
		text = append(text, string(utf16.Decode(units))...)
		return nil
	})
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// characters calls a function with the characters of a string, from one on, in parts: as many as are left, which the
// parts of a string that is made of others say themselves. Strings that are outside of V8's memory are not read.
func (r *v8Reader) characters(at uint64, kind, from uint32, left *uint32, depth int,
	do func(from uint32, units []uint16) error) error {
	word, err := r.uint64(at + uint64(r.stringLength))
	length := uint32(word)
	if err != nil {
		return err
	}
	if depth == 0 || kind >= r.notString || length > *left {
		return errV8Object
	}
	part := func(offset uint32, from uint32) error {
		object, kind, err := r.stringField(at + uint64(offset))
		if err != nil {
			return err
		}
		return r.characters(object, kind, from, left, depth-1, do)
	}
	switch kind & r.formMask {
	case 0:
		*left -= length
		return r.sequential(at, kind&r.encodingMask == r.oneByte, length, from, do)
	case r.consString:
		n, count := from, do
		do = func(from uint32, units []uint16) error {
			n = max(n, from+uint32(len(units)))
			return count(from, units)
		}
		if err := part(r.consFirst, from); err != nil {
			return err
		}
		return part(r.consSecond, n)
	case r.thinString:
		return part(r.thinActual, from)
	}
	return errors.ErrUnsupported
}

// stringField is objectAt for a string.
func (r *v8Reader) stringField(at uint64) (object uint64, kind uint32, err error) {
	object, kind, err = r.objectAt(at)
	if err == nil && kind >= r.notString {
		err = errV8Object
	}
	return object, kind, err
}

// sequential calls a function with the characters of a string that has them behind each other.
func (r *v8Reader) sequential(at uint64, oneByte bool, length, from uint32,
	do func(from uint32, units []uint16) error) error {
	const partUnits = 16 << 10
	start, size := at+uint64(r.twoByteChars), uint32(2)
	if oneByte {
		start, size = at+uint64(r.oneByteChars), 1
	}
	reader := r.memory
	if length <= maxNameBytes {
		reader = r.pages
	} else if err := r.scripts.spend(length); err != nil {
		return err
	}
	b, units := make([]byte, min(length, partUnits)*size), make([]uint16, 0, min(length, partUnits))
	for done := uint32(0); done < length; {
		n := min(length-done, partUnits)
		if _, err := reader.ReadAt(b[:n*size], int64(start)+int64(done)*int64(size)); err != nil {
			return err
		}
		units = units[:0]
		for i := range n {
			if oneByte {
				units = append(units, uint16(b[i]))
			} else {
				units = append(units, binary.LittleEndian.Uint16(b[2*i:]))
			}
		}
		if err := do(from+done, units); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// script returns the file of a script and the ends of its lines, each read once in a request.
func (r *v8Reader) script(at uint64) *v8Script {
	if known := r.scripts.known[at]; known != nil {
		return known
	}
	s := new(v8Script)
	if name, kind, err := r.stringField(at + uint64(r.scriptName)); err == nil {
		if text, err := r.text(name, kind, maxV8Depth); err == nil {
			s.file = boundName(text)
		}
	}
	if ends, _, err := r.field(at+uint64(r.scriptLineEnds), r.typeArray); err == nil {
		if words, err := r.elements(ends, 8, 8*maxV8Lines); err == nil {
			s.ends = make([]uint32, len(words)/8)
			for i := range s.ends {
				s.ends[i], _ = smi(binary.LittleEndian.Uint64(words[8*i:]))
			}
		}
	}
	if s.ends == nil {
		s.ends = r.lineEnds(at + uint64(r.scriptSource))
	}
	r.scripts.add(at, s)
	return s
}

// lineEnds returns the ends of the lines of the text that a word at an address refers to, nil when it cannot be read.
func (r *v8Reader) lineEnds(at uint64) []uint32 {
	source, kind, err := r.stringField(at)
	if err != nil {
		return nil
	}
	ends, before, left := make([]uint32, 0, 128), uint16(0), uint32(maxV8SourceBytes)
	err = r.characters(source, kind, 0, &left, maxV8Depth, func(from uint32, units []uint16) error {
		for i, unit := range units {
			switch {
			case unit == '\n' && before == '\r':
				ends[len(ends)-1]++
			case unit == '\n', unit == '\r', unit == '\u2028', unit == '\u2029':
				ends = append(ends, from+uint32(i))
			}
			before = unit
		}
		if len(ends) > maxV8Lines {
			return errV8Object
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return ends
}
