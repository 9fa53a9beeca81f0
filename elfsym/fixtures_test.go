package elfsym

import (
	"bytes"
	"correlator/internal/lab/testenv"
	"debug/elf"
	"encoding/binary"
	"io"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// prebuilt is where the agent libraries of testdata/lib/README.md are.
const prebuilt = "../testdata/lib/prebuilt"

func readFixture(t testing.TB, name string) []byte {
	t.Helper()
	b := testenv.ReadFile(t, filepath.Join(prebuilt, name+".so"))
	return b
}

// readFixtures returns every prebuilt library.
func readFixtures(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(prebuilt, "*.so"))
	assert.Assert(t, err == nil && len(paths) != 0, "no libraries in %s (%v)", prebuilt, err)
	libraries := make(map[string][]byte)
	for _, path := range paths {
		name := filepath.Base(path[:len(path)-len(".so")])
		libraries[name] = readFixture(t, name)
	}
	return libraries
}

func parseLibrary(b []byte) (*Library, error) {
	return ParseLibrary(bytes.NewReader(b), int64(len(b)))
}

func parseFile(b []byte) (*File, error) {
	return ParseFile(bytes.NewReader(b), int64(len(b)))
}

// meter counts what is read through it.
type meter struct {
	r           io.ReaderAt
	calls       int
	bytes, most int // in all calls, in one call
}

func (m *meter) ReadAt(b []byte, off int64) (int, error) {
	m.calls++
	m.bytes += len(b)
	m.most = max(m.most, len(b))
	return m.r.ReadAt(b, off)
}

// sparse is a file of any size: some bytes, and zeros after them.
type sparse []byte

func (s sparse) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(s)) {
		copy(b, s[off:])
	}
	return len(b), nil
}

// edit is a library whose bytes a test changes. It finds its way with debug/elf and therefore by
// section headers, which the code under test does not use.
type edit struct {
	t testing.TB
	b []byte
	f *elf.File
}

func newEdit(t testing.TB, fixture string) *edit {
	t.Helper()
	b := readFixture(t, fixture)
	f, err := elf.NewFile(bytes.NewReader(bytes.Clone(b)))
	assert.NilError(t, err)
	return &edit{t: t, b: b, f: f}
}

func (e *edit) put16(off uint64, v uint16) { binary.LittleEndian.PutUint16(e.b[off:], v) }
func (e *edit) put32(off uint64, v uint32) { binary.LittleEndian.PutUint32(e.b[off:], v) }
func (e *edit) put64(off uint64, v uint64) { binary.LittleEndian.PutUint64(e.b[off:], v) }
func (e *edit) get32(off uint64) uint32    { return binary.LittleEndian.Uint32(e.b[off:]) }
func (e *edit) get64(off uint64) uint64    { return binary.LittleEndian.Uint64(e.b[off:]) }

// Offsets of fields in Elf64_Ehdr, Elf64_Phdr, Elf64_Sym and Elf64_Rela.
const (
	ePhoff, ePhentsize, ePhnum                       = 32, 54, 56
	pType, pOffset, pVaddr, pFilesz, pMemsz, pAlign  = 0, 8, 16, 32, 40, 48
	stName, stInfo, stShndx, stValue, stSize         = 0, 4, 6, 8, 16
	rOffset, rInfo, rAddend                          = 0, 8, 16
	hashBuckets, hashFirst, hashFilter, hashContents = 0, 4, 8, 16 // DT_GNU_HASH
)

// program returns where the nth program header of a type is.
func (e *edit) program(kind elf.ProgType, nth int) uint64 {
	e.t.Helper()
	for i, p := range e.f.Progs {
		if p.Type == kind {
			if nth--; nth < 0 {
				return e.get64(ePhoff) + programHeaderBytes*uint64(i)
			}
		}
	}
	e.t.Fatalf("no %v", kind)
	return 0
}

// dynamic returns where the entry of a tag is; its value follows 8 bytes later.
func (e *edit) dynamic(tag elf.DynTag) uint64 {
	e.t.Helper()
	s := e.f.Section(".dynamic")
	for off := s.Offset; off < s.Offset+s.Size; off += dynamicBytes {
		if elf.DynTag(e.get64(off)) == tag {
			return off
		}
	}
	e.t.Fatalf("no %v", tag)
	return 0
}

// symbol returns where the symbol of a name is.
func (e *edit) symbol(name string) uint64 {
	e.t.Helper()
	return e.f.Section(".dynsym").Offset + symbolBytes*uint64(e.symbolIndex(name))
}

func (e *edit) symbolIndex(name string) int {
	e.t.Helper()
	symbols, err := e.f.DynamicSymbols()
	assert.NilError(e.t, err)
	for i, s := range symbols {
		if s.Name == name {
			return i + 1 // debug/elf leaves out symbol 0
		}
	}
	e.t.Fatalf("no symbol %s", name)
	return 0
}

// section returns the file offset of a section.
func (e *edit) section(name string) uint64 {
	e.t.Helper()
	s := e.f.Section(name)
	assert.Assert(e.t, s != nil, "no section %s", name)
	return s.Offset
}

// load appends bytes to the file and has them loaded at an address, by a PT_LOAD header in the
// place of PT_GNU_STACK.
func (e *edit) load(addr uint64, contents []byte) {
	e.t.Helper()
	header := e.program(elf.PT_GNU_STACK, 0)
	e.put32(header+pType, uint32(elf.PT_LOAD))
	e.put64(header+pOffset, uint64(len(e.b)))
	e.put64(header+pVaddr, addr)
	e.put64(header+pFilesz, uint64(len(contents)))
	e.put64(header+pMemsz, uint64(len(contents)))
	e.b = append(e.b, contents...)
}
