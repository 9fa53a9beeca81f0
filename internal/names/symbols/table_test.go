package symbols

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
)

// Every function of files of all sorts of this machine, against debug/elf: its first and its last
// byte.
func TestFilesOfThisMachine(t *testing.T) {
	self, err := os.Executable()
	assert.NilError(t, err)
	paths := []string{self, testenv.NeedTool(t, "cat")}
	for _, pattern := range []string{
		"/lib/*-linux-gnu/libc.so.6", "/lib/ld-musl-*.so.1", "/usr/lib/jvm/*/lib/server/libjvm.so",
		"/usr/lib/debug/.build-id/*/*.debug",
	} {
		matches, err := filepath.Glob(pattern)
		assert.NilError(t, err)
		paths = append(paths, matches[:min(len(matches), 1)]...)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) { compareWithDebugELF(t, path) })
	}
}

func compareWithDebugELF(t *testing.T, path string) {
	f, err := elf.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	e, size := open(t, path)
	static, staticErr := f.Symbols()
	dynamic, dynamicErr := f.DynamicSymbols()
	assert.Assert(t, (e.Static == nil) == (staticErr != nil) && (e.Dynamic == nil) == (dynamicErr != nil),
		"%v, %v; debug/elf: %v, %v", e.Static, e.Dynamic, staticErr, dynamicErr)
	for i, symbols := range [][]elf.Symbol{static, dynamic} {
		table := []*elfsym.SymbolTable{e.Static, e.Dynamic}[i]
		names := make(map[uint64][]elf.Symbol) // by the first and the last byte
		for _, s := range symbols {
			if kind := elf.ST_TYPE(s.Info); (kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC) &&
				s.Section != elf.SHN_UNDEF && s.Size > 0 {
				names[s.Value] = append(names[s.Value], s)
				names[s.Value+s.Size-1] = append(names[s.Value+s.Size-1], s)
			}
		}
		if table != nil {
			compareNames(t, table, names)
			compareRanges(t, table, names)
		}
		t.Logf("%d symbols, %d addresses, %d bytes", len(symbols), len(names), size)
	}
}

func compareNames(t *testing.T, table *elfsym.SymbolTable, names map[uint64][]elf.Symbol) {
	var addrs []uint64
	for addr := range names {
		addrs = append(addrs, addr)
	}
	q := NewQuery(addrs)
	assert.NilError(t, q.ReadTable(table))
	wrong := 0
	for addr, candidates := range names {
		name, ok := q.Name(addr), false
		for _, candidate := range candidates {
			for _, s := range names[candidate.Value] { // it may be that of a longer one that begins with it
				want, _, _ := strings.Cut(s.Name, "@") // a version, or the place of a linker's stub
				ok = ok || addr-s.Value < s.Size && want[:min(len(want), maxNameBytes)] == name
			}
		}
		if !ok {
			wrong++
			assert.Check(t, wrong >= 10, "%#x: %q, want one of %+v", addr, name, candidates)
		}
	}
}

// compareRanges checks that the name of an address depends on nothing else that is asked for, and is
// that of its whole range.
func compareRanges(t *testing.T, table *elfsym.SymbolTable, names map[uint64][]elf.Symbol) {
	var addrs []uint64
	for addr := range names {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	whole := NewQuery(slices.Clone(addrs))
	assert.NilError(t, whole.ReadTable(table))
	for i := range min(len(addrs), 10) {
		addr := addrs[i*len(addrs)/10%len(addrs)]
		single := NewQuery([]uint64{addr})
		single.FindRanges()
		assert.NilError(t, single.ReadTable(table))
		r := single.Range(addr)
		first, _ := slices.BinarySearch(addrs, r.Start)
		for _, other := range addrs[first:] {
			if other >= r.End {
				break
			}
			if whole.Name(other) != single.Name(addr) {
				t.Errorf("%#x is %q, but in the range %v of %#x, which is %q", other, whole.Name(other), r, addr,
					single.Name(addr))
			}
		}
	}
}

func open(t testing.TB, path string) (*elfsym.SymbolTables, int64) {
	t.Helper()
	file, err := os.Open(path)
	assert.NilError(t, err)
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	assert.NilError(t, err)
	e, err := elfsym.ReadSymbolTables(file, info.Size())
	assert.NilError(t, err)
	return e, info.Size()
}

// A function with several names has the best of them, in whichever order the table has them.
func TestAliases(t *testing.T) {
	global := ".globl %[1]s\n.type %[1]s,%%function\n.set %[1]s,f\n.size %[1]s,1\n"
	weak := ".weak %[1]s\n.type %[1]s,%%function\n.set %[1]s,f\n.size %[1]s,1\n"
	local := ".type %[1]s,%%function\n.set %[1]s,f\n.size %[1]s,1\n"
	for _, test := range []struct {
		want    string
		aliases [][2]string // directives and names
	}{
		{"longer", [][2]string{{weak, "w"}, {global, "longer"}, {local, "l"}}},
		{"w", [][2]string{{local, "l"}, {weak, "w"}, {weak, "weak"}}},
		{"read", [][2]string{{global, "__read"}, {global, "read"}, {global, "reed"}, {global, "__libc_read"}}},
	} {
		for range 2 {
			text := ".text\n.type f,%function\nf: .byte 0\n"
			for _, alias := range test.aliases {
				text += fmt.Sprintf(alias[0], alias[1])
			}
			path := filepath.Join(t.TempDir(), "f.s")
			testenv.WriteFile(t, path, text+".size f,1\n")
			tables, _ := open(t, testenv.Compile(t, "cc", path, "-shared", "-nostdlib"))
			var start uint64
			assert.NilError(t, tables.Static.Functions(func(f elfsym.Function) error {
				start = f.Start
				return nil
			}))
			q := NewQuery([]uint64{start})
			if err := q.ReadTable(tables.Static); err != nil || q.Name(start) != test.want {
				t.Errorf("%q, want %q, %v", q.Name(start), test.want, err)
			}
			slices.Reverse(test.aliases)
		}
	}
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
	testenv.WriteFile(t, source, program)
	full, stripped, debug = filepath.Join(dir, "full"), filepath.Join(dir, "stripped"), filepath.Join(dir, "debug")
	for _, command := range [][]string{
		{cc, "-O1", "-rdynamic", "-Wl,--build-id=0x0123456789abcdef", "-o", full, source},
		{objcopy, "--strip-all", full, stripped},
		{objcopy, "--only-keep-debug", full, debug},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		assert.NilError(t, err, "%v: %v\n%s", command, err, out)
	}
	return full, stripped, debug
}

func TestTables(t *testing.T) {
	full, stripped, debug := build(t)
	addr := testenv.Symbols(t, full)
	e, _ := open(t, full)
	naked, _ := open(t, stripped)
	apart, _ := open(t, debug)
	assert.Assert(t, naked.Static == nil && apart.Static != nil && e.Static != nil && naked.Dynamic != nil,
		"%+v %+v %+v", e, naked, apart)
	const id = "\x01\x23\x45\x67\x89\xab\xcd\xef"
	if string(e.BuildID) != id || string(naked.BuildID) != id || string(apart.BuildID) != id {
		t.Errorf("build ids %x, %x, %x", e.BuildID, naked.BuildID, apart.BuildID)
	}
	for _, test := range []struct {
		what  string
		addr  uint64
		table *elfsym.SymbolTable
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
		if err := q.ReadTable(test.table); err != nil || q.Name(test.addr) != test.want {
			t.Errorf("%s: %q, want %q; %v", test.what, q.Name(test.addr), test.want, err)
		}
	}
	// What has a name keeps it.
	q := NewQuery([]uint64{addr["exported"], addr["hidden"]})
	q.names[0], q.names[1] = "", "mine"
	if err := q.ReadTable(e.Static); err != nil || q.names[0]+q.names[1] != "exportedmine" && q.names[1] != "mine" {
		t.Errorf("%q, %v", q.names, err)
	}
}
