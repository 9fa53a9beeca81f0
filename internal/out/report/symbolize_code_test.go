package report

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/internal/out/record"
	"correlator/profile"
)

// Memory that a process may execute is code of its own, wherever its addresses are sampled.
func TestCompiled(t *testing.T) {
	memory, err := syscall.Mmap(-1, 0, 3*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_EXEC,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	defer syscall.Munmap(memory)
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	p := openProcess(t, os.Getpid())
	frames := []profile.Frame{{Address: start}, {Address: start + uint64(len(memory)) - 1}, {Address: 0x10}}
	names := newNamer(t).read(t.Context(), recording(map[*record.Process][]profile.Frame{p: frames}))
	for i, want := range []bool{true, true, false} {
		if got := names.compiled(p, frames[i]); got != want {
			t.Errorf("%#x: %v", frames[i].Address, got)
		}
	}
}
