package unwind

import (
	"os"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/process"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/procscan"
)

func newMemoryTarget(t *testing.T, mem *os.File) *target {
	t.Helper()
	t.Cleanup(func() { _ = mem.Close() })
	var b budget
	b.reset()
	target := &target{mem: mem, budget: &b, mappings: make(map[uint64]procscan.Mapping)}
	target.skipped, target.memoryFiles = make(map[skipped]struct{}), make(map[uint64]bool)
	return target
}

// The engine gets the vDSO of a process only if it is the kernel's: a process can write to it.
func TestForeignVDSO(t *testing.T) {
	own := uint64(ownVDSO())
	if own == 0 {
		t.Skip("this process has no vDSO")
	}
	const length = 4096
	mem, err := os.Open("/proc/self/mem")
	assert.NilError(t, err)
	vdso := procscan.Mapping{Start: own, End: own + length, Path: "[vdso]"}
	same := newMemoryTarget(t, mem)
	raw, ok := same.engineMapping(vdso)
	assert.Check(t, ok && raw.IsVDSO() && len(same.skipped) == 0)

	b := make([]byte, length)
	_, err = mem.ReadAt(b, int64(own))
	assert.NilError(t, err)
	b[length-1]++
	fd, err := unix.MemfdCreate("vdso", unix.MFD_CLOEXEC)
	assert.NilError(t, err)
	file := os.NewFile(uintptr(fd), "vdso")
	_, err = file.Write(b)
	assert.NilError(t, err)
	other := newMemoryTarget(t, file)
	for _, m := range []procscan.Mapping{{End: length, Path: "[vdso]"}, {End: maxVDSOBytes + 1, Path: "[vdso]"}} {
		_, ok = other.engineMapping(m)
		assert.Check(t, !ok && len(other.skipped) == 1)
	}
	assert.ErrorContains(t, other.failure, "it is not the kernel's")
}

// Of a process with ever more memfds so many are looked into, and that there are more is counted.
func TestManyMemoryFiles(t *testing.T) {
	target := newMemoryTarget(t, nil)
	for i := range uint64(maxMemoryFiles) {
		target.memoryFiles[i+1] = i%2 == 0
	}
	assert.Check(t, target.isELF(procscan.Mapping{Ino: 1}) && len(target.skipped) == 0)
	for i := range uint64(3) {
		assert.Check(t, !target.isELF(procscan.Mapping{Ino: maxMemoryFiles + 1 + i}))
	}
	assert.Check(t, len(target.skipped) == 1 && len(target.memoryFiles) == maxMemoryFiles)
	assert.ErrorIs(t, target.failure, errMemoryFiles)
	_ = target.skip(&process.RawMapping{}, errVDSO) // another reason of what has no inode
	assert.Check(t, len(target.skipped) == 2)
}
