package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// goSection is a section of a program.
type goSection struct {
	name     string
	contents []byte
}

// goProgram returns an ELF file with sections.
func goProgram(sections ...goSection) []byte {
	var names bytes.Buffer
	names.WriteByte(0)
	file := make([]byte, 64)
	headers := []elf.Section64{{}}
	for _, s := range append(slices.Clone(sections), goSection{".shstrtab", nil}) {
		h := elf.Section64{Name: uint32(names.Len()), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC),
			Off: uint64(len(file)), Size: uint64(len(s.contents))}
		names.WriteString(s.name + "\x00")
		if s.contents == nil {
			h.Size = uint64(names.Len())
			s.contents = names.Bytes()
		}
		file = append(file, s.contents...)
		headers = append(headers, h)
	}
	header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: uint64(len(file)), Ehsize: 64, Phentsize: 56, Shentsize: 64, Shnum: uint16(len(headers)),
		Shstrndx: uint16(len(headers) - 1)}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	file, _ = binary.Append(file, binary.LittleEndian, headers)
	_, _ = binary.Encode(file, binary.LittleEndian, header)
	return file
}

func goBuildInfo(version string) []byte {
	info := append([]byte("\xff Go buildinf:\x08\x02"), make([]byte, 16)...)
	return append(append(info, byte(len(version))), version...)
}

func goFunctions(names string) []byte {
	header := make([]byte, 72)
	binary.LittleEndian.PutUint32(header, 0xfffffff1)
	header[6], header[7] = 1, 8
	binary.LittleEndian.PutUint64(header[32:], 72)
	binary.LittleEndian.PutUint64(header[40:], 72+uint64(len(names)))
	return append(header, names+"\x00runtime/pprof.runtime_setProfLabel\x00"...) // behind the names
}

const setter = "\x00runtime/pprof.runtime_setProfLabel\x00"

// What a program says of Go is its version, and whether a function of it sets labels: wherever the name is in the
// table, and only if it is whole, and in there.
func TestParseGoProgram(t *testing.T) {
	long := strings.Repeat("x", streamBytes-20) // the name is in two pieces
	for _, test := range []struct {
		name, section, names string
		labels               bool
	}{
		{"fixed", ".gopclntab", "\x00a" + setter + "b\x00", true},
		{"free", ".data.rel.ro.gopclntab", "\x00a" + setter, true},
		{"in two pieces", ".gopclntab", long + setter, true},
		{"at the end of pieces", ".gopclntab", strings.Repeat("x", 2*streamBytes-len(setter)) + setter, true},
		{"behind the names", ".gopclntab", "\x00a\x00", false},
		{"in another name", ".gopclntab", "\x00x" + setter[1:], false},
		{"another section", ".text", "\x00a" + setter, false},
	} {
		file := goProgram(goSection{".go.buildinfo", goBuildInfo("go1.24.3 X:none")},
			goSection{test.section, goFunctions(test.names)})
		p, err := ParseGoProgram(bytes.NewReader(file), int64(len(file)))
		assert.NilError(t, err, test.name)
		assert.Check(t, *p == GoProgram{Version: "go1.24.3 X:none", Labels: test.labels}, "%s: %+v", test.name, p)
	}
	_, err := ParseGoProgram(bytes.NewReader(goProgram()), int64(len(goProgram())))
	assert.ErrorIs(t, err, ErrNoSymbols)
}

// A program has thread-local variables if its headers say so.
func TestGoThreadLocals(t *testing.T) {
	file := goProgram(goSection{".go.buildinfo", goBuildInfo("go1.24.3")})
	binary.LittleEndian.PutUint64(file[32:], uint64(len(file))) // e_phoff
	binary.LittleEndian.PutUint16(file[56:], 1)                 // e_phnum
	for kind, want := range map[elf.ProgType]bool{elf.PT_TLS: true, elf.PT_GNU_STACK: false} {
		file, err := binary.Append(slices.Clone(file), binary.LittleEndian, elf.Prog64{Type: uint32(kind)})
		assert.NilError(t, err)
		p, err := ParseGoProgram(bytes.NewReader(file), int64(len(file)))
		assert.NilError(t, err)
		assert.Check(t, p.ThreadLocals == want, kind)
	}
	_, err := ParseGoProgram(bytes.NewReader(file), int64(len(file))) // its program headers are not there
	assert.Check(t, IsContentError(err), "%v", err)
}

// Contents that cannot be are errors about contents, without more reads than the file has bytes.
func TestParseGoProgramMalformed(t *testing.T) {
	version := goBuildInfo("go1.24.3")
	functions := goFunctions("\x00a\x00")
	for name, change := range map[string]func(){
		"magic":   func() { version[1] = 'x' },
		"short":   func() { version = version[:31] },
		"version": func() { version[32] = 200 },
		"varint":  func() { version = append(version[:32], bytes.Repeat([]byte{0xff}, 12)...) },
		"names":   func() { binary.LittleEndian.PutUint64(functions[40:], 1<<40) },
		"order":   func() { binary.LittleEndian.PutUint64(functions[32:], 1<<63) },
		"header":  func() { functions = functions[:47] },
	} {
		version, functions = goBuildInfo("go1.24.3"), goFunctions("\x00a\x00")
		change()
		file := goProgram(goSection{".go.buildinfo", version}, goSection{".gopclntab", functions})
		_, err := ParseGoProgram(bytes.NewReader(file), int64(len(file)))
		assert.Check(t, err != nil && IsContentError(err), "%s: %v", name, err)
	}
	file := goProgram(goSection{".go.buildinfo", goBuildInfo("go1.24.3")}, goSection{".gopclntab", goFunctions("")})
	for n := range file {
		_, err := ParseGoProgram(bytes.NewReader(file[:n]), int64(n))
		assert.Check(t, err != nil && IsContentError(err), "%d bytes: %v", n, err)
	}
}

// The names of functions are searched up to a limit.
func TestGoFunctionNames(t *testing.T) {
	for size, want := range map[uint64]error{maxFunctionNames: nil, maxFunctionNames + 1: ErrLimit} {
		functions := goFunctions("")
		binary.LittleEndian.PutUint64(functions[40:], 72+size)
		p := &pages{source: source{r: sparse(functions), size: 1 << 40}}
		_, err := p.namesFunction(elf.Section64{Size: 1 << 30}, setter)
		assert.Check(t, errors.Is(err, want), "%d bytes: %v", size, err)
	}
}

func FuzzGoProgram(f *testing.F) {
	f.Add(goProgram(goSection{".go.buildinfo", goBuildInfo("go1.24.3")}, goSection{".gopclntab", goFunctions(setter)}))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, err := ParseGoProgram(bytes.NewReader(file), int64(len(file)))
		assert.Check(t, err == nil || IsContentError(err), "%v", err)
	})
}

// A program is parsed once, whatever it turns out to be.
func TestCacheGoProgram(t *testing.T) {
	cache, err := NewCache(1)
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "program")
	assert.NilError(t, os.WriteFile(path, goProgram(goSection{".go.buildinfo", goBuildInfo("go1.24.3")}), 0o600))
	file, err := os.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	first, err := cache.GoProgram(file)
	assert.NilError(t, err)
	again, err := cache.GoProgram(file)
	assert.Check(t, err == nil && first == again && *first == GoProgram{Version: "go1.24.3"}, "%+v, %v", again, err)
}
