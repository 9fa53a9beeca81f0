package unwind

import (
	"runtime"
	"runtime/debug"
	"testing"

	"gotest.tools/v3/assert"
)

// Garbage of the request before is collected before a request is measured by the heap; what is kept is none.
func TestBudgetCollects(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	kept := make([]byte, 2*maxHeapBytes)
	collected := func() uint32 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var b budget
		b.reset()
		assert.NilError(t, b.spend(heapStep))
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	runtime.GC()
	got := collected()
	assert.Check(t, got == 0, "%d collections with %d bytes in use", got, len(kept))
	garbage(maxHeapBytes)
	got = collected()
	assert.Check(t, got == 1, "%d collections with garbage", got)
	runtime.KeepAlive(kept)
}

// garbage leaves bytes on the heap that nobody has.
//
//go:noinline
func garbage(bytes int) {
	runtime.KeepAlive(make([]byte, bytes))
}
