package access

import (
	"os"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/internal/worker"
	"correlator/memread"
	"correlator/procscan"
)

func TestMain(m *testing.M) {
	worker.Main(Kind, hostileKind)
	os.Exit(m.Run())
}

// BenchmarkReadBatch reads a word of this process: through a worker, and directly.
func BenchmarkReadBatch(b *testing.B) {
	word := new([8]byte)
	addr := uint64(uintptr(unsafe.Pointer(word)))
	read := func(b *testing.B, process *memread.Process) {
		var buf [8]byte
		b.ReportAllocs()
		for b.Loop() {
			if _, err := process.Read(addr, buf[:]); err != nil {
				b.Fatal(err)
			}
		}
	}
	client, err := Open("/proc", new(worker.Counters))
	assert.NilError(b, err)
	defer client.Close()
	remote := client.Process(procscan.ProcessID{PID: os.Getpid()}, "0")
	b.Run("worker", func(b *testing.B) { read(b, memread.OpenRemote("/proc", os.Getpid(), remote.ReadBatch)) })
	b.Run("direct", func(b *testing.B) { read(b, memread.Open("/proc", os.Getpid())) })
}
