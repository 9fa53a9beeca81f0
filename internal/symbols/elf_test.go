package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"correlator/elfsym"
	"correlator/internal/testenv"
)

// Every function of files of all sorts of this machine, against debug/elf: its first and its last byte.
func TestFilesOfThisMachine(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{self, testenv.NeedTool(t, "cat")}
	for _, pattern := range []string{
		"/lib/*-linux-gnu/libc.so.6", "/lib/ld-musl-*.so.1", "/usr/lib/jvm/*/lib/server/libjvm.so", "/usr/lib/debug/.build-id/*/*.debug",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, matches[:min(len(matches), 1)]...)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) { compareWithDebugELF(t, path) })
	}
}

func compareWithDebugELF(t *testing.T, path string) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, size := open(t, path)
	static, staticErr := f.Symbols()
	dynamic, dynamicErr := f.DynamicSymbols()
	if (e.Static == nil) != (staticErr != nil) || (e.Dynamic == nil) != (dynamicErr != nil) {
		t.Fatalf("%v, %v; debug/elf: %v, %v", e.Static, e.Dynamic, staticErr, dynamicErr)
	}
	for i, symbols := range [][]elf.Symbol{static, dynamic} {
		table := []*Table{e.Static, e.Dynamic}[i]
		names := make(map[uint64][]elf.Symbol) // by the first and the last byte
		for _, s := range symbols {
			if kind := elf.ST_TYPE(s.Info); (kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC) && s.Section != elf.SHN_UNDEF && s.Size > 0 {
				names[s.Value] = append(names[s.Value], s)
				names[s.Value+s.Size-1] = append(names[s.Value+s.Size-1], s)
			}
		}
		if table != nil {
			compareNames(t, table, names)
		}
		t.Logf("%d symbols, %d addresses, %d bytes", len(symbols), len(names), size)
	}
}

func compareNames(t *testing.T, table *Table, names map[uint64][]elf.Symbol) {
	var addrs []uint64
	for addr := range names {
		addrs = append(addrs, addr)
	}
	q := NewQuery(addrs)
	if err := table.Name(q); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for addr, candidates := range names {
		name, ok := q.Name(addr), false
		for _, s := range candidates {
			ok = ok || s.Name[:min(len(s.Name), maxNameBytes)] == name
		}
		if !ok {
			if wrong++; wrong < 10 {
				t.Errorf("%#x: %q, want one of %+v", addr, name, candidates)
			}
		}
	}
}

func open(t testing.TB, path string) (*ELF, int64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	e, err := ReadELF(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return e, info.Size()
}

const program = `
void exported(void) { __asm__ volatile("nop"); }
static __attribute__((noinline, used)) void hidden(void) { __asm__ volatile("nop"); }
__asm__(".text\n.globl bare\nbare: nop\nnop\n.type sizeless,%function\nsizeless: nop\nnop\nnop\nlabel: nop\n"
        ".globl last\n.type last,%function\n.size last,1\nlast: nop\n");
int data = 1;
int main(void) { exported(); hidden(); return data; }
`

// build returns the program, the same without symbols, and its debug file, which has nothing else.
func build(t *testing.T) (full, stripped, debug string) {
	t.Helper()
	cc, objcopy := testenv.NeedTool(t, "cc"), testenv.NeedTool(t, "objcopy")
	dir := t.TempDir()
	source := filepath.Join(dir, "program.c")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	full, stripped, debug = filepath.Join(dir, "full"), filepath.Join(dir, "stripped"), filepath.Join(dir, "debug")
	for _, command := range [][]string{
		{cc, "-O1", "-rdynamic", "-Wl,--build-id=0x0123456789abcdef", "-o", full, source},
		{objcopy, "--strip-all", full, stripped},
		{objcopy, "--only-keep-debug", full, debug},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return full, stripped, debug
}

func TestTables(t *testing.T) {
	full, stripped, debug := build(t)
	f, err := elf.Open(full)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	addr := make(map[string]uint64)
	for _, s := range symbols {
		addr[s.Name] = s.Value
	}
	e, _ := open(t, full)
	naked, _ := open(t, stripped)
	apart, _ := open(t, debug)
	if naked.Static != nil || apart.Static == nil || e.Static == nil || naked.Dynamic == nil {
		t.Fatalf("%+v %+v %+v", e, naked, apart)
	}
	const id = "\x01\x23\x45\x67\x89\xab\xcd\xef"
	if string(e.BuildID) != id || string(naked.BuildID) != id || string(apart.BuildID) != id {
		t.Errorf("build ids %x, %x, %x", e.BuildID, naked.BuildID, apart.BuildID)
	}
	for _, test := range []struct {
		what  string
		addr  uint64
		table *Table
		want  string
	}{
		{"a function", addr["exported"], e.Static, "exported"},
		{"a local function", addr["hidden"], e.Static, "hidden"},
		{"without type and size", addr["bare"] + 1, e.Static, "bare"},
		{"without size", addr["sizeless"] + 2, e.Static, "sizeless"},
		{"behind a local label", addr["label"], e.Static, "sizeless"},
		{"the last", addr["last"], e.Static, "last"},
		{"data", addr["data"], e.Static, ""},
		{"the end of the data", addr["_end"], e.Static, ""},
		{"nothing", 1, e.Static, ""},
		{"exported", addr["exported"], naked.Dynamic, "exported"},
		{"not exported", addr["hidden"], naked.Dynamic, ""},
		{"without size, where others can be missing", addr["bare"] + 1, naked.Dynamic, ""},
		{"in a debug file", addr["hidden"], apart.Static, "hidden"},
		{"without size, in a debug file", addr["bare"], apart.Static, "bare"},
		{"no table", addr["exported"], naked.Static, ""},
	} {
		q := NewQuery([]uint64{test.addr})
		if err := test.table.Name(q); err != nil || q.Name(test.addr) != test.want {
			t.Errorf("%s: %q, want %q; %v", test.what, q.Name(test.addr), test.want, err)
		}
	}
	// What has a name keeps it.
	q := NewQuery([]uint64{addr["exported"], addr["hidden"]})
	q.names[0], q.names[1] = "", "mine"
	if err := e.Static.Name(q); err != nil || q.names[0]+q.names[1] != "exportedmine" && q.names[1] != "mine" {
		t.Errorf("%q, %v", q.names, err)
	}
}

// sparse is a file of any size: some bytes, and zeros after them. It counts what is read.
type sparse struct {
	bytes []byte
	read  int64
}

func (s *sparse) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	s.read += int64(len(b))
	if off < int64(len(s.bytes)) {
		copy(b, s.bytes[off:])
	}
	return len(b), nil
}

// image is a file of section headers: null, .symtab, .strtab and .text, which says that it is everywhere.
func image(symbols, names section, entries ...[]byte) []byte {
	b := make([]byte, headerBytes+4*sectionHeaderBytes)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	binary.LittleEndian.PutUint64(b[40:], headerBytes)
	binary.LittleEndian.PutUint16(b[58:], sectionHeaderBytes)
	binary.LittleEndian.PutUint16(b[60:], 4)
	text := section{kind: elf.SHT_PROGBITS, flags: uint64(elf.SHF_EXECINSTR), size: 1 << 62}
	for i, s := range []section{symbols, names, text} {
		h := b[headerBytes+(i+1)*sectionHeaderBytes:]
		binary.LittleEndian.PutUint32(h[4:], uint32(s.kind))
		binary.LittleEndian.PutUint64(h[8:], s.flags)
		binary.LittleEndian.PutUint64(h[16:], s.addr)
		binary.LittleEndian.PutUint64(h[24:], s.off)
		binary.LittleEndian.PutUint64(h[32:], s.size)
		binary.LittleEndian.PutUint32(h[40:], s.link)
		binary.LittleEndian.PutUint64(h[56:], s.entryBytes)
	}
	return append(b, bytes.Join(entries, nil)...)
}

func entry(name uint32, info byte, shndx uint16, value, size uint64) []byte {
	b := make([]byte, symbolBytes)
	binary.LittleEndian.PutUint32(b, name)
	b[4] = info
	binary.LittleEndian.PutUint16(b[6:], shndx)
	binary.LittleEndian.PutUint64(b[8:], value)
	binary.LittleEndian.PutUint64(b[16:], size)
	return b
}

const (
	entriesOff = headerBytes + 4*sectionHeaderBytes
	function   = byte(elf.STB_GLOBAL)<<4 | byte(elf.STT_FUNC)
)

func TestHostileFiles(t *testing.T) {
	const huge = 1 << 50
	valid := entry(1, function, 3, 0x1000, 16)
	symbols := section{kind: elf.SHT_SYMTAB, off: entriesOff, size: symbolBytes, link: 2, entryBytes: symbolBytes}
	names := section{kind: elf.SHT_STRTAB, off: entriesOff + symbolBytes, size: 64}
	with := func(change func(symbols, names *section)) []byte {
		s, n := symbols, names
		change(&s, &n)
		return image(s, n, valid, []byte("\x00name\x00"))
	}
	for _, test := range []struct {
		what string
		file []byte
		size int64
		want error // of reading or of naming
		name string
	}{
		{"none of it", with(func(*section, *section) {}), huge, nil, "name"},
		{"a billion symbols", with(func(s, _ *section) { s.size = 24 << 30 }), huge, elfsym.ErrLimit, ""},
		{"as many as are allowed", with(func(s, _ *section) { s.size = maxSymbols * symbolBytes }), huge, nil, "name"},
		{"symbols behind the end", with(func(s, _ *section) { s.off = huge }), huge, elfsym.ErrTruncated, ""},
		{"symbols that wrap", with(func(s, _ *section) { s.off = ^uint64(0) - 8 }), huge, elfsym.ErrTruncated, ""},
		{"symbols of another size", with(func(s, _ *section) { s.entryBytes = 25 }), huge, nil, ""},
		{"names in no section", with(func(s, _ *section) { s.link = 9 }), huge, nil, ""},
		{"names that are none", with(func(_, n *section) { n.kind = elf.SHT_PROGBITS }), huge, nil, ""},
		{"names behind the end", with(func(_, n *section) { n.off = huge }), huge, nil, ""},
		{"names that wrap", with(func(_, n *section) { n.off = ^uint64(0); n.size = ^uint64(0) }), huge, nil, ""},
		{"a name behind its table", with(func(_, n *section) { n.size = 1 }), huge, nil, ""},
		{"a name without an end", image(symbols, names, valid, []byte("\x00name")), entriesOff + symbolBytes + 5, nil, "name"},
		{"a name of a gigabyte", image(symbols, section{kind: elf.SHT_STRTAB, size: huge},
			entry(entriesOff+symbolBytes, function, 3, 0x1000, 16), bytes.Repeat([]byte("x"), 1<<20)), huge, nil, string(bytes.Repeat([]byte("x"), maxNameBytes))},
		{"a symbol that wraps", image(symbols, names, entry(1, function, 3, 0x1000, ^uint64(0)), []byte("\x00name\x00")), huge, nil, ""},
		{"no room for the header", []byte(elf.ELFMAG), 4, elfsym.ErrTruncated, ""},
		{"no room for the sections", with(func(*section, *section) {})[:headerBytes], headerBytes, elfsym.ErrTruncated, ""},
		{"no ELF file", make([]byte, headerBytes), headerBytes, elfsym.ErrNotELF, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			r := &sparse{bytes: test.file}
			q := NewQuery([]uint64{0x1008})
			e, err := ReadELF(r, test.size)
			if err == nil {
				err = e.Static.Name(q)
			}
			if !errors.Is(err, test.want) || q.Name(0x1008) != test.name {
				t.Errorf("%q, %v; want %.20q, %v", q.Name(0x1008), err, test.name, test.want)
			}
			if r.read > maxSymbols*symbolBytes+1<<20 {
				t.Errorf("read %d bytes", r.read)
			}
		})
	}
}

type failing struct{}

var errRead = errors.New("no more")

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errRead }

// An error of reading is none of the contents; a file that has become shorter is one.
func TestReadErrors(t *testing.T) {
	if _, err := ReadELF(failing{}, 1<<20); !errors.Is(err, errRead) || elfsym.IsContentError(err) {
		t.Error(err)
	}
	if _, err := ReadELF(bytes.NewReader(nil), 1<<20); !errors.Is(err, elfsym.ErrTruncated) {
		t.Error(err)
	}
	symbols := section{kind: elf.SHT_SYMTAB, off: entriesOff, size: 2 * symbolBytes, link: 2, entryBytes: symbolBytes}
	b := image(symbols, section{kind: elf.SHT_STRTAB, size: 4}, entry(1, function, 3, 0, 1))
	e, err := ReadELF(bytes.NewReader(b), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Static.Name(NewQuery([]uint64{0})); !errors.Is(err, elfsym.ErrTruncated) || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
