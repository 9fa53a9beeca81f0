package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
)

const dwarfC = `
__attribute__((noinline)) static int inner(int n) { volatile int sum = n; while (n--) sum += n; return sum; }
static inline int between(int n) { return inner(n) + inner(n + 1); }
__attribute__((noinline)) int outer(int n) { return between(n) + 1; }
int main(int argc, char **argv) { return outer(argc); }
`

// The constructor and what is called of T are copies of abstract functions with -O2, whose
// declarations are in the class.
const dwarfCC = `
namespace space {
template <class X> struct T {
	X x;
	__attribute__((noinline)) T(X x);
	__attribute__((noinline)) X method(X n);
	static X of(X n);
};
template <class X> T<X>::T(X x) : x(x) { asm volatile("" ::: "memory"); }
template <class X> X T<X>::method(X n) { asm volatile("" ::: "memory"); return n * x; }
template <class X> __attribute__((noinline)) X T<X>::of(X n) { return T(n).method(n); }
}
static __attribute__((noinline, noclone)) int quiet(int n) { asm volatile("" ::: "memory"); return n + 1; }
int main(int argc, char **argv) { return space::T<int>::of(argc) + space::T<long>::of(argc) + quiet(argc); }
`

// buildDWARF builds a program with debugging information, and returns it without its table of
// symbols, and the functions of its own that the table has.
func buildDWARF(t testing.TB, source string, flags ...string) (file []byte, functions []elf.Symbol) {
	t.Helper()
	compiler, extension := "cc", ".c"
	if source == dwarfCC {
		compiler, extension = "c++", ".cc"
	}
	path := filepath.Join(t.TempDir(), "p"+extension)
	program := strings.TrimSuffix(path, extension)
	testenv.WriteFile(t, path, source)
	out, err := exec.Command(testenv.NeedTool(t, compiler), append(flags, "-o", program, path)...).CombinedOutput()
	assert.NilError(t, err, "\n%s", out)
	file = testenv.ReadFile(t, program)
	f, err := elf.NewFile(bytes.NewReader(file))
	assert.NilError(t, err)
	symbols, err := f.Symbols()
	assert.NilError(t, err)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Name != "_start" {
			functions = append(functions, s)
		}
	}
	at := binary.LittleEndian.Uint64(file[0x28:])
	for i, section := range f.Sections {
		if section.Type == elf.SHT_SYMTAB {
			binary.LittleEndian.PutUint32(file[int(at)+64*i+4:], uint32(elf.SHT_NULL))
		}
	}
	return file, functions
}

// Functions of a file without a table of symbols have the names that the table had, whichever the
// form of its DWARF is; what is between them has none.
func TestReadDWARF(t *testing.T) {
	for _, test := range []struct{ source, flags string }{
		{dwarfC, "-gdwarf-2 -gstrict-dwarf -O1"},
		{dwarfC, "-gdwarf-3 -O1"},
		{dwarfC, "-gdwarf-4 -O1"},
		{dwarfC, "-gdwarf-5 -O0"},
		{dwarfC, "-gdwarf-5 -gdwarf64 -O1"},
		{dwarfC, "-gdwarf-4 -gdwarf64 -O1"},
		{dwarfC, "-gdwarf-5 -gz=zlib -O1"},
		{dwarfCC, "-gdwarf-2 -gstrict-dwarf -O2"},
		{dwarfCC, "-gdwarf-5 -O2"},
		{dwarfCC, "-gdwarf-5 -O2 -fdebug-types-section"},
		{dwarfCC, "-gdwarf-5 -O2 -flto"},
	} {
		file, functions := buildDWARF(t, test.source, strings.Fields(test.flags)...)
		tables, err := elfsym.ReadSymbolTables(bytes.NewReader(file), int64(len(file)))
		assert.Assert(t, err == nil && tables.Static == nil && tables.DWARF != nil, "%s: %v", test.flags, err)
		const nowhere = 1 << 40
		addrs, names := []uint64{nowhere}, make(map[uint64][]string)
		for _, f := range functions {
			addrs = append(addrs, f.Value, f.Value+f.Size-1)
			// Of what is not exported, compilers write no linkage name.
			names[f.Value] = append(names[f.Value], strings.ReplaceAll(f.Name, "_ZL5quieti", "quiet"))
		}
		q := NewQuery(addrs)
		q.FindRanges()
		assert.NilError(t, q.ReadTable(tables.DWARF))
		for _, f := range functions {
			first, last := q.Name(f.Value), q.Name(f.Value+f.Size-1)
			assert.Check(t, slices.Contains(names[f.Value], first) && first == last, "%s: %q is %q and %q", test.flags,
				names[f.Value], first, last)
			r := q.Range(f.Value)
			assert.Check(t, r.Start <= f.Value && r.End <= f.Value+f.Size, "%s: %s has %x", test.flags, f.Name, r)
		}
		assert.Check(t, len(functions) > 2 && q.Name(nowhere) == "")
	}
}

// Names of DWARF take memory from the budgets, too.
func TestReadDWARFBudget(t *testing.T) {
	file, functions := buildDWARF(t, dwarfC, "-g")
	tables, err := elfsym.ReadSymbolTables(bytes.NewReader(file), int64(len(file)))
	assert.NilError(t, err)
	q := NewQuery([]uint64{functions[0].Value}, NewBudget(addressBytes))
	err = q.ReadTable(tables.DWARF)
	assert.Check(t, errors.Is(err, elfsym.ErrLimit) && q.OverBudget() && q.Name(functions[0].Value) == "", "%v", err)
}
