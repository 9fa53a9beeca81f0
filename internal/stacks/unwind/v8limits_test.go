package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"
)

// What objects have beyond what is read of them has no name or no line, as if it were not there.
func TestV8Limits(t *testing.T) {
	h := newV8Heap()
	text := h.script(h.text("x.js"), h.text("\n\n"))
	for n, want := range map[int]string{maxV8Depth - 1: "f", maxV8Depth: ""} {
		name := h.text("f")
		for range n {
			thin := h.object(h.thinString)
			h.put(thin+uint64(h.stringLength), 1)
			h.refer(thin, h.thinActual, name)
			name = thin
		}
		frames, err := h.reader().frames(v8Word(support.V8FileTypeNativeSFI, h.function(name, text, 0, 0), 0, false))
		assert.Check(t, err == nil && frames[0].Function == want, "%d strings in each other: %+v, %v", n, frames, err)
	}

	positions := positionTable(v8TablesFlags, [3]int64{-1, 1, 0}, [3]int64{0, 2, 0})
	line := func(before, size int) ([]Frame, int, error) {
		code := h.byteCode(4, positions)
		h.refer(code, h.byteCodeWrapper+8, h.array(h.typeTrustedBytes, size, positions))
		r := h.reader()
		r.memory, r.reads = &endless{v8Heap: h}, before
		frames, err := r.frames(v8Word(support.V8FileTypeByteCode, h.function(h.text("f"), text, 0, code),
			uint64(h.byteCodeData)-v8Tag, false))
		return frames, r.reads, err
	}
	for size, want := range map[int]uint32{len(positions): 2, maxV8TableBytes: 2, maxV8TableBytes + 1: 0} {
		frames, _, err := line(0, size)
		assert.Check(t, err == nil && frames[0].Function == "f" && frames[0].Line == want, "%d bytes: %+v, %v", size,
			frames, err)
	}

	_, reads, err := line(0, len(positions))
	assert.NilError(t, err)
	for more, want := range []uint32{2, 0} {
		frames, _, err := line(maxV8Reads-reads+more, len(positions))
		assert.Check(t, (err == nil && frames[0].Line == 2) == (want == 2), "%d more reads: %+v, %v", more, frames, err)
	}

	stream := h.compile(0, 2*maxV8CodeBytes, h.text(""), h.text("")) - uint64(h.streamStart)
	for at := stream; at < stream+2*maxV8CodeBytes; at += pageBytes {
		if page := at &^ (pageBytes - 1); h.memory[page] == nil {
			h.memory[page] = make([]byte, pageBytes)
		}
	}
	for distance, found := range map[uint64]bool{maxV8CodeBytes - 8: true, maxV8CodeBytes: false} {
		_, err := h.reader().code(stream + distance)
		assert.Check(t, (err == nil) == found, "%d bytes behind the start of code: %v", distance, err)
	}

	for n, known := range map[int]bool{maxV8Lines: true, maxV8Lines + 1: false} {
		ends, script := h.object(h.typeArray), h.script(h.text("x.js"), h.object(h.notString-2))
		h.put(ends+uint64(h.arrayLength), uint64(n)<<32)
		h.refer(script, h.scriptLineEnds, ends)
		for what, at := range map[string]uint64{
			"a table": script, "a text": h.script(h.text("x.js"), h.text(strings.Repeat("\n", n))),
		} {
			r := h.reader()
			r.memory = &endless{v8Heap: h}
			got := r.script(at).ends
			assert.Check(t, (len(got) == n) == known && (got == nil) != known, "%s of %d lines: %d", what, n, len(got))
		}
	}
}

// Tables of V8 that are larger than any, and types of functions further apart than any, are not taken.
func TestV8SymbolLimits(t *testing.T) {
	const opcodes = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE"
	for _, test := range []struct {
		n     int
		bytes byte
		known bool
	}{
		{maxOpcodes, 1, true}, {maxOpcodes + 1, 1, false}, {maxOpcodes, maxOpcodeBytes - 1, true},
		{maxOpcodes, maxOpcodeBytes, false},
	} {
		f := symbolsELF(map[string]uint64{opcodes: 0})
		f.parts[numbersAt] = bytes.Repeat([]byte{test.bytes}, 3*test.n)
		binary.LittleEndian.PutUint64(f.parts[symbolsAt][24+16:], uint64(3*test.n)) // st_size of the second
		file, err := referenceOf("node", f.encode()).GetELF()
		assert.NilError(t, err)
		sizes := readOpcodes(file)
		assert.Check(t, (len(sizes) == 3*test.n) == test.known && (sizes == nil) != test.known, "%+v: %d", test,
			len(sizes))
	}
	const first = 100
	for next, want := range map[uint64]uint16{
		first + maxV8Functions - 1: first + maxV8Functions - 2, first + maxV8Functions: 0,
	} {
		f := symbolsELF(map[string]uint64{
			v8SymbolPrefix + "type_JSFunction__JS_FUNCTION_TYPE": first,
			v8SymbolPrefix + "type_Other__OTHER_TYPE":            next,
		})
		f.parts[tablesAt] = []byte("\x00.dynsym\x00.dynstr\x00")
		f.sections = []elf.Section64{{},
			{Name: 1, Type: uint32(elf.SHT_DYNSYM), Off: symbolsAt, Size: 3 * 24, Entsize: 24, Link: 2},
			{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(f.parts[namesAt]))},
			{Type: uint32(elf.SHT_STRTAB), Off: tablesAt, Size: uint64(len(f.parts[tablesAt]))}}
		f.header.Shstrndx = 3
		file, err := referenceOf("node", f.encode()).GetELF()
		assert.NilError(t, err)
		assert.Check(t, lastV8Function(file) == want, "%d, the next at %d", lastV8Function(file), next)
	}
	calls := 0
	visit := atMost(3, func(libpf.Symbol) bool { calls++; return true })
	for call := 1; call <= 3; call++ {
		assert.Check(t, visit(libpf.Symbol{}) == (call < 3) && calls == call)
	}
}
