package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// note is an Elf64_Nhdr with its name and contents, padded to align.
func note(kind uint32, name, contents string, align int) []byte {
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&(align-1))...) }
	b := []byte{byte(len(name)), 0, 0, 0, byte(len(contents)), byte(len(contents) >> 8), 0, 0, byte(kind), 0, 0, 0}
	return pad(append(pad(append(b, name...)), contents...))
}

func TestBuildID(t *testing.T) {
	const id = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14"
	ours := note(3, "GNU\x00", id, 4)
	property := note(5, "GNU\x00", "sixteen bytes...", 8)
	many := func(n int) []byte { return bytes.Repeat(note(1, "x\x00", "", 4), n) }
	long := func(n int) string { return string(bytes.Repeat([]byte{0xab}, n)) }
	concat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

	for _, tt := range []struct {
		name  string
		notes []byte
		align uint64
		want  string
	}{
		{"alone", ours, 4, id},
		{"no alignment given", ours, 0, id},
		{"after others", concat(note(1, "stapsdt\x00", "abcde", 4), note(7, "systemd", "{}", 4), ours), 4, id},
		{"after a note of 5000 bytes", concat(note(0xf, "FDO\x00", long(5000), 4), ours), 4, id},
		{"aligned to 8", concat(property, note(3, "GNU\x00", id, 8)), 8, id},
		{"two", concat(ours, note(3, "GNU\x00", "another", 4)), 4, id},
		{"8 bytes", note(3, "GNU\x00", "12345678", 4), 4, "12345678"},
		{"7 bytes, not padded", note(3, "GNU\x00", "1234567", 4)[:23], 4, "1234567"},
		{"64 bytes", note(3, "GNU\x00", long(64), 4), 4, long(64)},
		{"65 bytes", note(3, "GNU\x00", long(65), 4), 4, ""},
		{"65 bytes, then 20", concat(note(3, "GNU\x00", long(65), 4), ours), 4, id},
		{"0 bytes", note(3, "GNU\x00", "", 4), 4, ""},
		{"another owner", note(3, "GNX\x00", id, 4), 4, ""},
		{"a longer name", note(3, "GNU\x00\x00", id, 4), 4, ""},
		{"another type", note(4, "GNU\x00", id, 4), 4, ""},
		{"the 64th note", concat(many(63), ours), 4, id},
		{"the 65th note", concat(many(64), ours), 4, ""},
		{"none", nil, 4, ""},
		{"zeros", make([]byte, 100), 4, ""},
		{"header cut", ours[:11], 4, ""},
		{"contents cut", ours[:len(ours)-1], 4, ""},
		{"name cut", ours[:14], 4, ""},
		{"name of 4 GB", concat([]byte{0xff, 0xff, 0xff, 0xff}, ours[4:]), 4, ""},
		{"contents of 4 GB", concat([]byte{4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, ours[8:]), 4, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEdit(t, "x86_64-glibc-tlsdesc")
			header := e.program(elf.PT_NOTE, 0)
			e.put64(header+pOffset, uint64(len(e.b)))
			e.put64(header+pFilesz, uint64(len(tt.notes)))
			e.put64(header+pAlign, tt.align)
			e.b = append(e.b, tt.notes...)
			f, err := parseFile(e.b)
			assert.NilError(t, err)
			assert.Check(t, string(f.BuildID) == tt.want && (f.BuildID == nil) == (tt.want == ""),
				"build id %x, want %x", f.BuildID, tt.want)
			// The notes of the kernel come alone and all at once.
			id := GNUBuildID(tt.notes)
			assert.Check(t, tt.align != 4 || string(id) == tt.want && (id == nil) == (tt.want == ""),
				"build id %x of the notes alone, want %x", id, tt.want)
		})
	}
}

// The build id of Go's linker is read beside that of GNU, whichever comes first, and only as text of some length.
func TestGoBuildID(t *testing.T) {
	const id, gnu = "foh3/kATc/WwRF/x8hM", "\x01\x02\x03\x04"
	concat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	ours, other := note(4, "Go\x00\x00", id, 4), note(3, "GNU\x00", gnu, 4)
	for name, tt := range map[string]struct {
		notes        []byte
		golang, want string
	}{
		"alone":        {ours, id, ""},
		"before":       {concat(ours, other), id, gnu},
		"behind":       {concat(other, ours), id, gnu},
		"two":          {concat(ours, note(4, "Go\x00\x00", "another", 4)), id, ""},
		"128 bytes":    {note(4, "Go\x00\x00", strings.Repeat("x", 128), 4), strings.Repeat("x", 128), ""},
		"129 bytes":    {concat(note(4, "Go\x00\x00", strings.Repeat("x", 129), 4), other), "", gnu},
		"no bytes":     {note(4, "Go\x00\x00", "", 4), "", ""},
		"a space":      {note(4, "Go\x00\x00", "a b", 4), "", ""},
		"a control":    {note(4, "Go\x00\x00", "a\x7f", 4), "", ""},
		"no ASCII":     {note(4, "Go\x00\x00", "\xc3\xa9", 4), "", ""},
		"another type": {note(3, "Go\x00\x00", id, 4), "", ""},
		"another name": {concat(note(4, "Gox\x00", id, 4), other), "", gnu},
		"cut":          {ours[:len(ours)-4], "", ""},
	} {
		e := newEdit(t, "x86_64-glibc-tlsdesc")
		header := e.program(elf.PT_NOTE, 0)
		e.put64(header+pOffset, uint64(len(e.b)))
		e.put64(header+pFilesz, uint64(len(tt.notes)))
		e.b = append(e.b, tt.notes...)
		f, err := parseFile(e.b)
		assert.NilError(t, err, name)
		assert.Check(t, f.GoBuildID == tt.golang && string(f.BuildID) == tt.want,
			"%s: %q, %x", name, f.GoBuildID, f.BuildID)
	}
}

// Broken notes have no id, and leave the file as good as it is.
func TestNoteSegments(t *testing.T) {
	const fixture = "x86_64-glibc-tlsdesc"
	second := func(e *edit, h uint64) uint64 { // another PT_NOTE, later in the file
		other := e.program(elf.PT_GNU_STACK, 0)
		copy(e.b[other:], e.b[h:h+programHeaderBytes])
		return other
	}
	for _, tt := range []struct {
		name string
		edit func(e *edit, header uint64)
		id   bool
	}{
		{"of 4 GB", func(e *edit, h uint64) { e.put64(h+pFilesz, 1<<32) }, true},
		{"of nearly 2^64 bytes", func(e *edit, h uint64) { e.put64(h+pFilesz, 1<<63) }, true},
		{"of 4 GB, without a build id", func(e *edit, h uint64) {
			e.put64(h+pFilesz, 1<<32)
			e.b[e.get64(h+pOffset)+8] = 9
		}, false},
		{"around 2^64", func(e *edit, h uint64) { e.put64(h+pOffset, ^uint64(0)-8) }, false},
		{"behind the end", func(e *edit, h uint64) { e.put64(h+pOffset, 1<<40) }, false},
		{"the first of two", func(e *edit, h uint64) { e.put64(second(e, h)+pOffset, 1<<40) }, true},
		{"the second of two", func(e *edit, h uint64) { second(e, h); e.put64(h+pFilesz, 0) }, true},
		{"the first of two broken", func(e *edit, h uint64) { second(e, h); e.put64(h+pOffset, 1<<40) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEdit(t, fixture)
			tt.edit(e, e.program(elf.PT_NOTE, 0))
			m := &meter{r: bytes.NewReader(e.b)}
			f, err := ParseFile(m, int64(len(e.b)))
			assert.NilError(t, err)
			assert.Check(t, (f.BuildID != nil) == tt.id, "build id %x", f.BuildID)
			assert.Check(t, m.bytes <= len(e.b)+pageBytes, "%d bytes read", m.bytes)
		})
	}
}

// An error of reading notes is returned.
func TestUnreadableNotes(t *testing.T) {
	e := newEdit(t, "x86_64-glibc-tlsdesc")
	notes := uint64(len(e.b)+pageBytes) &^ (pageBytes - 1)
	e.put64(e.program(elf.PT_NOTE, 0)+pOffset, notes)
	r := failing{sparse(e.b), int64(notes), syscall.EIO}
	f, err := ParseFile(r, int64(notes)+2*pageBytes)
	assert.Check(t, errors.Is(err, syscall.EIO) && f == nil && strings.Contains(err.Error(), "notes"),
		"%+v, %v", f, err)
}

// A file of a terabyte whose notes lie far apart costs as little as any other.
func TestManyNoteSegments(t *testing.T) {
	const segments, apart = 1000, 1 << 30
	b := make([]byte, headerBytes+segments*programHeaderBytes)
	copy(b, readFixture(t, "x86_64-glibc-tlsdesc")[:headerBytes])
	binary.LittleEndian.PutUint64(b[32:], headerBytes)
	binary.LittleEndian.PutUint16(b[56:], segments)
	for i := range uint64(segments) {
		header := b[headerBytes+i*programHeaderBytes:]
		binary.LittleEndian.PutUint32(header, uint32(elf.PT_NOTE))
		binary.LittleEndian.PutUint64(header[8:], (i+1)*apart)
		binary.LittleEndian.PutUint64(header[32:], pageBytes)
	}
	m := &meter{r: sparse(b)}
	_, err := ParseFile(m, (segments+2)*apart)
	assert.NilError(t, err)
	assert.Check(t, m.calls <= maxNotes+len(b)/pageBytes+3 && m.most <= pageBytes,
		"%d reads of up to %d bytes", m.calls, m.most)
}
