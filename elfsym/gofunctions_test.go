package elfsym

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A stripped program of Go has the functions, at the same addresses, that it has in a table of symbols where it was not
// stripped: at a fixed address and at any, linked by Go and by the system's linker.
func TestGoFunctions(t *testing.T) {
	testenv.NeedTool(t, "go")
	dir := t.TempDir()
	testenv.WriteFile(t, filepath.Join(dir, "go.mod"), []byte("module p\ngo 1.22\n"))
	testenv.WriteFile(t, filepath.Join(dir, "main.go"), []byte(`package main

import "os"

//go:noinline
func leaf(n int) int { return n*n + len(os.Args) }

func main() { os.Exit(leaf(0) - len(os.Args)) }
`))
	testenv.WriteFile(t, filepath.Join(dir, "cgo.go"), []byte("package main\n\n// int one(void) { return 1; }\n"+
		"import \"C\"\n\nvar one = C.one()\n"))
	for name, flags := range map[string][]string{
		"fixed": {"CGO_ENABLED=0", "-buildmode=exe"}, "any": {"CGO_ENABLED=0", "-buildmode=pie"},
		"cgo": {"CGO_ENABLED=1", "-buildmode=exe"}, "any-cgo": {"CGO_ENABLED=1", "-buildmode=pie"},
	} {
		t.Run(name, func(t *testing.T) {
			build := func(ldflags string) *SymbolTables {
				path := filepath.Join(t.TempDir(), "p")
				cmd := exec.Command("go", "build", flags[1], "-ldflags", ldflags, "-o", path)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), flags[0], "GOFLAGS=-trimpath", "GOWORK=off")
				out, err := cmd.CombinedOutput()
				assert.NilError(t, err, "%s", out)
				b := testenv.ReadFile(t, path)
				tables, err := ReadSymbolTables(bytes.NewReader(b), int64(len(b)))
				assert.NilError(t, err)
				return tables
			}
			symbols, stripped := build(""), build("-s -w")
			assert.Assert(t, symbols.Go == nil && stripped.Static == nil)
			want := make(map[uint64]map[string]bool)
			buf := make([]byte, 4096)
			assert.NilError(t, symbols.Static.Functions(func(f Function) error {
				name, err := symbols.Static.Name(f.Name, buf)
				if want[f.Start] == nil {
					want[f.Start] = make(map[string]bool)
				}
				want[f.Start][strings.TrimSuffix(string(name), ".abi0")] = true
				return err
			}))
			found, wrong := make(map[string]bool), 0
			assert.NilError(t, stripped.Go.Functions(func(f Function) error {
				name, err := stripped.Go.Name(f.Name, buf)
				found[string(name)] = true
				known := strings.ReplaceAll(string(name), "·", ".") // as the linker has it in tables of symbols
				if !strings.Contains(known, "[...]") && !want[f.Start][known] {
					wrong++
					t.Logf("%#x: %s, not of %v", f.Start, name, want[f.Start])
				}
				return err
			}))
			assert.Check(t, found["main.leaf"] && found["main.main"] && found["runtime.mallocgc"] && len(found) > 500,
				len(found))
			assert.Check(t, wrong == 0, "%d", wrong)
		})
	}
}

// Tables in which a number is impossible, or leads out of the section, name nothing; nothing is read beyond it.
func TestGoFunctionsHostile(t *testing.T) {
	section := func(change func(b []byte)) []byte {
		b := make([]byte, functionsBytes)
		binary.LittleEndian.PutUint32(b, functionsMagic)
		b[6], b[7] = 1, 8
		for at, value := range map[int]uint64{8: 1, 24: 0x1000, 32: 72, 40: 77, 64: 77} {
			binary.LittleEndian.PutUint64(b[at:], value)
		}
		b = append(b, "main\x00"...)
		for _, word := range []uint32{0, 12, 16, 0, 0, 0} { // address, place, end; then a description
			b = binary.LittleEndian.AppendUint32(b, word)
		}
		change(b)
		return b
	}
	read := func(b []byte) (names []string, g *GoFunctions, err error) {
		file := goProgram(goSection{".gopclntab", b})
		tables, err := ReadSymbolTables(bytes.NewReader(file), int64(len(file)))
		assert.NilError(t, err)
		err = tables.Go.Functions(func(f Function) error {
			name, err := tables.Go.Name(f.Name, make([]byte, 64))
			names = append(names, string(name))
			return err
		})
		return names, tables.Go, err
	}
	names, g, err := read(section(func([]byte) {}))
	assert.NilError(t, err)
	assert.DeepEqual(t, names, []string{"main"})
	assert.Check(t, g.text == 0x1000)
	word := func(at int, value uint64) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], value) }
	}
	for name, change := range map[string]func(b []byte){
		"magic": word(0, 1), "pointers": func(b []byte) { b[7] = 4 }, "count": word(8, 4), "many": word(8, 1<<60),
		"names": word(32, 78), "names' end": word(40, 1<<40), "table": word(64, 1<<63), "text": word(24, 1<<64-1),
		"no text": word(24, 0),
	} {
		names, g, err := read(section(change))
		assert.Check(t, g == nil && err == nil && names == nil, "%s: %v", name, names)
	}
	for name, change := range map[string]func(b []byte){
		"place": func(b []byte) { binary.LittleEndian.PutUint32(b[81:], 17) },
		"far":   func(b []byte) { binary.LittleEndian.PutUint32(b[81:], 1<<32-1) },
		"name":  func(b []byte) { binary.LittleEndian.PutUint32(b[93:], 5) },
	} {
		_, _, err := read(section(change))
		assert.Check(t, IsContentError(err), "%s: %v", name, err)
	}
	err = (&GoFunctions{count: maxSymbols + 1}).Functions(nil)
	assert.Check(t, errors.Is(err, ErrLimit), "%v", err)
	backwards := func(b []byte) { binary.LittleEndian.PutUint32(b[77:], 17) }
	names, _, err = read(section(backwards))
	assert.Check(t, names == nil && err == nil, "%v, %v", names, err)
}
