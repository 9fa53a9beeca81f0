package unwind

import (
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// callers are functions of the programs of internal/lab/truth, by those of which one has to call them.
var callers = map[string][]string{
	"hash": {"price", "reserve"}, "tiny": {"count"}, "fib": {"recurse"}, "compare": {"sorting"}, "spin": {"signals"},
	"main.hash": {"main.price", "main.reserve"}, "main.tiny": {"main.count"}, "main.fib": {"main.recurse"},
	"main.square.area": {"main.interfaces"},
}

// Stacks of C and Go that are not cut have each caller of the code that is sampled: of functions without a frame, of
// those that are making or leaving theirs, of the C library's code and assembly, of a signal's handler.
func TestCallers(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	const sources = "../../lab/truth/testdata/"
	for _, build := range []string{
		"gcc -O0 -no-pie", "gcc -O2 -no-pie", "musl-gcc -O2 -no-pie", "musl-gcc -O2 -static -no-pie", "go build",
	} {
		t.Run(build, func(t *testing.T) {
			source, main := sources+"native.c", "work"
			if build == "go build" {
				source, main = sources+"golang/main.go", "main.work"
			}
			if strings.HasPrefix(build, "musl") && runtime.GOARCH != "amd64" {
				t.Skip("cut on " + runtime.GOARCH)
			}
			program := filepath.Join(t.TempDir(), "program")
			args := append(strings.Fields(build), "-o", program, source)
			cmd := exec.Command(testenv.NeedTool(t, args[0]), args[1:]...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			output, err := cmd.CombinedOutput()
			assert.NilError(t, err, "\n%s", output)
			nameOf := functionsOf(t, program)
			j := startBusy(t, program)
			e.synchronize(t, j.target)
			seen := make(map[string]int)
			n, cut := 0, 0
			for ; n < 100 || len(seen) < 4; n++ {
				assert.Assert(t, n < 20 || cut <= n/2, "of %d stacks, %d are cut", n, cut)
				s := e.next(t, j.target)
				frames, err := e.name(t, j.target, s)
				assert.NilError(t, err)
				if s.failure != 0 || slices.ContainsFunc(frames, func(f Frame) bool { return f.Kind == CutFrame }) {
					cut++
					continue
				}
				names := make([]string, len(frames))
				for i := range frames {
					names[i] = nameOf(frames[i].Address)
				}
				isOther := build == "go build" && !slices.Contains(names, "main.main") // a thread of the runtime
				assert.Assert(t, isOther || slices.Contains(names, main), "%v %x", names, frames)
				for function, above := range callers {
					if at := slices.Index(names, function); at >= 0 {
						seen[function]++
						isAbove := func(name string) bool { return slices.Contains(above, name) }
						assert.Assert(t, slices.ContainsFunc(names[at:], isAbove), names)
					}
				}
			}
			assert.Check(t, e.Remove(t.Context(), j.target))
		})
	}
}

// Stacks are whole in a library that was deleted, or is in a memfd; or that was on a file system
// which is in no table of mounts, as that of a container that has gone: there, what is mapped of it
// is read from memory.
func TestFilesThatAreGone(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	source := "testdata/mapped.c"
	library := testenv.Compile(t, "cc", source, "-DLIBRARY", "-O1", "-fomit-frame-pointer", "-shared", "-fPIC")
	program := testenv.Compile(t, "cc", source, "-O1", "-ldl")
	nameOf := functionsOf(t, library)
	for _, kind := range []string{"deleted", "memfd", "unmounted", "overlay"} {
		t.Run(kind, func(t *testing.T) {
			t.Chdir(t.TempDir())
			j := startBusy(t, program, kind, library)
			skipped := e.counters.FilesSkipped.Load()
			e.synchronize(t, j.target)
			skipped = e.counters.FilesSkipped.Load() - skipped
			assert.Check(t, skipped == 0, "%d files were not read", skipped)
			for range 20 {
				s := e.next(t, j.target)
				frames, err := e.name(t, j.target, s)
				assert.NilError(t, err)
				var names []string
				for _, f := range frames[:min(4, len(frames))] {
					names = append(names, nameOf(0x1000+f.Address%0x1000)) // all are in the one page of its code
				}
				at := slices.Index(names, "work")
				assert.Assert(t, s.failure == 0 && at >= 0 && len(frames) >= at+3, "%d: %v %+v", s.failure, names,
					frames)
				assert.Check(t, slices.Equal(names[:at], []string{"innermost", "inner", "outer"}[3-at:]), names)
			}
		})
	}
}

// Stacks of coroutines begin with their function, and are not cut.
func TestContexts(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("cut on " + runtime.GOARCH)
	}
	e := shareEngine(t)
	e.sample(t)
	for _, flag := range []string{"-O0", "-O2"} {
		program := testenv.Compile(t, "cc", "testdata/contexts.c", flag, "-no-pie")
		nameOf := functionsOf(t, program)
		j := startBusy(t, program)
		e.synchronize(t, j.target)
		for whole := 0; whole < 20; {
			s := e.next(t, j.target)
			frames, err := e.name(t, j.target, s)
			assert.NilError(t, err)
			var names []string
			for _, f := range frames {
				names = append(names, nameOf(f.Address))
			}
			if slices.Contains(names, "coroutine") {
				last := slices.Index(names, "coroutine") == len(frames)-2
				assert.Assert(t, s.failure == 0 && last, "%d: %q", s.failure, names)
				whole++
			}
		}
	}
}

// A program with a table of Go's functions that is damaged is unwound all the same, and counted.
func TestUncorrected(t *testing.T) {
	e := shareEngine(t)
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command(testenv.NeedTool(t, "go"), "build", "-o", program, "../../lab/truth/testdata/golang/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	assert.NilError(t, err, "\n%s", output)
	file, err := elf.Open(program)
	assert.NilError(t, err)
	defer file.Close()
	section := file.Section(".gopclntab")
	table, err := section.Data()
	assert.NilError(t, err)
	functions := table[binary.LittleEndian.Uint64(table[64:]):]
	const which = 5 // it does not run
	described := len(table) - len(functions) + int(binary.LittleEndian.Uint32(functions[8*which+4:]))
	f, err := os.OpenFile(program, os.O_RDWR, 0)
	assert.NilError(t, err)
	_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, int64(section.Offset)+int64(described)+16)
	assert.NilError(t, err)
	_, err = f.Seek(0, io.SeekEnd)
	assert.NilError(t, err)
	_, err = f.WriteString("another file than that of TestCallers, by its end")
	assert.NilError(t, err)
	assert.NilError(t, f.Close())
	uncorrected, skipped := e.counters.Uncorrected.Load(), e.counters.FilesSkipped.Load()
	e.synchronize(t, startBusy(t, program).target)
	uncorrected, skipped = e.counters.Uncorrected.Load()-uncorrected, e.counters.FilesSkipped.Load()-skipped
	assert.Check(t, uncorrected == 1 && skipped == 0, "%d, %d", uncorrected, skipped)
}

// functionsOf returns a function that names the functions of a program that is where it was linked to be.
func functionsOf(t *testing.T, program string) func(addr uint64) string {
	t.Helper()
	file, err := elf.Open(program)
	assert.NilError(t, err)
	defer file.Close()
	symbols, err := file.Symbols()
	assert.NilError(t, err)
	return func(addr uint64) string {
		for _, s := range symbols {
			if s.Value <= addr && addr < s.Value+s.Size {
				return s.Name
			}
		}
		return ""
	}
}
