package unwind

import (
	"os"
	"testing"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"gotest.tools/v3/assert"

	"correlator/internal/worker"
	"correlator/procscan"
)

// What the engine keeps of a file, it keeps for one user: also of the vDSO, to which a process may
// write.
func TestFilesOfUsersAreApart(t *testing.T) {
	seen := make(map[mappedFile]string)
	for _, user := range []worker.User{"1", "12"} {
		for path, m := range map[string]procscan.Mapping{
			"[vdso]":       {Start: 1 << 40, End: 1<<40 + 8192},
			"/lib/libc.so": {Dev: 2, Ino: 3}, "/lib/other": {Dev: 23, Ino: 3},
		} {
			m.Path = path
			for range 2 {
				raw, ok := (&target{user: user}).rawMapping(m)
				if !ok || raw.IsVDSO() != (path == "[vdso]") {
					t.Errorf("%s is %+v", path, raw)
				}
				file, name := mappedFile{raw.Device, raw.Inode}, string(user)+" "+path
				other, taken := seen[file]
				assert.Check(t, !taken || other == name, "%s is taken for %s", name, other)
				seen[file] = name
			}
		}
	}
	assert.Check(t, len(seen) == 6, "files change: %v", seen)
}

// readByPages is read by TestMemoryIsReadByPages. Variables of functions may move.
var readByPages uint64

// The engine keeps the memory of a process longer than what was read of it by pages holds.
func TestMemoryIsReadByPages(t *testing.T) {
	mem, err := os.Open("/proc/self/mem")
	assert.NilError(t, err)
	defer mem.Close()
	var b budget
	b.reset()
	of := &target{mem: mem, budget: &b}
	memory, pages := of.GetRemoteMemory(), newPages()

	at := libpf.Address(uintptr(unsafe.Pointer(&readByPages)))
	read := func(when string, want uint64) {
		t.Helper()
		got := memory.Uint64(at)
		assert.Check(t, got == want, "%s: read %d, want %d", when, got, want)
	}
	for n := uint64(1); n < 100; n += 10 {
		readByPages = n
		read("before", n)
		reads := b.reads.Load()
		of.readByPages(pages, func() {
			read("at first", n)
			readByPages = n + 1
			read("again", n)
		})
		if spent := reads - b.reads.Load(); spent != 3 { // two by the engine, one of the page
			t.Errorf("%d reads count, want 3", spent)
		}
		read("afterwards", n+1)
	}
}
