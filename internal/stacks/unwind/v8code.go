package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf16"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
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

// field returns the object, of one of some types, that a word at an address refers to.
func (r *v8Reader) field(at uint64, kinds ...uint32) (uint64, uint32, error) {
	tagged, err := r.uint64(at)
	if err != nil {
		return 0, 0, err
	}
	object, kind, err := r.object(tagged)
	if err != nil {
		return 0, 0, err
	}
	for _, wanted := range kinds {
		if kind == wanted {
			return object, kind, nil
		}
	}
	return 0, 0, errV8Object
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

// isV8Function reports whether a word is of a function: others are of kinds of frames that V8 has besides.
func isV8Function(word libpf.EbpfFrame) bool {
	return word.Variable(0)&support.V8FileTypeMask != support.V8FileTypeMarker
}

// isPlaceless reports whether a word is of a function of V8 of which the place is not known: the engine has its first
// line then.
func isPlaceless(word libpf.EbpfFrame) bool {
	return word.Type() == libpf.V8Frame && word.Variable(0)&support.V8FileTypeMask == support.V8FileTypeNativeSFI
}

// frames returns the frames of a word: those of calls that are inlined, and of the function.
func (r *v8Reader) frames(word libpf.EbpfFrame) ([]Frame, error) {
	function := word.Variable(0) &^ support.V8FileTypeMask
	variable := word.Variable(1)
	switch word.Variable(0) & support.V8FileTypeMask {
	case support.V8FileTypeByteCode:
		return r.interpreted(function, variable)
	case support.V8FileTypeNativeSFI:
		return r.alone(function)
	case support.V8FileTypeNativeCode:
		pc, kind := programCounter(variable)
		if kind != v8Compiled {
			return r.alone(function)
		}
		return r.compiled(function, pc, word.Flags().ReturnAddress())
	}
	return nil, fmt.Errorf("word %x of V8: %w", word, errors.ErrUnsupported)
}

// alone returns the frame of a function of which the place is not known.
func (r *v8Reader) alone(function uint64) ([]Frame, error) {
	f, err := r.function(function | v8Tag)
	if err != nil {
		return nil, err
	}
	return []Frame{f.frame(0)}, nil
}

// interpreted returns the frame of a function of which the place in the byte code is known.
func (r *v8Reader) interpreted(function, variable uint64) ([]Frame, error) {
	f, err := r.function(function | v8Tag)
	if err != nil {
		return nil, err
	}
	at := int64(variable&support.V8LineDeltaMask) - int64(r.byteCodeData-v8Tag)
	return []Frame{f.frame(r.byteCodeLine(function, f, at))}, nil
}

// compiled returns the frames of a place in code that was compiled, in the frame of a function.
func (r *v8Reader) compiled(function, pc uint64, returnAddress bool) ([]Frame, error) {
	code, err := r.code(pc)
	if err != nil {
		return r.alone(function)
	}
	first, err := r.uint64(code + uint64(r.codeStart))
	if err != nil {
		return nil, err
	}
	offset := pc - first
	if returnAddress && offset > 0 {
		offset--
	}
	flags, err := r.uint64(code + uint64(r.codeFlags))
	if err != nil {
		return nil, err
	}
	if uint32(flags)&r.kindMask>>r.kindShift == r.kindBaseline {
		f, err := r.function(function | v8Tag)
		if err != nil {
			return nil, err
		}
		return []Frame{f.frame(r.baselineLine(code, function, f, offset))}, nil
	}
	frames, of, err := r.optimized(code, offset)
	if err != nil || of == function {
		return frames, err
	}
	if returnAddress {
		return r.alone(function)
	}
	// It has just been called, and has no frame yet, or no more.
	callers, err := r.alone(function)
	return append(frames, callers...), err
}

// optimized returns the frames of a place in optimized code, and the address of the function that was compiled.
func (r *v8Reader) optimized(code, offset uint64) (frames []Frame, of uint64, err error) {
	deopt, _, err := r.field(code+uint64(r.codeWrapper)-16, r.typeDeopt, r.typeOldDeopt)
	if err != nil {
		return nil, 0, err
	}
	index := func(i uint32) uint64 { return deopt + uint64(r.arrayData) + 8*uint64(i) }
	of, outer, err := r.functionField(index(r.deoptFunction))
	if err != nil {
		return nil, 0, err
	}
	positions, err := r.positions(code + uint64(r.codeWrapper) - 8)
	if err != nil {
		return []Frame{outer.frame(0)}, of, nil
	}
	if r.seen[r.tables()] < maxV8Misread || r.tables() == v8TablesDifferent {
		if code, err := r.byteCode(of); err == nil {
			_, _ = r.byteCodePositions(code)
		}
	}
	position := r.tables().positionAt(positions, offset)
	if position.inlined() != 0 {
		inlined, _, err := r.field(index(r.deoptInlined), r.typeTrustedBytes, r.typeBytes)
		if err != nil {
			return nil, 0, err
		}
		calls, err := r.elements(inlined, 1, maxV8TableBytes)
		if err != nil {
			return nil, 0, err
		}
		// The number of a call is greater than that of the call that it is inlined in.
		for id := position.inlined(); id != 0; id = position.inlined() {
			at := int(id-1) * v8InlinedBytes
			if at+v8InlinedBytes > len(calls) || len(frames) == maxFrames {
				return nil, 0, errV8Object
			}
			f, err := r.inlinedFunction(index, binary.LittleEndian.Uint32(calls[at+8:]))
			if err != nil {
				return nil, 0, err
			}
			frames = append(frames, f.frame(f.script.line(position)))
			position = v8Position(binary.LittleEndian.Uint64(calls[at:]))
			if position.inlined() >= id {
				return nil, 0, errV8Object
			}
		}
	}
	return append(frames, outer.frame(outer.script.line(position))), of, nil
}

// v8InlinedBytes is the size of what V8 has of an inlined call: its position and the number of its function.
const v8InlinedBytes = 16

// inlinedFunction returns a function that optimized code has inlined: it is one of the literals.
func (r *v8Reader) inlinedFunction(index func(uint32) uint64, number uint32) (*v8Function, error) {
	if number > maxV8TableBytes {
		return nil, errV8Object
	}
	for _, of := range []uint32{r.deoptLiterals, r.deoptLiterals - 1} {
		literals, _, err := r.field(index(of), r.typeLiterals, r.typeDeopt, r.typeOldLiterals)
		if err != nil {
			continue
		}
		if _, f, err := r.functionField(literals + uint64(r.arrayData) + 8*uint64(number)); err == nil {
			return f, nil
		}
	}
	return nil, errV8Object
}

// functionField returns the function that a word at an address refers to, or to what wraps it.
func (r *v8Reader) functionField(at uint64) (uint64, *v8Function, error) {
	object, kind, err := r.field(at, r.typeSFI, r.typeWrappedSFI)
	if err != nil {
		return 0, nil, err
	}
	if kind == r.typeWrappedSFI {
		if object, _, err = r.field(object+uint64(r.wrappedSFI), r.typeSFI); err != nil {
			return 0, nil, err
		}
	}
	f, err := r.function(object | v8Tag)
	return object, f, err
}

// positions returns the table of positions that a word at an address refers to.
func (r *v8Reader) positions(at uint64) ([]byte, error) {
	table, _, err := r.field(at, r.typeTrustedBytes, r.typeBytes)
	if err != nil {
		return nil, err
	}
	return r.elements(table, 1, maxV8TableBytes)
}

// byteCode returns a function's byte code.
func (r *v8Reader) byteCode(function uint64) (uint64, error) {
	object, kind, err := r.field(function+v8SFIData, r.typeByteCode, r.typeCode, r.typeInterpreterData)
	switch {
	case err != nil:
		return 0, err
	case kind == r.typeCode: // that of the first compiler has it where that of others has what was inlined
		object, kind, err = r.field(object+uint64(r.codeWrapper)-16, r.typeByteCode, r.typeInterpreterData)
	}
	if err == nil && kind == r.typeInterpreterData {
		object, _, err = r.field(object+8, r.typeByteCode)
	}
	return object, err
}

// byteCodeLine returns the line of a place in a function's byte code, 0 when it is not known.
func (r *v8Reader) byteCodeLine(function uint64, f *v8Function, at int64) uint32 {
	code, err := r.byteCode(function)
	if err != nil || at < 0 {
		return 0
	}
	word, err := r.uint64(code + uint64(r.byteCodeLength))
	if err != nil {
		return 0
	}
	if length, ok := smi(word); !ok || at >= int64(length) {
		return 0
	}
	table, err := r.byteCodePositions(code)
	if err != nil {
		return 0 // V8 makes it when it is needed first
	}
	return f.script.line(r.tables().positionAt(table, uint64(at)))
}

// byteCodePositions returns the table of positions of byte code, and learns from it how such are written. One that is
// written otherwise than most is none: it may have been moved while it was read.
func (r *v8Reader) byteCodePositions(code uint64) ([]byte, error) {
	table, err := r.positions(code + uint64(r.byteCodeWrapper) + 8)
	if err != nil {
		return nil, err
	}
	seen := tablesOf(table)
	r.seen[seen]++
	if seen != v8TablesUnknown && seen != r.tables() {
		return nil, errV8Object
	}
	return table, nil
}

// maxV8Misread is in how many tables one may be written otherwise than the others.
const maxV8Misread = 16

// tables returns how nearly all tables of byte code that were read are written.
func (l *v8Layout) tables() v8Tables {
	all := l.seen[v8TablesSigned] + l.seen[v8TablesFlags] + l.seen[v8TablesDifferent]
	if all == 0 {
		return v8TablesUnknown
	}
	for _, tables := range []v8Tables{v8TablesSigned, v8TablesFlags} {
		if others := all - l.seen[tables]; others*maxV8Misread <= all {
			return tables
		}
	}
	return v8TablesDifferent
}

// baselineLine returns the line of a place in code of V8's first compiler, which has a table of how long the code
// of each byte code is, 0 when it is not known.
func (r *v8Reader) baselineLine(code, function uint64, f *v8Function, offset uint64) uint32 {
	lengths, err := r.positions(code + uint64(r.codeWrapper) - 8)
	if err != nil || r.opcodes == nil {
		return 0
	}
	object, err := r.byteCode(function)
	if err != nil {
		return 0
	}
	word, err := r.uint64(object + uint64(r.byteCodeLength))
	length, ok := smi(word)
	if err != nil || !ok || length > maxV8TableBytes {
		return 0
	}
	byteCode := make([]byte, length)
	if _, err := r.memory.ReadAt(byteCode, int64(object)+int64(r.byteCodeData)); err != nil {
		return 0
	}
	at, end := 0, uint64(0)
	for {
		n, size := binary.Uvarint(lengths)
		if size <= 0 {
			return 0
		}
		lengths = lengths[size:]
		if end += n; end > offset {
			return r.byteCodeLine(function, f, int64(at))
		}
		next := r.opcodeBytes(byteCode[min(at, len(byteCode)):])
		if next == 0 {
			return 0
		}
		at += next
	}
}

// opcodeBytes returns the size of the first instruction of byte code, 0 if it is none. The first four byte codes are
// prefixes: the first and the third for operands of twice the size, the others for those of four times.
func (r *v8Reader) opcodeBytes(b []byte) (size int) {
	n, scale := len(r.opcodes)/3, 0
	if len(b) > 0 && b[0] < 4 {
		scale, size, b = 1+int(b[0]&1), 1, b[1:]
	}
	if len(b) == 0 || int(b[0]) >= n {
		return 0
	}
	return size + int(r.opcodes[scale*n+int(b[0])])
}

// v8Position is a position in the text of a script, with the number of the call that is inlined there: from the
// lowest bit on, 1 bit for positions outside of scripts, 30 for the character, from 1 on, 16 for the number.
type v8Position uint64

func (p v8Position) inlined() uint16 { return uint16(p >> 31) }

// character returns the number of the character, from 0 on.
func (p v8Position) character() (uint32, bool) {
	if p&1 != 0 {
		return 0, false
	}
	c := uint32(p>>1) & (1<<30 - 1)
	return c - 1, c > 0
}

// v8Tables is how V8 writes a table of positions: for each entry how far it is behind the one before, in the code, with
// flags, and in the text. V8 does not say it, but each function's byte code begins with the entry of its check of the
// stack, at -1, which tells.
type v8Tables uint8

const (
	v8TablesUnknown   v8Tables = iota
	v8TablesSigned             // below 0, less 1, for what is no statement (seen in V8 13.6)
	v8TablesFlags              // two bits for flags (seen in V8 14.6)
	v8TablesDifferent          // both, or others, are seen
)

// tablesOf returns how a table of byte code is written.
func tablesOf(table []byte) v8Tables {
	switch {
	case len(table) == 0:
		return v8TablesUnknown
	case table[0] == 1: // 0, less 1
		return v8TablesSigned
	case table[0] == 2: // 0, the flags of an expression that can be stopped at
		return v8TablesFlags
	}
	return v8TablesDifferent
}

// positionAt returns the position of the last entry of a table that is not behind an offset.
func (t v8Tables) positionAt(table []byte, offset uint64) v8Position {
	at, position := int64(-1), int64(0)
	for {
		ahead, n := binary.Uvarint(table)
		if n <= 0 {
			return v8Position(position)
		}
		table = table[n:]
		switch t {
		case v8TablesSigned:
			ahead >>= 1 // 2n stands for n, 2n+1 for -n-1
		case v8TablesFlags:
			ahead >>= 2
		default:
			return 0
		}
		if at += int64(ahead); at > int64(offset) || at < -1 {
			return v8Position(position)
		}
		difference, n := binary.Varint(table)
		if n <= 0 {
			return v8Position(position)
		}
		table = table[n:]
		position += difference
	}
}

// line returns the line of a position, 0 when it is not known.
func (s *v8Script) line(p v8Position) uint32 {
	character, ok := p.character()
	if !ok || s.ends == nil {
		return 0
	}
	return 1 + uint32(sort.Search(len(s.ends), func(i int) bool { return s.ends[i] >= character }))
}

func (f *v8Function) frame(line uint32) Frame {
	return Frame{Kind: V8Frame, Function: f.name, SourceFile: f.script.file, Line: line}
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
		switch {
		case kind == r.typeScope:
			if text := r.scopeName(name); text != "" {
				f.name = text
			}
		case kind < r.notString:
			if text, err := r.text(name, kind, maxV8Depth); err == nil && text != "" {
				f.name = text
			}
		}
	}
	f.name = boundName(f.name)
	if script, _, err := r.field(at+uint64(r.sfiScript), r.typeScript); err == nil {
		f.script = r.script(script)
	}
	return f, nil
}

// scopeName returns the name of a function, or else what V8 has inferred, from the description of its scope: after
// names and descriptions of variables, there are words for what it has, the names first.
func (r *v8Reader) scopeName(scope uint64) string {
	words := scope + 8
	word, err := r.uint64(words + 8*uint64(r.scopeLocals))
	locals, ok := smi(word)
	if err != nil || !ok || locals > maxV8TableBytes {
		return ""
	}
	variables := 2 * uint64(locals)
	if locals > maxV8Locals {
		variables = 1 + uint64(locals)
	}
	for i := range uint64(v8ScopeWords) {
		word, err := r.uint64(words + 8*(uint64(r.scopeVariables)+variables+i))
		if err != nil {
			return ""
		}
		at, kind, err := r.object(word)
		if err != nil {
			continue // a number
		}
		if kind == r.typeScope {
			return "" // that of the outer scope: there are no more names
		}
		if kind >= r.notString {
			continue
		}
		if text, err := r.text(at, kind, maxV8Depth); err == nil && text != "" {
			return text
		}
	}
	return ""
}

// text returns a string of at most maxNameBytes characters.
func (r *v8Reader) text(at uint64, kind uint32, depth int) (string, error) {
	var text []byte
	left := uint32(maxNameBytes)
	err := r.characters(at, kind, 0, &left, depth, func(_ uint32, units []uint16) error {
		text = append(text, string(utf16.Decode(units))...)
		return nil
	})
	return string(text), err
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

// stringField returns the string that a word at an address refers to.
func (r *v8Reader) stringField(at uint64) (object uint64, kind uint32, err error) {
	tagged, err := r.uint64(at)
	if err != nil {
		return 0, 0, err
	}
	object, kind, err = r.object(tagged)
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
