package report

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"correlator/internal/record"
	"correlator/profile"
)

// Memory that a process may execute is code of its own, wherever its addresses are sampled.
func TestCompiled(t *testing.T) {
	memory, err := syscall.Mmap(-1, 0, 3*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_EXEC,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(memory)
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	p := openProcess(t, os.Getpid())
	frames := []profile.Frame{{Address: start}, {Address: start + uint64(len(memory)) - 1}, {Address: 0x10}}
	s := newSymbolizer("/proc")
	defer s.close()
	names := s.read(t.Context(), recording(map[*record.Process][]profile.Frame{p: frames}))
	for i, want := range []bool{true, true, false} {
		if got := names.compiled(p, frames[i]); got != want {
			t.Errorf("%#x: %v", frames[i].Address, got)
		}
	}
}

func TestJoined(t *testing.T) {
	got := joined([]codeRange{{30, 40}, {10, 20}, {20, 25}, {12, 15}, {30, 40}, {50, 60}})
	if want := []codeRange{{10, 25}, {30, 40}, {50, 60}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for addr, want := range map[uint64]bool{9: false, 10: true, 24: true, 25: false, 39: true, 40: false, 50: true,
		60: false} {
		if within(got, addr) != want {
			t.Errorf("%d", addr)
		}
	}
}
