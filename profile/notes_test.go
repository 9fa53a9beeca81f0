package profile

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// note is an Elf64_Nhdr with its name and contents, padded to 4.
func note(kind uint32, name, contents string) []byte {
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }
	var b []byte
	for _, word := range []uint32{uint32(len(name)), uint32(len(contents)), kind} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return pad(append(pad(append(b, name...)), contents...))
}

func TestBuildID(t *testing.T) {
	const id = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14"
	ours := note(3, "GNU\x00", id)
	long := strings.Repeat("x", 65)
	concat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, tt := range []struct {
		name  string
		notes []byte
		want  string
	}{
		{"alone", ours, id},
		{"after others", concat(note(0x100, "Linux\x00", "\x00"), note(6, "Xen\x00", "xyz"), ours), id},
		{"two", concat(ours, note(3, "GNU\x00", "another")), id},
		{"7 bytes, not padded", note(3, "GNU\x00", "1234567")[:23], "1234567"},
		{"64 bytes", note(3, "GNU\x00", long[:64]), long[:64]},
		{"65 bytes, then 20", concat(note(3, "GNU\x00", long), ours), id},
		{"0 bytes", note(3, "GNU\x00", ""), ""},
		{"another owner", note(3, "GNX\x00", id), ""},
		{"another type", note(4, "GNU\x00", id), ""},
		{"no name", note(3, "", id), ""},
		{"none", nil, ""},
		{"zeros", make([]byte, 100), ""},
		{"header cut", ours[:11], ""},
		{"contents cut", ours[:len(ours)-1], ""},
		{"name of 4 GB", concat([]byte{0xff, 0xff, 0xff, 0xff}, ours[4:]), ""},
		{"contents of 4 GB", concat([]byte{4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, ours[8:]), ""},
	} {
		if got := buildID(tt.notes); string(got) != tt.want {
			t.Errorf("%s: %x, want %x", tt.name, got, tt.want)
		}
	}
}

func FuzzBuildID(f *testing.F) {
	f.Add(note(3, "GNU\x00", "12345678901234567890"))
	f.Add(append(note(6, "Xen\x00", "xyz"), note(3, "GNU\x00", "1234")...))
	f.Fuzz(func(t *testing.T, notes []byte) {
		if id := buildID(notes); len(id) > maxBuildIDBytes || !bytes.Contains(notes, append([]byte(noteNameGNU), id...)) && id != nil {
			t.Fatalf("%x", id)
		}
	})
}
