package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
)

// dwarfOnly returns a program with DWARF, whose table of symbols is none any more, and where functions of it are.
func dwarfOnly(t *testing.T, flags ...string) (file []byte, functions map[string]elf.Symbol) {
	t.Helper()
	source, program := filepath.Join(t.TempDir(), "program.c"), filepath.Join(t.TempDir(), "program")
	testenv.WriteFile(t, source, []byte(`
__attribute__((noinline)) static int inner(int n) { volatile int sum = n; while (n--) sum += n; return sum; }
static inline int between(int n) { return inner(n) + inner(n + 1); }
__attribute__((noinline)) int outer(int n) { return between(n) + 1; }
int main(int argc, char **argv) { return outer(argc); }
`))
	args := append([]string{"-g", "-O1", "-o", program, source}, flags...)
	out, err := exec.Command(testenv.NeedTool(t, "cc"), args...).CombinedOutput()
	assert.NilError(t, err, "\n%s", out)
	file, err = os.ReadFile(program)
	assert.NilError(t, err)
	f, err := elf.NewFile(bytes.NewReader(file))
	assert.NilError(t, err)
	symbols, err := f.Symbols()
	assert.NilError(t, err)
	functions = make(map[string]elf.Symbol)
	for _, s := range symbols {
		functions[s.Name] = s
	}
	at := binary.LittleEndian.Uint64(file[0x28:])
	for i, section := range f.Sections {
		if section.Type == elf.SHT_SYMTAB {
			binary.LittleEndian.PutUint32(file[int(at)+64*i+4:], uint32(elf.SHT_NULL))
		}
	}
	return file, functions
}

// A file without a table of symbols has the names that its DWARF says, in each of its versions; what is between
// functions has none.
func TestReadDWARF(t *testing.T) {
	for _, flags := range [][]string{{"-gdwarf-4"}, {"-gdwarf-5"}, {"-gdwarf-5", "-gz=zlib"}} {
		file, functions := dwarfOnly(t, flags...)
		tables, err := elfsym.ReadSymbolTables(bytes.NewReader(file), int64(len(file)))
		assert.Assert(t, err == nil && tables.Static == nil && tables.HasDWARF, "%s: %v", flags, err)
		var addrs []uint64
		names := []string{"inner", "outer", "main"}
		for _, name := range names {
			addrs = append(addrs, functions[name].Value, functions[name].Value+functions[name].Size-1)
		}
		q := NewQuery(append(addrs, 1<<40))
		q.FindRanges()
		assert.NilError(t, q.ReadDWARF(bytes.NewReader(file)))
		for _, name := range names {
			s := functions[name]
			first, last := q.Name(s.Value), q.Name(s.Value+s.Size-1)
			assert.Check(t, first == name && last == name, "%s: %s is %q and %q", flags, name, first, last)
			r := q.Range(s.Value)
			assert.Check(t, r.Start <= s.Value && r.End <= s.Value+s.Size, "%s: %s has %x", flags, name, r)
		}
		assert.Check(t, q.Name(1<<40) == "")
	}
}

// What DWARF there is, is read within bounds.
func TestReadDWARFIsBounded(t *testing.T) {
	file, functions := dwarfOnly(t)
	q := NewQuery([]uint64{functions["outer"].Value}, NewBudget(addressBytes))
	err := q.ReadDWARF(bytes.NewReader(file))
	assert.Check(t, errors.Is(err, elfsym.ErrLimit) && q.OverBudget(), "%v", err)

	f, err := elf.NewFile(bytes.NewReader(file))
	assert.NilError(t, err)
	at := binary.LittleEndian.Uint64(file[0x28:])
	for i, section := range f.Sections {
		if section.Name == ".debug_str" {
			binary.LittleEndian.PutUint64(file[int(at)+64*i+32:], maxDWARF+1)
		}
	}
	q = NewQuery([]uint64{functions["outer"].Value})
	err = q.ReadDWARF(bytes.NewReader(file))
	assert.Check(t, errors.Is(err, elfsym.ErrLimit) && q.Name(functions["outer"].Value) == "", "%v", err)
}

// Whatever a file has as its DWARF, it is names, or an error.
func FuzzReadDWARF(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := NewQuery([]uint64{0x1000, 0x2000})
		if q.ReadDWARF(bytes.NewReader(b)) == nil {
			assert.Check(t, len(q.Name(0x1000)) <= maxNameBytes)
		}
	})
}
