package unwind

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Stacks go on behind trampolines of CPython, which are not shown, and the memory that they are in is no file of the
// process.
func TestTrampolines(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("trampolines of CPython are known on x86-64")
	}
	program := filepath.Join(t.TempDir(), "trampoline")
	build := exec.Command(testenv.NeedTool(t, "cc"), "-O1", "-o", program, "testdata/trampoline.c")
	output, err := build.CombinedOutput()
	assert.NilError(t, err, "%s", output)
	e := shareEngine(t)
	e.sample(t)
	for _, form := range []string{"0", "1"} {
		t.Run(form, func(t *testing.T) {
			j := startBusy(t, program, form)
			e.synchronize(t, j.target)
			e.eachWhole(t, j.target, 20, func(frames []Frame) bool {
				assert.Check(t, len(frames) >= 4, "%+v", frames) // busy, main, what calls that, and _start
				e.checkMapped(t, j, frames)
				return true
			})
			assert.Check(t, e.Remove(t.Context(), j.target))
			e.checkNothingOf(t, j.target)
		})
	}
}

// The file that stands for trampolines can be read as one.
func TestTrampolinesFile(t *testing.T) {
	b := make([]byte, 256)
	n, _ := trampolinesFile().ReadAt(b, 0)
	assert.Check(t, n == 64+56 && strings.HasPrefix(string(b), "\x7fELF"), "%d bytes", n)
}
