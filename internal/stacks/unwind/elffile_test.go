package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// testELF is an ELF file of a test: its parts, and where they are.
type testELF struct {
	header   elf.Header64
	segments []elf.Prog64
	sections []elf.Section64
	parts    map[int][]byte // by offset
}

const (
	segmentsAt = 64
	sectionsAt = 1024
	testBytes  = 8192
)

func (f *testELF) encode() []byte {
	f.header.Ident = [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1}
	f.header.Phoff, f.header.Phnum = segmentsAt, uint16(len(f.segments))
	f.header.Shoff, f.header.Shnum = sectionsAt, uint16(len(f.sections))
	b := make([]byte, testBytes)
	for at, part := range map[int]any{0: f.header, segmentsAt: f.segments, sectionsAt: f.sections} {
		if _, err := binary.Encode(b[at:], binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	for at, part := range f.parts {
		copy(b[at:], part)
	}
	return b
}

// note returns a note that says that its description has so many bytes.
func note(says uint32, description string) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, noteHeader{4, says, 3})
	return append(append(b, "GNU\x00"...), description...)
}

// patched returns what the engine gets of a file, read in parts of a size.
func patched(t *testing.T, file []byte, size int) []byte {
	t.Helper()
	patches, err := elfPatches(bytes.NewReader(file))
	assert.NilError(t, err)
	var all []byte
	for at := 0; at < len(file); at += size {
		part := slices.Clone(file[at:min(at+size, len(file))])
		apply(patches, part, int64(at))
		all = append(all, part...)
	}
	return all
}

// The sizes of names and notes in a file's headers are bounded wherever a part of them is read; nothing else is other
// than in the file.
func TestELFSizes(t *testing.T) {
	good := note(8, "12345678")
	f := testELF{
		segments: []elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Filesz: 1 << 40},
			{Type: uint32(elf.PT_NOTE), Off: 4096, Filesz: uint64(len(good))},
			{Type: uint32(elf.PT_NOTE), Off: 5120, Filesz: uint64(len(good)) + 1<<30}, // ends in one that is too large
			{Type: uint32(elf.PT_NOTE), Off: 0, Filesz: 512},                          // the headers
			{Type: uint32(elf.PT_NOTE), Off: 1 << 63, Filesz: 512},
			{Type: uint32(elf.PT_DYNAMIC), Filesz: maxDynamicBytes - 16},
			{Type: uint32(elf.PT_DYNAMIC), Filesz: 1 << 63},
			{Type: uint32(elf.PT_LOAD), Filesz: 4096, Memsz: 4096 + maxZeroBytes - 16},
			{Type: uint32(elf.PT_LOAD), Filesz: 4096, Memsz: 1 << 63},
		},
		sections: []elf.Section64{
			{Type: uint32(elf.SHT_STRTAB), Size: maxNamesBytes},
			{Type: uint32(elf.SHT_STRTAB), Size: maxNamesBytes + 1},
			{Type: uint32(elf.SHT_STRTAB), Size: maxNamesBytes + 1<<33},
			{Type: uint32(elf.SHT_PROGBITS), Size: maxNamesBytes + 1},
			{Type: uint32(elf.SHT_NOTE), Off: 4096, Size: uint64(len(good))},
			{Type: uint32(elf.SHT_NOTE), Off: 4096, Size: uint64(len(good)) - 1},
		},
		parts: map[int][]byte{4096: good, 5120: append(slices.Clone(good), note(1<<32-1, "")...)},
	}
	file := f.encode()
	f.segments[2].Filesz, f.segments[3].Filesz, f.segments[4].Filesz = uint64(len(good)), 0, 0
	f.segments[6].Filesz, f.segments[8].Memsz = 16, 4096+16
	f.sections[1].Size, f.sections[2].Size, f.sections[5].Size = maxNamesBytes, maxNamesBytes, 0
	want := f.encode()
	for _, size := range []int{1, 3, 8, 100, testBytes} {
		got := patched(t, file, size)
		for i := range got {
			assert.Check(t, got[i] == want[i], "in parts of %d, at %#x: %#x", size, i, got[i])
		}
	}
}

// What was checked of a file is what the engine gets, whatever has become of the file.
func TestELFChanges(t *testing.T) {
	f := testELF{segments: []elf.Prog64{{Type: uint32(elf.PT_NOTE), Off: 4096, Filesz: 24}}, parts: map[int][]byte{
		4096: note(8, "12345678"),
	}}
	file := f.encode()
	patches, err := elfPatches(bytes.NewReader(file))
	assert.NilError(t, err)
	for i := range file {
		file[i] = 0xff
	}
	apply(patches, file, 0)
	want := f.encode()
	for _, part := range [][2]int{{0, segmentsAt + 56}, {4096, 4096 + 24}} {
		assert.Check(t, bytes.Equal(file[part[0]:part[1]], want[part[0]:part[1]]), part)
	}
	assert.Check(t, file[segmentsAt+56] == 0xff, "more is kept")
}

// A file whose headers are also others, in which a size would be another's, is refused; one that has none may say
// anything of where they are.
func TestELFOverlaps(t *testing.T) {
	f := testELF{segments: make([]elf.Prog64, 3), sections: make([]elf.Section64, 3)}
	for offsets, want := range map[[2]uint64]error{
		{64, 88}: errOverlap, {64, 64 + 3*56 - 1}: errOverlap, {64, 64 + 3*56}: nil, {8, 1024}: errOverlap,
		{1024, 63}: errOverlap, {1024, 1025}: errOverlap, {1024, 64}: nil,
	} {
		file := f.encode()
		binary.LittleEndian.PutUint64(file[0x20:], offsets[0])
		binary.LittleEndian.PutUint64(file[0x28:], offsets[1])
		_, err := elfPatches(bytes.NewReader(file))
		assert.Check(t, errors.Is(err, want), "at %d: %v", offsets, err)
	}
	file := (&testELF{sections: f.sections}).encode()
	binary.LittleEndian.PutUint64(file[0x20:], 8)
	_, err := elfPatches(bytes.NewReader(file))
	assert.NilError(t, err)
}

// Notes have so many bytes together, in whole notes; a file has so many headers.
func TestELFBounds(t *testing.T) {
	f := testELF{segments: make([]elf.Prog64, 10), parts: map[int][]byte{}}
	for i := range f.segments {
		f.segments[i] = elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 4096, Filesz: maxNotesBytes / 4}
	}
	file := append(f.encode(), make([]byte, maxNotesBytes)...)
	for at := 4096; at+12 <= len(file); at += 12 {
		file[at] = 0 // notes of nothing
	}
	patches, err := elfPatches(bytes.NewReader(file))
	assert.NilError(t, err)
	sum := 0
	for _, p := range patches[3:] {
		sum += len(p.bytes)
	}
	assert.Check(t, sum <= maxNotesBytes && sum > maxNotesBytes-4*12 && len(patches) == 3+4, "%d bytes in %d", sum,
		len(patches))

	f.header.Type = 1
	for _, at := range []int{0x38, 0x3c} {
		file := f.encode()
		binary.LittleEndian.PutUint16(file[at:], maxHeaders+1)
		_, err = elfPatches(bytes.NewReader(file))
		assert.Check(t, errors.Is(err, errHeaders), "at %#x: %v", at, err)
	}
	for _, broken := range []string{"", "\x7fELF", "MZ" + string(file[2:])} {
		patches, err := elfPatches(strings.NewReader(broken))
		assert.Check(t, err == nil && len(patches[0].bytes) == 64, "%v", err)
	}
	_, err = elfPatches(strings.NewReader(string(file[:100])))
	assert.Check(t, errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF), "segments are missing: %v", err)
}
