package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// isV8Function reports whether a word is of a function: others are of kinds of frames that V8 has besides.
func isV8Function(word libpf.EbpfFrame) bool {
	return word.Variable(0)&support.V8FileTypeMask != support.V8FileTypeMarker
}

// isPlaceless reports whether a word is of a function of V8 of which the engine does not know the place: it has its
// first line then, and in code of V8's first compiler the line of the next byte code.
func isPlaceless(word libpf.EbpfFrame) bool {
	if word.Type() != libpf.V8Frame {
		return false
	}
	kind := word.Variable(0) & support.V8FileTypeMask
	return kind == support.V8FileTypeNativeSFI || kind == support.V8FileTypeNativeJSFunc
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

// baselineLine returns the line of a place in code of V8's first compiler, which has a table of how long the code is
// that makes the frame, and that of each byte code, 0 when it is not known.
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
	end, size := binary.Uvarint(lengths)
	for at := 0; size > 0; {
		lengths = lengths[size:]
		var n uint64
		n, size = binary.Uvarint(lengths)
		if end += n; size > 0 && end > offset {
			return r.byteCodeLine(function, f, int64(at))
		}
		next := r.opcodeBytes(byteCode[min(at, len(byteCode)):])
		if next == 0 {
			return 0
		}
		at += next
	}
	return 0
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
