package elfsym

import (
	"bytes"
	"debug/elf"
	"maps"
	"reflect"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// checkParse checks what both parsers return for any bytes.
func checkParse(t *testing.T, b []byte) {
	m := &meter{r: bytes.NewReader(b)}
	f, fileErr := ParseFile(m, int64(len(b)))
	checkReads(t, m)
	if fileErr == nil {
		checkFile(t, f)
	} else if f != nil || !IsContentError(fileErr) {
		t.Fatalf("%+v, %v", f, fileErr)
	}

	m = &meter{r: bytes.NewReader(b)}
	lib, err := ParseLibrary(m, int64(len(b)))
	checkReads(t, m)
	if err != nil {
		assert.Assert(t, lib == nil && IsContentError(err), "%+v, %v", lib, err)
		return
	}
	assert.Assert(t, fileErr == nil && reflect.DeepEqual(&lib.File, f), "library %+v, file %+v, %v", lib, f, fileErr)
	inMemory := func(addr, size uint64) bool {
		return slices.ContainsFunc(f.Segments, func(s Segment) bool {
			return addr >= s.Vaddr && addr+size >= addr && addr+size <= s.Vaddr+s.Memsz
		})
	}
	assert.Assert(t, inMemory(lib.StorageAddr, 8) && inMemory(lib.Relocation.Addr, 16),
		"an address outside every segment: %+v", lib)
	k := lib.Relocation.Kind
	assert.Assert(t, k == TLSDESC || k == DTPMOD64, "kind %v", k)
}

func checkReads(t *testing.T, m *meter) {
	assert.Assert(t, m.calls <= maxPageReads+1 && m.most <= pageBytes, "%d reads of up to %d bytes", m.calls, m.most)
}

func checkFile(t *testing.T, f *File) {
	assert.Assert(t, f.Machine == elf.EM_X86_64 || f.Machine == elf.EM_AARCH64, "machine %v", f.Machine)
	assert.Assert(t, len(f.Segments) <= maxSegments && len(f.BuildID) <= maxBuildIDBytes,
		"%d segments, build id of %d bytes", len(f.Segments), len(f.BuildID))
	const page, start = 4096, 0x7f0000000000
	for _, s := range f.Segments {
		assert.Assert(t, s.Filesz <= s.Memsz && s.Vaddr+s.Memsz >= s.Vaddr && s.Off+s.Filesz >= s.Off, "segment %+v", s)
		bias, ok := f.bias(start, s.Off&^(page-1), page)
		assert.Assert(t, !ok || bias%page == 0, "bias %#x of %+v", bias, f.Segments)
	}
}

// checkThreadContext checks what ParseThreadContext returns for any bytes.
func checkThreadContext(t *testing.T, b []byte) {
	m := &meter{r: bytes.NewReader(b)}
	v, err := ParseThreadContext(m, int64(len(b)))
	assert.Assert(t, m.most <= streamBytes && m.calls <= maxPageReads+maxStaticNames+3*len(b)/streamBytes+16,
		"%d reads of up to %d bytes", m.calls, m.most)
	f, fileErr := ParseFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		assert.Assert(t, v == nil && IsContentError(err), "%+v, %v", v, err)
		return
	}
	assert.Assert(t, fileErr == nil && reflect.DeepEqual(&v.File, f), "variable %+v, file %+v, %v", v, f, fileErr)
	r := v.Relocation
	words := map[RelocationKind]uint64{TLSDESC: 2, DTPMOD64: 2, TPOFF64: 1}[r.Kind]
	assert.Assert(t, (words == 0) == (r.Kind == LocalExec), "kind %v", r.Kind)
	assert.Assert(t, words == 0 || (image{segments: f.Segments}).contains(r.Addr, words*pointerBytes),
		"an address outside every segment: %+v", v)
	switch {
	case r.Kind == TPOFF64 && r.Offset != 0, words == 2 && (r.Offset < 0 || uint64(r.Offset) > v.TLSOffset):
		t.Fatalf("offset of the variable: %+v", v)
	case r.Kind == LocalExec && (r.Addr != 0 || r.Offset < -2*maxTLSBlock || r.Offset > 2*maxTLSBlock):
		t.Fatalf("place of the variable: %+v", v)
	}
}

func FuzzParseThreadContext(f *testing.F) {
	f.Add([]byte(elf.ELFMAG))
	for _, b := range readThreadContexts(f) {
		f.Add(b)
	}
	f.Fuzz(checkThreadContext)
}

// FuzzMutatedThreadContext is FuzzMutatedLibrary for files with a thread context.
func FuzzMutatedThreadContext(f *testing.F) {
	files := readThreadContexts(f)
	names := slices.Sorted(maps.Keys(files))
	for i := range names {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{0x60, 0x02, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x10})
	}
	f.Fuzz(func(t *testing.T, file uint8, changes []byte) {
		checkThreadContext(t, mutate(files[names[int(file)%len(names)]], changes))
	})
}

func FuzzGNUBuildID(f *testing.F) {
	f.Add(note(3, "GNU\x00", "12345678901234567890", 4))
	f.Add(append(note(6, "Xen\x00", "xyz", 4), note(3, "GNU\x00", "1234", 4)...))
	f.Fuzz(func(t *testing.T, notes []byte) {
		id := GNUBuildID(notes)
		whole := len(id) > 0 && len(id) <= maxBuildIDBytes && bytes.Contains(notes, append([]byte(noteNameGNU), id...))
		assert.Assert(t, id == nil || whole, "%x", id)
	})
}

func FuzzParseLibrary(f *testing.F) {
	f.Add([]byte(elf.ELFMAG))
	f.Add(readFixture(f, "x86_64-glibc-tlsdesc-lld")[:headerBytes])
	for _, b := range readFixtures(f) {
		f.Add(b)
	}
	f.Fuzz(checkParse)
}

// FuzzMutatedLibrary changes words of real libraries: each ten bytes of changes are an offset and
// what to write there, two and eight bytes.
func FuzzMutatedLibrary(f *testing.F) {
	fixtures := readFixtures(f)
	names := slices.Sorted(maps.Keys(fixtures))
	for i := range names {
		f.Add(uint8(i), []byte{})
		// A hash table, and PT_DYNAMIC.
		f.Add(uint8(i), []byte{0x60, 0x02, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x10})
		f.Add(uint8(i), []byte{0x88, 0x2e, 4, 0, 0, 0, 0, 0, 0, 0, 0x90, 0x2e, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, fixture uint8, changes []byte) {
		checkParse(t, mutate(fixtures[names[int(fixture)%len(names)]], changes))
	})
}

func mutate(b, changes []byte) []byte {
	b = bytes.Clone(b)
	for ; len(changes) >= 10; changes = changes[10:] {
		off := (int(changes[0]) | int(changes[1])<<8) % len(b)
		copy(b[off:], changes[2:10])
	}
	return b
}
