package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/process"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/stacks/unwind/deltas"
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

	contents := make([]byte, length)
	_, err = mem.ReadAt(contents, int64(own))
	assert.NilError(t, err)
	id := buildID(contents)
	assert.Assert(t, len(id) > 0, "the vDSO has no build id")
	for _, test := range []struct {
		what   string
		change func(b []byte) []byte
		length uint64
		want   error
	}{
		{"too long", func(b []byte) []byte { return b }, maxVDSOBytes + 1, errVDSOBytes},
		{"of 32 bits", func(b []byte) []byte { b[elf.EI_CLASS] = byte(elf.ELFCLASS32); return b }, length, errVDSO32},
		{"changed", func(b []byte) []byte { b[length-1]++; return b }, length, errVDSOChanged},
		{"of another kernel", func(b []byte) []byte { b[bytes.Index(b, id)]++; return b }, length, errVDSO},
		{"none", func([]byte) []byte { return make([]byte, length) }, length, errVDSO},
		{"longer", func(b []byte) []byte { return append(b, make([]byte, maxVDSOBytes)...) }, maxVDSOBytes,
			errVDSOChanged},
		{"not there", func([]byte) []byte { return nil }, length, io.EOF},
	} {
		fd, err := unix.MemfdCreate("vdso", unix.MFD_CLOEXEC)
		assert.NilError(t, err)
		file := os.NewFile(uintptr(fd), "vdso")
		_, err = file.Write(test.change(slices.Clone(contents)))
		assert.NilError(t, err)
		other := newMemoryTarget(t, file)
		for range 2 {
			_, ok = other.engineMapping(procscan.Mapping{End: test.length, Path: "[vdso]"})
			assert.Check(t, !ok && len(other.skipped) == 1, test.what)
		}
		assert.ErrorIs(t, other.failure, test.want, test.what)
		cannot := strings.Contains(other.failure.Error(), "it cannot be read")
		assert.Check(t, cannot == (test.want == io.EOF), "%s: %v", test.what, other.failure)
	}
}

// So much is read for a request, and that more would have been is counted and said.
func TestBudget(t *testing.T) {
	file, err := os.Open("/dev/zero")
	assert.NilError(t, err)
	for name, spend := range map[string]func(target *target) error{
		"nothing": func(*target) error { return nil },
		"bytes":   func(target *target) error { return target.budget.spend(maxRequestBytes) },
		"reads": func(target *target) (err error) {
			for range maxRequestReads {
				err = errors.Join(err, target.budget.spend(0))
			}
			return err
		},
		"memory": func(target *target) error { return target.budget.spendMemory(maxMemoryBytes) },
		"heap": func(target *target) error {
			err := target.budget.spend(heapStep)
			target.budget.heap.Store(-2 * maxHeapBytes) // as if so much were kept since
			return err
		},
		"time": func(target *target) error {
			err := target.budget.spend(heapStep)
			target.budget.time.Add(-int64(2 * maxRequestTime)) // as if it had begun before
			return err
		},
		"pages": func(target *target) error {
			_, err := targetMemory{target}.ReadAt(make([]byte, maxPages*pageBytes), 0)
			return err
		},
	} {
		target, pages := newMemoryTarget(t, file), newPages()
		target.readByPages(pages, func() {
			assert.NilError(t, spend(target), name)
			_ = target.budget.spend(heapStep)
			_, err := targetMemory{target}.ReadAt(make([]byte, 1), maxPages*pageBytes)
			assert.Check(t, errors.Is(err, errBudget) == (name != "nothing"), "%s: %v", name, err)
		})
		target.skipRest(pages)
		isShort := errors.Is(target.failure, errBudget)
		assert.Check(t, isShort == (len(target.skipped) == 1) && isShort == (name != "nothing"), "%s: %v", name,
			target.failure)
	}
}

// What reads a file for ever is stopped once nothing more is read, unless it has locked itself.
func TestFailedReads(t *testing.T) {
	for _, isLocked := range []bool{false, true} {
		var b budget
		b.reset()
		r := limitedReader{notClosed{bytes.NewReader(nil)}, &b, nil, &isLocked}
		stopped := func() (why any) {
			defer func() { why = recover() }()
			for range maxRequestReads + maxFailedReads + 1 {
				_, _ = r.ReadAt(nil, 0)
			}
			return nil
		}()
		assert.Check(t, (stopped == errBudget) == !isLocked && (stopped == nil) == isLocked, "%v", stopped)
	}
}

// Of trampolines side by side, those behind a size are code of no file.
func TestManyTrampolines(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("trampolines are known on x86-64")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	assert.NilError(t, err)
	const start = 1 << 20
	_, err = file.WriteAt(bytes.Repeat([]byte("\x55\x48\x89\xe5\xff\xd1\x5d\xc3"), 8), start) // of CPython 3.14
	assert.NilError(t, err)
	target := newMemoryTarget(t, file)
	for size, want := range map[uint64]uint64{
		deltas.MaxTrampolineBytes:             deltas.MaxTrampolineBytes,
		deltas.MaxTrampolineBytes + pageBytes: deltas.MaxTrampolineBytes,
	} {
		raw, ok := target.engineMapping(procscan.Mapping{Start: start, End: start + size})
		assert.Check(t, ok && raw.Path == deltas.Trampolines && raw.Length == want, "%+v", raw)
	}
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
