package unwind

import (
	"runtime"
	"runtime/debug"
	"testing"

	"gotest.tools/v3/assert"
)

// Garbage of the request before is collected before a request is measured by the heap; what is kept is not again.
func TestBudgetCollects(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	kept := make([]byte, 2*maxHeapBytes)
	var b budget
	collected := func() uint32 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.reset()
		assert.NilError(t, b.spend(heapStep))
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	for i, want := range []uint32{1, 0, 0} {
		got := collected()
		assert.Check(t, got == want, "%d: %d collections with %d bytes in use", i, got, len(kept))
	}
	garbage(maxHeapBytes)
	for i, want := range []uint32{1, 0} {
		got := collected()
		assert.Check(t, got == want, "%d: %d collections with garbage", i, got)
	}
	runtime.KeepAlive(kept)
}

// garbage leaves bytes on the heap that nobody has.
//
//go:noinline
func garbage(bytes int) { runtime.KeepAlive(make([]byte, bytes)) }
