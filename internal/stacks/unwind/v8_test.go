package unwind

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
)

// v8Heap is memory with objects of V8, each of a type of v8Layout.
type v8Heap struct {
	*v8Layout
	memory map[uint64][]byte // pages
	free   uint64
	maps   map[uint32]uint64 // by type
}

func newV8Heap() *v8Heap {
	h := &v8Heap{v8Layout: new(v8Layout), memory: make(map[uint64][]byte), free: 1 << 40, maps: make(map[uint32]uint64)}
	for i, v := range h.values() { // offsets apart from each other, and types
		*v.value = uint32(16 + 8*i)
	}
	h.kindMask, h.kindShift, h.kindBaseline = 15, 0, 11
	h.notString, h.encodingMask, h.formMask = 0x80, 8, 7
	h.oneByte, h.consString, h.thinString = 8, 1, 5
	h.arrayLength, h.arrayData, h.streamStart, h.scopeLocals, h.scopeVariables, h.byteCodeData = 8, 16, 32, 2, 5, 2048
	h.opcodes = slices.Concat(slices.Repeat([]byte{2}, 8), slices.Repeat([]byte{3}, 8), slices.Repeat([]byte{5}, 8))
	return h
}

// ReadAt implements io.ReaderAt. There are the pages that have something.
func (h *v8Heap) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) {
		start := (uint64(at) + uint64(n)) &^ (pageBytes - 1)
		page := h.memory[start]
		if page == nil {
			return n, io.ErrUnexpectedEOF
		}
		n += copy(b[n:], page[uint64(at)+uint64(n)-start:])
	}
	return n, nil
}

func (h *v8Heap) put(at uint64, words ...uint64) {
	for i, w := range words {
		h.bytes(at+8*uint64(i), binary.LittleEndian.AppendUint64(nil, w))
	}
}

func (h *v8Heap) bytes(at uint64, b []byte) {
	for len(b) > 0 {
		start := at &^ (pageBytes - 1)
		if h.memory[start] == nil {
			h.memory[start] = make([]byte, pageBytes)
		}
		n := copy(h.memory[start][at-start:], b)
		at, b = at+uint64(n), b[n:]
	}
}

// object returns the address of a new object of a type.
func (h *v8Heap) object(kind uint32) uint64 {
	if h.maps[kind] == 0 {
		h.maps[kind] = h.take()
		h.bytes(h.maps[kind]+v8TypeOffset, binary.LittleEndian.AppendUint16(nil, uint16(kind)))
	}
	at := h.take()
	h.put(at, h.maps[kind]|v8Tag)
	return at
}

func (h *v8Heap) take() uint64 {
	h.free += 1 << 20
	return h.free
}

// refer has a word of an object refer to another one.
func (h *v8Heap) refer(at uint64, offset uint32, to uint64) { h.put(at+uint64(offset), to|v8Tag) }

func (h *v8Heap) text(s string) uint64 {
	kind, chars, b := h.oneByte, h.oneByteChars, []byte(nil)
	units := utf16.Encode([]rune(s))
	if slices.ContainsFunc(units, func(u uint16) bool { return u > 255 }) {
		kind, chars = 0, h.twoByteChars
	}
	for _, u := range units {
		if b = append(b, byte(u)); kind == 0 {
			b = append(b, byte(u>>8))
		}
	}
	at := h.object(kind)
	h.put(at+uint64(h.stringLength), uint64(len(units)))
	h.bytes(at+uint64(chars), b)
	return at
}

func (h *v8Heap) cons(first, second uint64, length int) uint64 {
	at := h.object(h.consString)
	h.put(at+uint64(h.stringLength), uint64(length))
	h.refer(at, h.consFirst, first)
	h.refer(at, h.consSecond, second)
	return at
}

// array returns an array of words or bytes.
func (h *v8Heap) array(kind uint32, n int, b []byte) uint64 {
	at := h.object(kind)
	h.put(at+uint64(h.arrayLength), uint64(n)<<32)
	h.bytes(at+uint64(h.arrayData), b)
	return at
}

func (h *v8Heap) words(kind uint32, words ...uint64) uint64 {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return h.array(kind, len(words), b)
}

func (h *v8Heap) script(name, source uint64) uint64 {
	at := h.object(h.typeScript)
	h.refer(at, h.scriptName, name)
	h.refer(at, h.scriptSource, source)
	return at
}

// function returns a function whose name is in its scope, after variables.
func (h *v8Heap) function(name, script uint64, locals int, byteCode uint64) uint64 {
	scope, at := h.object(h.typeScope), h.object(h.typeSFI)
	h.put(scope+8+8*uint64(h.scopeLocals), uint64(locals)<<32)
	variables := 2 * locals
	if locals > maxV8Locals {
		variables = 1 + locals
	}
	for i := range variables {
		h.refer(scope, 8+8*(h.scopeVariables+uint32(i)), h.text("variable"))
	}
	h.refer(scope, 8+8*(h.scopeVariables+uint32(variables)+1), name)
	h.refer(at, h.sfiName, scope)
	h.refer(at, h.sfiScript, script)
	h.refer(at, v8SFIData, byteCode)
	return at
}

// byteCode returns byte code of two bytes for each instruction.
func (h *v8Heap) byteCode(instructions int, positions []byte) uint64 {
	at := h.object(h.typeByteCode)
	h.put(at+uint64(h.byteCodeLength), uint64(2*instructions)<<32)
	h.bytes(at+uint64(h.byteCodeData), slices.Repeat([]byte{5, 0}, instructions))
	h.refer(at, h.byteCodeWrapper+8, h.array(h.typeTrustedBytes, len(positions), positions))
	return at
}

// compile returns the address of the first instruction of code.
func (h *v8Heap) compile(kind uint32, size int, positions, deopt uint64) uint64 {
	stream, code := h.object(h.typeStream), h.object(h.typeCode)
	h.put(stream+8, code|v8Tag)
	first := stream + uint64(h.streamStart)
	h.put(code+uint64(h.codeStart), first)
	h.put(code+uint64(h.codeSize), uint64(size))
	h.put(code+uint64(h.codeFlags), uint64(kind))
	h.refer(code, h.codeWrapper-8, positions)
	h.refer(code, h.codeWrapper-16, deopt)
	return first
}

// positionTable encodes entries: offset, character (from 1 on), number of the inlined call.
func positionTable(tables v8Tables, entries ...[3]int64) (b []byte) {
	offset, position := int64(-1), int64(0)
	for _, e := range entries {
		ahead := uint64(e[0] - offset)
		if tables == v8TablesFlags {
			b = binary.AppendUvarint(b, ahead<<2|2)
		} else {
			b = binary.AppendUvarint(b, ahead<<1|1)
		}
		next := e[1]<<1 | e[2]<<31
		b = binary.AppendVarint(b, next-position)
		offset, position = e[0], next
	}
	return b
}

func (h *v8Heap) reader() *v8Reader {
	return &v8Reader{v8Layout: h.v8Layout, words: h, pages: h, memory: h, scripts: newV8Scripts()}
}

// v8Word is a word as the program of V8 hands it over.
func v8Word(kind, object, variable uint64, returnAddress bool) libpf.EbpfFrame {
	header := uint64(libpf.V8Frame)<<60 | 3<<52
	if returnAddress {
		header |= support.FrameFlagReturnAddress << 56
	}
	return libpf.EbpfFrame{header, object | kind, variable}
}

// pcVariable is the second variable of a word of the kind "code": see addProgramCounters.
func pcVariable(pc uint64, kind uint8) uint64 {
	return (v8SizeMark|pc>>v8LowBits)<<4<<32 | uint64(kind)<<32 | pc&(1<<v8LowBits-1)
}

// A program counter is handed over whole, with the kind of code.
func TestV8ProgramCounter(t *testing.T) {
	for _, pc := range []uint64{0, 1, 1<<24 - 1, 1 << 24, 0x7f665c123456, 1<<47 - 1} {
		for _, kind := range []uint8{v8Interpreted, v8Compiled, v8Builtin} {
			got, of := programCounter(pcVariable(pc, kind))
			assert.Check(t, got == pc && of == kind, "%x of kind %d is %x of kind %d", pc, kind, got, of)
		}
	}
}

// What is added to the program of V8 is called in one place, and leaves all else as it is; a program that does not
// read code, or does so in two places, is not changed.
func TestAddProgramCounters(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	program := full.Programs[v8Program].Instructions
	changed, err := addProgramCounters(program, full.Types)
	assert.NilError(t, err)
	different := 0
	for i := range program {
		if changed[i].OpCode != program[i].OpCode || changed[i].Constant != program[i].Constant {
			different++
		}
	}
	assert.Check(t, different == 1 && len(changed) > len(program), "%d instructions of the program differ", different)
	end := stackEnd(program)
	assert.Check(t, end < 0 && stackEnd(changed) == end-24-(end&7), "%d, then %d", end, stackEnd(changed))
	_, err = addProgramCounters(append(program[:len(program):len(program)], program...), full.Types)
	assert.Check(t, err != nil)
	_, err = addProgramCounters(full.Programs[hotspotProgram].Instructions, full.Types)
	assert.Check(t, err != nil)
}

// Frames of all kinds of code have names, files and lines, with calls that are inlined, in both forms of V8's tables.
func TestV8Frames(t *testing.T) {
	for _, tables := range []v8Tables{v8TablesSigned, v8TablesFlags} {
		h := newV8Heap()
		//                      0      7      14         25
		source := h.cons(h.text("first\r\nsecond\nthird\u00e9\rfo"), h.text("urth\u4e2d\nfifth"), 33)
		script := h.script(h.text("/app/\u00e9.js"), source)
		entries := [][3]int64{{-1, 1, 0}, {0, 8, 0}, {4, 15, 0}}
		byteCode := h.byteCode(4, positionTable(tables, entries...))
		outer := h.function(h.text("outer"), script, 2, byteCode)
		middle := h.function(h.text("mid\u4e2dle"), script, maxV8Locals+1, byteCode)
		inner := h.function(h.text("inner"), script, 0, byteCode)
		thin := h.object(h.thinString)
		h.put(thin+uint64(h.stringLength), 5)
		h.refer(thin, h.thinActual, h.text("other"))
		other := h.function(thin, script, maxV8Locals, byteCode)
		f := func(name string, line uint32) Frame {
			return Frame{Kind: V8Frame, Function: name, SourceFile: "/app/\u00e9.js", Line: line}
		}
		wrap := func(sfi uint64) uint64 {
			at := h.object(h.typeWrappedSFI)
			h.refer(at, h.wrappedSFI, sfi)
			return at
		}
		deopt := h.words(h.typeDeopt, make([]uint64, 128)...)
		index := func(i uint32) uint32 { return h.arrayData + 8*i }
		h.deoptFunction, h.deoptLiterals, h.deoptInlined = 7, 3, 8
		h.refer(deopt, index(7), wrap(outer))
		h.refer(deopt, index(2), h.words(h.typeDeopt, wrap(middle)|v8Tag))
		h.refer(deopt, index(3), h.words(h.typeLiterals, 0, inner|v8TagMask)) // weakly
		var calls []byte
		for _, call := range [][2]uint64{{15 << 1, 0}, {8<<1 | 1<<31, 1}} { // middle in outer, inner in that
			calls = binary.LittleEndian.AppendUint64(calls, call[0])
			calls = binary.LittleEndian.AppendUint64(calls, call[1])
		}
		h.refer(deopt, index(8), h.array(h.typeTrustedBytes, len(calls), calls))
		optimized := h.compile(12, 100, h.array(h.typeTrustedBytes, 99, positionTable(tables, [3]int64{10, 8, 0},
			[3]int64{20, 1, 2}, [3]int64{30, 26, 1}, [3]int64{40, 32, 0}, [3]int64{50, 0, 0})), deopt)
		lengths := []byte{2, 2, 6, 6, 6, 6} // first that of making the frame
		baseline := h.compile(h.kindBaseline, 40, h.array(h.typeBytes, len(lengths), lengths), byteCode)
		at := func(offset uint64) uint64 { return offset + uint64(h.byteCodeData) - v8Tag }
		const (
			code = support.V8FileTypeNativeCode
			leaf = false
			call = true
		)
		for i, test := range []struct {
			word libpf.EbpfFrame
			want []Frame
		}{
			{v8Word(support.V8FileTypeNativeSFI, outer, 0, leaf), []Frame{f("outer", 0)}},
			{v8Word(support.V8FileTypeByteCode, outer, at(0), leaf), []Frame{f("outer", 2)}},
			{v8Word(support.V8FileTypeByteCode, other, at(5), call), []Frame{f("other", 3)}},
			{v8Word(support.V8FileTypeByteCode, inner, at(8), leaf), []Frame{f("inner", 0)}}, // behind its code
			{v8Word(support.V8FileTypeByteCode, inner, 0, leaf), []Frame{f("inner", 0)}},     // before it
			{v8Word(code, outer, pcVariable(optimized+15, v8Builtin), leaf), []Frame{f("outer", 0)}},
			{v8Word(code, outer, pcVariable(optimized+15, v8Compiled), leaf), []Frame{f("outer", 2)}},
			{v8Word(code, outer, pcVariable(optimized+5, v8Compiled), leaf), []Frame{f("outer", 0)}},
			{v8Word(code, outer, pcVariable(optimized+20, v8Compiled), call), []Frame{f("outer", 2)}}, // ends at 20
			{v8Word(code, outer, pcVariable(optimized+20, v8Compiled), leaf),
				[]Frame{f("inner", 1), f("mid\u4e2dle", 2), f("outer", 3)}},
			{v8Word(code, outer, pcVariable(optimized+31, v8Compiled), call),
				[]Frame{f("mid\u4e2dle", 4), f("outer", 3)}},
			{v8Word(code, outer, pcVariable(optimized+49, v8Compiled), leaf), []Frame{f("outer", 5)}},
			{v8Word(code, outer, pcVariable(optimized+99, v8Compiled), leaf), []Frame{f("outer", 0)}},
			{v8Word(code, outer, pcVariable(optimized+100, v8Compiled), leaf), []Frame{f("outer", 0)}}, // behind it
			// Another function has been called, and has no frame yet; its caller's place is not known.
			{v8Word(code, other, pcVariable(optimized+15, v8Compiled), leaf), []Frame{f("outer", 2), f("other", 0)}},
			{v8Word(code, other, pcVariable(optimized+15, v8Compiled), call), []Frame{f("other", 0)}},
			{v8Word(code, inner, pcVariable(baseline+1, v8Compiled), leaf), []Frame{f("inner", 2)}},
			{v8Word(code, inner, pcVariable(baseline+3, v8Compiled), leaf), []Frame{f("inner", 2)}},
			{v8Word(code, inner, pcVariable(baseline+9, v8Compiled), leaf), []Frame{f("inner", 2)}},
			{v8Word(code, inner, pcVariable(baseline+10, v8Compiled), leaf), []Frame{f("inner", 3)}},
			{v8Word(code, inner, pcVariable(baseline+10, v8Compiled), call), []Frame{f("inner", 2)}},
			// There is more code than byte code.
			{v8Word(code, inner, pcVariable(baseline+39, v8Compiled), leaf), []Frame{f("inner", 0)}},
			{v8Word(code, other, pcVariable(0x1234, v8Compiled), leaf), []Frame{f("other", 0)}},
		} {
			got, err := h.reader().frames(test.word)
			assert.Check(t, err)
			assert.Check(t, slices.Equal(got, test.want), "%d, tables %d: %+v, want %+v", i, tables, got, test.want)
		}
		assert.Check(t, h.tables() == tables, "%d", h.seen)
		// With tables in another form, no line is known any more, nor what is inlined, until nearly all are in one.
		different := v8TablesSigned + v8TablesFlags - tables
		odd := h.function(h.text("odd"), script, 0, h.byteCode(4, positionTable(different, entries...)))
		h.seen = [v8TablesDifferent + 1]uint64{}
		lineOf := func(function uint64) uint32 {
			frames, err := h.reader().frames(v8Word(support.V8FileTypeByteCode, function, at(0), leaf))
			assert.NilError(t, err)
			return frames[0].Line
		}
		assert.Check(t, lineOf(outer) == 2 && lineOf(odd) == 0 && lineOf(outer) == 0, "%d", h.seen)
		for range maxV8Misread - 4 {
			assert.Check(t, lineOf(outer) == 0, "%d", h.seen)
		}
		for range maxV8Misread {
			assert.Check(t, lineOf(outer) == 2, "%d", h.seen)
		}
		assert.Check(t, lineOf(odd) == 0 && lineOf(outer) == 2, "%d", h.seen) // one that is misread
		clear(h.seen[:])
		h.seen[v8TablesDifferent] = 1 // optimized code alone tells how tables are written, too
		for i := range maxV8Misread + 1 {
			frames, err := h.reader().frames(v8Word(code, outer, pcVariable(optimized+15, v8Compiled), leaf))
			assert.NilError(t, err)
			assert.Check(t, (frames[0].Line == 2) == (i >= maxV8Misread-2), "%d: %+v", i, frames)
		}
		h.seen[tables], h.seen[different] = maxV8Misread, 2
		for _, word := range []libpf.EbpfFrame{
			v8Word(support.V8FileTypeByteCode, odd, at(0), leaf),
			v8Word(code, odd, pcVariable(optimized+20, v8Compiled), leaf),
		} {
			got, err := h.reader().frames(word)
			assert.NilError(t, err)
			for _, frame := range got {
				assert.Check(t, frame.Line == 0 && frame.Function != "inner", frame)
			}
		}
	}
}

// The ends of lines that V8 has found are used, not its source, which may be outside of its memory.
func TestV8LineEnds(t *testing.T) {
	h := newV8Heap()
	byteCode := h.byteCode(4, positionTable(v8TablesFlags, [3]int64{-1, 1, 0}, [3]int64{0, 8, 0}, [3]int64{4, 9, 0}))
	for _, test := range []struct {
		ends []uint64
		want [2]uint32 // lines of the first instruction, and of the last
	}{
		{[]uint64{2 << 32, 7 << 32, 9 << 32}, [2]uint32{2, 3}},
		{[]uint64{100 << 32}, [2]uint32{1, 1}},
		{[]uint64{1 << 32}, [2]uint32{2, 2}},
	} {
		script := h.script(h.text("x.js"), h.object(h.notString-2)) // a string of another form
		h.refer(script, h.scriptLineEnds, h.words(h.typeArray, test.ends...))
		f := h.function(h.text("f"), script, 0, byteCode)
		for i, at := range []uint64{0, 6} {
			word := v8Word(support.V8FileTypeByteCode, f, at+uint64(h.byteCodeData)-v8Tag, false)
			frames, err := h.reader().frames(word)
			assert.NilError(t, err)
			assert.Check(t, frames[0].Line == test.want[i], "%x: %+v", test.ends, frames)
		}
	}
}

// What is recorded for a word changes with what names its function; each request reads anew, but for what is lost.
func TestV8Readings(t *testing.T) {
	h := newV8Heap()
	script := h.script(h.text("x.js"), h.text("source"))
	f := h.function(h.text("f"), script, 0, 0)
	c := &runtimeCode{v8: h.v8Layout, from: h, pages: newPages(), scripts: newV8Scripts()}
	word := v8Word(support.V8FileTypeNativeSFI, f, 0, false)
	read := func(want string) []reading {
		c.begin()
		defer c.end()
		frames, read, err := c.v8Frames(word)
		assert.NilError(t, err)
		assert.Check(t, len(frames) == 1 && frames[0].Function == want && len(read) > 0, "%+v, %d", frames, len(read))
		return read
	}
	first := read("f")
	assert.Check(t, slices.Equal(first, read("f")))
	scope := h.object(h.typeScope)
	h.refer(scope, 8+8*h.scopeVariables, h.text("g"))
	h.refer(f, h.sfiName, scope)
	assert.Check(t, !slices.Equal(first, read("g")))
	other := h.script(h.text("y.js"), h.text("source"))
	h.refer(f, h.sfiScript, other)
	c.begin()
	frames, _, err := c.v8Frames(word)
	assert.Check(t, err == nil && frames[0].SourceFile == "y.js", "%+v, %v", frames, err)
	h.put(f, 0) // it is no object any more
	c.begin()
	frames, _, err = c.v8Frames(word)
	assert.Check(t, err != nil && frames == nil, "%+v, %v", frames, err)
}

// Of what the engine logs, warnings and errors are kept, a bounded number, and the first about a file is returned, or
// else the first that names none.
func TestEngineLog(t *testing.T) {
	var l engineLog
	log := slog.New(&l).With("a", 1).WithGroup("g")
	log.Info("info")
	assert.Check(t, l.first("/a") == "")
	log.Warn("of /b")
	assert.Check(t, l.first("/a") == "")
	log.Warn("warning")
	log.Error("error")
	assert.Check(t, l.first("/a") == "warning", l.first("/a"))
	log.Error("of /a")
	log.Error("of /a again")
	assert.Check(t, l.first("/a") == "of /a" && l.first("/b") == "of /b")
	l.forget()
	for range 2 * maxLogLines {
		log.Error(strings.Repeat("x", 2*maxFailureBytes))
	}
	assert.Check(t, len(l.lines) == maxLogLines && len(l.first("/a")) == maxFailureBytes)
	l.forget()
	assert.Check(t, l.first("/a") == "")
}

// Whatever is in the memory of a process, reading it ends, without a panic; names have a bounded length, and so has
// what is read.
func TestV8FramesOfAnything(t *testing.T) { testV8FramesOfAnything(t, 5, 100) }

// testV8FramesOfAnything has so many heaps.
func testV8FramesOfAnything(t *testing.T, seed uint64, heaps int) {
	t.Helper()
	random, most := rand.New(rand.NewPCG(1, seed)), 0
	for i := range heaps {
		h := newV8Heap()
		var objects []uint64
		scripts := []uint64{h.object(h.typeScript), h.object(h.typeScript)}
		texts := []uint64{h.object(0), h.object(h.oneByte), h.object(h.consString), h.object(h.thinString)}
		for range 40 {
			values := h.values()
			objects = append(objects, h.object(*values[random.IntN(len(values))].value%0x200))
		}
		objects = append(objects, slices.Concat(scripts, texts, []uint64{h.object(h.typeSFI)})...)
		for _, at := range objects {
			for offset := uint64(8); offset < 600; offset += 8 {
				word := objects[random.IntN(len(objects))] | v8Tag
				if random.IntN(3) == 0 {
					word = random.Uint64() >> random.IntN(64) << random.IntN(33)
				}
				h.put(at+offset, word)
			}
			h.put(at+uint64(h.stringLength), random.Uint64N(1<<random.IntN(27)))
			h.refer(at, h.sfiScript, scripts[random.IntN(len(scripts))])
			for _, offset := range []uint32{h.scriptSource, h.consFirst, h.consSecond, h.thinActual} {
				h.refer(at, offset, texts[random.IntN(len(texts))])
			}
		}
		for _, at := range objects {
			for kind := range uint64(8) {
				r, memory := h.reader(), &endless{v8Heap: h}
				if i%50 == 0 {
					r.memory = memory
				}
				frames, err := r.frames(v8Word(kind, at, pcVariable(at+100, v8Compiled), false))
				assert.Check(t, err != nil || len(frames) <= maxFrames)
				bound := len(scripts)*2*maxV8SourceBytes + 16*maxV8TableBytes
				assert.Check(t, memory.bytes <= bound && r.scripts.characters <= bound, memory.bytes)
				most = max(most, memory.bytes)
				for _, f := range frames {
					assert.Check(t, len(f.Function) <= maxNameBytes && len(f.SourceFile) <= maxNameBytes)
				}
			}
		}
	}
	assert.Check(t, most > maxNameBytes, "only %d bytes are read", most)
	// A string that is made of itself, and one that is said to be endless.
	h := newV8Heap()
	endless := h.cons(0, 0, 8)
	h.refer(endless, h.consFirst, endless)
	h.refer(endless, h.consSecond, endless)
	long := h.text("x")
	h.put(long+uint64(h.stringLength), math.MaxUint32)
	lines := h.text(strings.Repeat("\n", maxV8Lines+1))
	h.put(lines+uint64(h.stringLength), maxV8Lines+1)
	for _, source := range []uint64{endless, long, lines} {
		f, err := h.reader().function(h.function(source, h.script(h.text("file"), source), 0, 0) | v8Tag)
		assert.NilError(t, err)
		assert.Check(t, f.name == "" && f.script.file == "file" && f.script.ends == nil, f)
	}
}

// endless is memory that has something everywhere, and counts what is read.
type endless struct {
	*v8Heap
	bytes int
}

func (e *endless) ReadAt(b []byte, at int64) (int, error) {
	e.bytes += len(b)
	clear(b)
	if n, err := e.v8Heap.ReadAt(b, at); err != nil {
		clear(b[n:])
	}
	return len(b), nil
}

// What is read of texts is bounded by what their parts say together, and in a request, as are the lines that are kept.
// Where more would be read, lines are not known, and names are; nothing of that is kept for other requests.
func TestV8ReadsABoundedPart(t *testing.T) {
	h := newV8Heap()
	long := h.text("x")
	h.put(long+uint64(h.stringLength), maxV8SourceBytes)
	source := long
	for range maxV8Depth - 2 {
		source = h.cons(source, source, maxV8SourceBytes)
	}
	memory := &endless{v8Heap: h}
	r := h.reader()
	r.memory = memory
	script := r.script(h.script(h.text("x.js"), source))
	assert.Check(t, script.ends == nil && script.file == "x.js" && memory.bytes == maxV8SourceBytes, memory.bytes)
	for i := range 2 * maxV8Characters / maxV8SourceBytes {
		script := r.script(h.script(h.text("y.js"), long))
		left := i < maxV8Characters/maxV8SourceBytes-1
		assert.Check(t, script.file == "y.js" && (script.ends != nil) == left && r.scripts.isShort != left, i)
	}
	assert.Check(t, memory.bytes == maxV8Characters, memory.bytes)
	c := &runtimeCode{v8: h.v8Layout, from: memory, pages: newPages(), scripts: r.scripts}
	word := v8Word(support.V8FileTypeNativeSFI, h.function(h.text("f"), h.script(h.text("x.js"), long), 0, 0), 0, false)
	for _, isShort := range []bool{true, false} {
		c.begin()
		frames, read, err := c.v8Frames(word)
		assert.Check(t, err == nil && frames[0].Function == "f" && (read == nil) == isShort, "%+v, %v", frames, err)
		c.end()
	}

	many := h.object(h.typeArray)
	h.put(many+uint64(h.arrayLength), maxV8Lines<<32)
	r = h.reader()
	r.memory = memory
	for range 3 * maxV8AllLines / maxV8Lines {
		at := h.script(h.text("z.js"), long)
		h.refer(at, h.scriptLineEnds, many)
		script := r.script(at)
		assert.Check(t, len(script.ends) == maxV8Lines && r.script(at) == script)
		lines := 0
		for _, script := range r.scripts.known {
			lines += len(script.ends)
		}
		assert.Check(t, lines == r.scripts.lines && lines <= maxV8AllLines, "%d, %d", lines, r.scripts.lines)
	}
}

// The layout of a V8 that lacks something is not known, and says what; one that the engine reads is left to it.
func TestV8LayoutIsWhole(t *testing.T) {
	symbols := map[string]uint32{"off_fp_bytecode_array": math.MaxUint32 - 31}
	for name, value := range map[string]uint32{
		"class_HeapObject__map__Map": 0, "class_Map__instance_type__uint16_t": 12, "HeapObjectTag": 1,
		"HeapObjectTagMask": 3, "SmiTag": 0, "SmiTagMask": 1, "SeqStringTag": 0,
	} {
		symbols[name] = value
	}
	for _, v := range new(v8Layout).values() {
		symbols[v.symbol] = 24
	}
	find := func(name string) (uint32, bool) { value, ok := symbols[name]; return value, ok }
	layout, err := newV8Layout(find)
	assert.NilError(t, err)
	for _, v := range layout.values() {
		assert.Check(t, *v.value == 24, v.symbol)
	}
	// One of each is enough.
	either := []string{"DeoptimizationDataWrapped", "DeoptimizationDataShared", "name_or_scope_info"}
	optional := []string{"SharedFunctionInfoWrapper__", "type_TrustedWeakFixedArray"}
	for name, right := range symbols {
		is := func(part string) bool { return strings.Contains(name, part) }
		delete(symbols, name)
		_, err := newV8Layout(find)
		switch {
		case name == "class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_":
			assert.Check(t, errors.Is(err, errOldV8), err)
		case slices.ContainsFunc(either, is) || slices.ContainsFunc(optional, is):
			assert.Check(t, err, name)
		default:
			assert.Check(t, err != nil && strings.Contains(err.Error(), name), "%s: %v", name, err)
		}
		symbols[name] = 1 << 20
		if _, err := newV8Layout(find); !slices.ContainsFunc(either, is) {
			assert.Check(t, err != nil && strings.Contains(err.Error(), name), "%s: %v", name, err)
		}
		symbols[name] = right
	}
}

// A program that has a runtime's name, and is none that the engine can read, is native code, or left to frame pointers
// if it has something of a runtime that keeps them; it is said why, also where it is only probed.
func TestRefused(t *testing.T) {
	e, prober := shareEngine(t), newProber(t, Kind())
	e.sample(t)
	start := func(name, program string, options ...string) *jvm {
		named := filepath.Join(t.TempDir(), name)
		testenv.WriteProgram(t, named, testenv.ReadFile(t, program), 0o700)
		return startBusy(t, append([]string{named}, options...)...)
	}
	shell := func(name string) func() *jvm {
		return func() *jvm { return start(name, testenv.NeedTool(t, "sh"), "-c", "echo ready; while :; do :; done") }
	}
	like := func(options ...string) func() *jvm {
		return func() *jvm { return start("node", testenv.Compile(t, "cc", "testdata/likev8.c", options...)) }
	}
	for _, start := range []func() *jvm{like(), like("-rdynamic", "-s")} {
		node := start()
		for range 2 { // also when the engine knows the file
			_, err := e.Synchronize(t.Context(), node.target)
			assert.Check(t, errors.Is(err, ErrNotReady) && strings.Contains(err.Error(), `"V8: unable to read`), err)
			checkProbed(t, prober, node.target, Readability{Failure: err.Error()})
		}
		assert.NilError(t, node.cmd.Process.Kill())
	}
	for _, test := range []struct {
		start  func() *jvm
		reason string
	}{
		{shell("python3.12"), "Python: "}, {shell("node"), "V8: the file only has its name: unable to read"},
		{shell("node18"), "V8: the file only has its name: "}, {like("-s"), "V8: the file only has its name: "},
	} {
		j := test.start()
		for range 2 {
			e.synchronize(t, j.target)
			refused, unknown := e.Runtimes(&j.target)
			assert.Check(t, strings.HasPrefix(refused, test.reason) && unknown == "", "%q, %q", refused, unknown)
			checkProbed(t, prober, j.target, Readability{Refused: refused})
		}
		e.eachWhole(t, j.target, 1, func(frames []Frame) bool { return true })
		assert.Check(t, e.Remove(t.Context(), j.target))
		refused, _ := e.Runtimes(&j.target)
		assert.Check(t, refused == "", refused)
		assert.NilError(t, j.cmd.Process.Kill())
	}
}

// unattached is what a loader knows of a runtime.
type unattached struct{ interpreter.Data }

func (unattached) String() string { return "Python 3.12" }

// Why a runtime was not found in a process is what the engine said of its file when it tried it, until it says
// something else of that; it is looked for again when other files are mapped, also as many.
func TestRefusalOfAFile(t *testing.T) {
	self := identify(t, os.Getpid())
	var b budget
	b.reset()
	of, err := openTarget("/proc", &synchronize{KernelPID: self.KernelPID, ID: self.ID}, &b, nil)
	assert.NilError(t, err)
	defer of.close()
	of.begin()
	mappings, err := of.handle.ExecutableMemory()
	assert.NilError(t, err)
	for _, m := range mappings {
		if raw, ok := of.rawMapping(m); ok {
			of.mappings[m.Start] = m
			of.addFile(&raw)
		}
	}
	path, err := os.Executable()
	assert.NilError(t, err)
	asked := 0
	kind := &runtimeKind{name: "Python", loader: func(_ interpreter.EbpfHandler, info *interpreter.LoaderInfo) (
		interpreter.Data, error) {
		if info.FileName() != path {
			return nil, nil
		}
		asked++
		return unattached{}, nil
	}}
	s := &server{pages: newPages()}
	for i, test := range []struct {
		lines []string
		want  string
		asked int
	}{
		{[]string{"another of /x", "first of " + path, "second of " + path},
			"Python: its state was not found (first of " + path + ")", 1},
		{nil, "Python: its state was not found (first of " + path + ")", 1},
		{[]string{"another of /x"}, "Python: its state was not found (first of " + path + ")", 2},
		{[]string{"third of " + path}, "Python: its state was not found (third of " + path + ")", 3},
	} {
		s.log.forget()
		for _, line := range test.lines {
			slog.New(&s.log).Warn(line)
		}
		if i > 0 && test.lines != nil { // as many files
			of.mapped[len(of.mapped)-1].Inode++
		}
		got := s.refusal(of, kind)
		assert.Check(t, got.reason == test.want && !got.framePointers && asked == test.asked,
			"%d: %+v, asked %d", i, got, asked)
	}
}

// untriedKind is a worker that takes each version for one that was not tried.
var untriedKind = func() worker.Kind {
	kind := Kind()
	kind.Name, kind.Serve = "untried", func(procRoot string, conn *worker.Conn) {
		clear(tried)
		serve(procRoot, conn)
	}
	return kind
}()

// Of versions that were not tried, functions have names from the first stack on that has one of the runtime's own, and
// it is said.
func TestUntried(t *testing.T) {
	e := openEngineBy(t, func(c *Counters) (*Engine, error) {
		return openTested(t.Context(), testOptions(), c, untriedKind)
	})
	e.sample(t)
	prober := newProber(t, untriedKind)
	for program, b := range busies {
		path := testenv.NeedTool(t, program)
		if b.kind == "Python" {
			b = b.ofVersion(t, path)
		}
		j := startBusy(t, path, "testdata/"+b.script)
		e.synchronize(t, j.target)
		refused, unknown := e.Runtimes(&j.target)
		said := strings.HasPrefix(unknown, b.kind) && strings.Contains(unknown, "was not tried")
		assert.Check(t, refused == "" && said, "%q, %q", refused, unknown)
		checkProbed(t, prober, j.target, Readability{Unknown: unknown})
		b.checkStacks(t, e, j)
	}
}

// Functions that are constructors of classes are in whole stacks, also before they are optimized.
func TestClassConstructor(t *testing.T) {
	node := testenv.NeedTool(t, "node")
	file, err := pfelf.Open(node)
	assert.NilError(t, err)
	defer file.Close()
	first, _ := v8Symbol(file, "type_JSFunction__JS_FUNCTION_TYPE")
	_, said := v8Symbol(file, "LastJSFunctionType")
	last := uint32(lastV8Function(file))
	assert.Check(t, said == (last == 0) && (said || last > first && last < first+maxV8Functions), "%d to %d",
		first, last)
	e := shareEngine(t)
	e.sample(t)
	j := startBusy(t, node, "--no-opt", "testdata/construct.js")
	e.synchronize(t, j.target)
	e.eachWhole(t, j.target, 10, func(frames []Frame) bool {
		return slices.ContainsFunc(frames, func(f Frame) bool { return f.Kind == V8Frame && f.Function == "Busy" })
	})
	assert.Check(t, e.Remove(t.Context(), j.target))
}

// Versions are known by all of their numbers, and those of others are not.
func TestTried(t *testing.T) {
	for version, want := range map[string]bool{
		"V8 13.6.233": true, "V8 13.60.1": false, "V8 15.0.1": false, "Python 3.12": true, "Python 3.1": false,
		"Python 3.14": true, "Python 3.15": false, "V8 3.12": false, "": false,
	} {
		assert.Check(t, wasTried(version) == want, version)
	}
	c := new(runtimeCode)
	foreign := []Frame{{Kind: V8Frame, Function: "f", SourceFile: "/node:/x.js"}, {Kind: V8Frame, SourceFile: "node:x"}}
	own := append(foreign[:1:1], Frame{Kind: V8Frame, Function: "f", SourceFile: "node:internal/timers"})
	assert.Check(t, !c.isTrusted(foreign) && c.isTrusted(own) && c.isTrusted(foreign))
}

var _ io.ReaderAt = (*v8Heap)(nil)

// The program of V8 hands over the program counter of code that was compiled, which is in memory of no file; the place
// in the byte code of functions that are interpreted, and neither of others: as it is told for a process, here one that
// the engine could read.
func TestProgramHandsOverPC(t *testing.T) {
	node := testenv.NeedTool(t, "node")
	file, err := pfelf.Open(node)
	assert.NilError(t, err)
	defer file.Close()
	byteCode, found := v8Symbol(file, "type_BytecodeArray__BYTECODE_ARRAY_TYPE")
	assert.Assert(t, found)
	e := shareEngine(t)
	e.sample(t)
	j := startBusy(t, node, "testdata/busy.js")
	e.synchronize(t, j.target)
	table := e.chain.runtimes[runtimeBy(func(k *runtimeKind) bool { return k.of == libpf.V8 })].table
	var info support.V8ProcInfo
	assert.NilError(t, table.Lookup(j.target.KernelPID, &info))
	handsOverPC(&info, uint16(byteCode))
	assert.NilError(t, table.Update(j.target.KernelPID, &info, ebpf.UpdateExist))
	e.forget(t)

	handle, err := procscan.OpenProcess("/proc", j.target.ID)
	assert.NilError(t, err)
	defer handle.Close()
	mappings, err := handle.ExecutableMemory()
	assert.NilError(t, err)
	inFile := func(pc uint64) bool {
		i := slices.IndexFunc(mappings, func(m procscan.Mapping) bool { return m.Start <= pc && pc < m.End })
		assert.Assert(t, i >= 0, "%x is no code", pc)
		return mappings[i].Path != ""
	}
	compiled, interpreted := 0, 0
	for compiled < 20 || interpreted < 20 {
		s := e.next(t, j.target)
		for words := s.words; len(words) > 0; {
			word := libpf.EbpfFrame(words)
			word, words = word[:word.Length()], words[word.Length():]
			if word.Type() != libpf.V8Frame {
				continue
			}
			switch word.Variable(0) & support.V8FileTypeMask {
			case support.V8FileTypeNativeCode:
				pc, kind := programCounter(word.Variable(1))
				right := kind == v8Builtin && inFile(pc) || kind == v8Compiled && !inFile(pc)
				assert.Check(t, right, "%x: kind %d", pc, kind)
				compiled++
			case support.V8FileTypeByteCode:
				at := word.Variable(1)
				assert.Check(t, at > 32 && at < 4096, "the place in the byte code is %d", at)
				interpreted++
			default:
				assert.Check(t, !isV8Function(word), "%x", word)
			}
		}
	}
}

func FuzzV8Tables(f *testing.F) {
	for _, tables := range []v8Tables{v8TablesSigned, v8TablesFlags} {
		f.Add(positionTable(tables, [3]int64{-1, 1, 0}, [3]int64{3, 8, 2}, [3]int64{9, 1 << 29, 65535}), uint64(5))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 0xff}, uint64(1<<63))
	f.Fuzz(func(t *testing.T, b []byte, offset uint64) {
		script := &v8Script{ends: []uint32{3, 9, 1 << 20}}
		for tables := range v8TablesDifferent + 1 {
			line := script.line(tables.positionAt(b, offset))
			known := tables == v8TablesSigned || tables == v8TablesFlags
			assert.Check(t, line <= 4 && (line == 0 || known), "line %d", line)
		}
		r := &v8Reader{v8Layout: newV8Heap().v8Layout}
		for at := 0; at < len(b); {
			n := r.opcodeBytes(b[at:])
			if n == 0 {
				break
			}
			at += n
		}
	})
}

// What the engine reads of strings is what they are in UTF-8, and not that of what is behind them. A name that it could
// not read is no function's without one.
func TestV8Text(t *testing.T) {
	h := newV8Heap()
	for text, want := range map[string]string{
		"": "", "ascii": "ascii", "größe": "größe", "中間𝒳\"": "中間𝒳\"",
		strings.Repeat("é", 512): strings.Repeat("é", 512),
		strings.Repeat("é", 513): "lost", strings.Repeat("中", 342): "lost", strings.Repeat("x", 1025): "lost",
	} {
		reader := newV8Text(h.v8Layout)
		read := func(at uint64, n int) []byte {
			b := make([]byte, n)
			_, err := reader.read(h, b, int64(at))
			assert.NilError(t, err)
			return b
		}
		at := h.text(text)
		for range 2 { // the engine knows the type the second time
			class := binary.LittleEndian.Uint64(read(at, 8))
			kind := uint32(binary.LittleEndian.Uint16(read(class-v8Tag+v8TypeOffset, 2)))
			assert.Check(t, kind == h.oneByte, "%q is of type %x", text, kind)
			length := int(binary.LittleEndian.Uint32(read(at+uint64(h.stringLength), 4)))
			if reader.lost {
				assert.Check(t, want == "lost", "%q", text)
				continue
			}
			got := string(read(at+uint64(h.oneByteChars), length))
			assert.Check(t, got == want, "%q, not %q", got, want)
			if length < 100 { // there is memory behind it
				behind := read(at+uint64(h.oneByteChars)+8*uint64(length), 8)
				assert.Check(t, string(behind) == string(make([]byte, 8)), "%x is behind %q", behind, text)
			}
		}
		reader.forget()
		assert.Check(t, !reader.lost && len(reader.kinds) == 0)
	}
	full := newV8Text(h.v8Layout)
	for i := range maxV8Kinds {
		full.kinds[uint64(i)] = 0
	}
	at, b := h.text("中"), make([]byte, 8)
	_, err := full.read(h, b, int64(at))
	assert.NilError(t, err)
	_, err = full.read(h, b[:2], int64(binary.LittleEndian.Uint64(b)-v8Tag+v8TypeOffset))
	assert.Check(t, err == nil && full.lost && b[0] == 0, "%v, %+v", err, full)
	// The description of a scope at the end of V8's memory is read, and nothing behind it.
	scope, read := uint64(5*v8ChunkBytes-64), make([]byte, v8ScopeBytes)
	h.put(scope, 1, 2, 3, 4, 5, 6, 7, 8)
	n, err := newV8Text(h.v8Layout).read(h, read, int64(scope))
	assert.Check(t, err == nil && n == len(read) && read[56] == 8 && read[64] == 0, "%x, %v", read, err)
	// The text of a script has a byte for each character.
	source := h.text("ä\n中\r\nx")
	script := h.script(h.text("data:"+strings.Repeat("é", 2000)), source)
	reader := newV8Text(h.v8Layout)
	for _, r := range []struct {
		at   uint64
		n    int
		want string
	}{{script, 8, ""}, {h.maps[h.typeScript] + v8TypeOffset, 2, ""}, {script + uint64(h.scriptName), 8, ""},
		{h.maps[h.oneByte], 8, ""}, {script + uint64(h.scriptSource), 8, ""}, {source, 8, ""},
		{h.maps[0] + v8TypeOffset, 2, ""}, {source + uint64(h.oneByteChars), 6, "?\n?\r\nx"},
		{source + uint64(h.oneByteChars) + 2, 4, "?\r\nx"}} {
		b := make([]byte, r.n)
		_, err := reader.read(h, b, int64(r.at))
		assert.Check(t, err == nil && (r.want == "" || string(b) == r.want) && !reader.lost, "%+v: %q, %v", r, b, err)
	}
}

// Names that are not of ASCII are as they are written, and lines are right in a text that has such.
func TestV8Letters(t *testing.T) {
	node := testenv.NeedTool(t, "node")
	text := strings.NewReplacer("inner", "größe", "middle", "中間", "outer", "naïve").Replace(
		string(testenv.ReadFile(t, "testdata/busy.js")))
	path := filepath.Join(t.TempDir(), "schön 中.js")
	testenv.WriteFile(t, path, []byte(text))
	lines := make(map[string][]uint32)
	for i, line := range strings.Split(text, "\n") {
		if _, function, ok := strings.Cut(line, " // "); ok {
			lines[function] = append(lines[function], uint32(i+1))
		}
	}
	e := shareEngine(t)
	e.sample(t)
	j := startBusy(t, node, path)
	e.synchronize(t, j.target)
	seen, known := make(map[string]bool), 0
	e.eachWhole(t, j.target, 30, func(frames []Frame) bool {
		n := 0
		for _, f := range frames {
			if f.Kind != V8Frame || f.SourceFile != path {
				continue
			}
			name := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
			if name == "<anonymous>" {
				name = "main"
			}
			assert.Assert(t, lines[name] != nil, "%+v\n%+v", f, frames)
			seen[name] = true
			if f.Line != 0 && slices.Contains(lines[name], f.Line) {
				known++
			}
			n++
		}
		return n == 4
	})
	assert.Check(t, len(seen) == 4 && known > 40, "%v, %d of 120 lines are right", seen, known)
}
