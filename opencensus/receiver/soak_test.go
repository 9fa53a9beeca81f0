//go:build soak

package receiver

import (
	"runtime"
	"testing"
)

// A connection that sends nothing takes a few KB.
func TestSoakSilentConnections(t *testing.T) {
	const n, perConnection = 5000, 6 << 10
	memory := func() int {
		for range 3 { // what is in pools takes two, and what a finalizer frees another one
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := memory()
	silentConnections(t, n, func() {
		took := memory() - before
		if t.Logf("%d bytes for each connection, at most %d", took/n, perConnection); took > n*perConnection {
			t.Error("too much")
		}
	})
}
