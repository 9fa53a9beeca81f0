package elfsym

import (
	"bytes"
	"debug/elf"
	"maps"
	"reflect"
	"slices"
	"testing"
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
		if lib != nil || !IsContentError(err) {
			t.Fatalf("%+v, %v", lib, err)
		}
		return
	}
	if fileErr != nil || !reflect.DeepEqual(&lib.File, f) {
		t.Fatalf("library %+v, file %+v, %v", lib, f, fileErr)
	}
	inMemory := func(addr, size uint64) bool {
		return slices.ContainsFunc(f.Segments, func(s Segment) bool {
			return addr >= s.Vaddr && addr+size >= addr && addr+size <= s.Vaddr+s.Memsz
		})
	}
	if !inMemory(lib.StorageAddr, 8) || !inMemory(lib.Relocation.Addr, 16) {
		t.Fatalf("an address outside every segment: %+v", lib)
	}
	if k := lib.Relocation.Kind; k != TLSDESC && k != DTPMOD64 {
		t.Fatalf("kind %v", k)
	}
}

func checkReads(t *testing.T, m *meter) {
	if m.calls > maxPageReads+1 || m.most > pageBytes {
		t.Fatalf("%d reads of up to %d bytes", m.calls, m.most)
	}
}

func checkFile(t *testing.T, f *File) {
	if f.Machine != elf.EM_X86_64 && f.Machine != elf.EM_AARCH64 {
		t.Fatalf("machine %v", f.Machine)
	}
	if len(f.Segments) > maxSegments || len(f.BuildID) > maxBuildIDBytes {
		t.Fatalf("%d segments, build id of %d bytes", len(f.Segments), len(f.BuildID))
	}
	const page, start = 4096, 0x7f0000000000
	for _, s := range f.Segments {
		if s.Filesz > s.Memsz || s.Vaddr+s.Memsz < s.Vaddr || s.Off+s.Filesz < s.Off {
			t.Fatalf("segment %+v", s)
		}
		if bias, ok := f.bias(start, s.Off&^(page-1), page); ok && bias%page != 0 {
			t.Fatalf("bias %#x of %+v", bias, f.Segments)
		}
	}
}

func FuzzGNUBuildID(f *testing.F) {
	f.Add(note(3, "GNU\x00", "12345678901234567890", 4))
	f.Add(append(note(6, "Xen\x00", "xyz", 4), note(3, "GNU\x00", "1234", 4)...))
	f.Fuzz(func(t *testing.T, notes []byte) {
		id := GNUBuildID(notes)
		whole := len(id) > 0 && len(id) <= maxBuildIDBytes && bytes.Contains(notes, append([]byte(noteNameGNU), id...))
		if id != nil && !whole {
			t.Fatalf("%x", id)
		}
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
		b := bytes.Clone(fixtures[names[int(fixture)%len(names)]])
		for ; len(changes) >= 10; changes = changes[10:] {
			off := (int(changes[0]) | int(changes[1])<<8) % len(b)
			copy(b[off:], changes[2:10])
		}
		checkParse(t, b)
	})
}
