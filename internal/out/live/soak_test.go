//go:build soak

package live

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/value"
	"correlator/internal/out/live/types"
)

// heapBytes returns how much of the heap is in use.
func heapBytes() int {
	runtime.GC()
	runtime.GC() // also what a pool of package sync has
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Stacks take no more of the heap than is counted, here and in the cache of the embedded broker, and less
// than they may.
func TestSoakStacksMemory(t *testing.T) {
	for _, c := range []struct{ count, depth, nameBytes int }{
		{20000, 1, 10}, {5000, 80, 60}, {1000, 250, 500}, {300, 1024, 512},
	} {
		before := heapBytes()
		tracker := newTracker(wantOfSamples)
		b := broker.New(broker.Options{Limits: broker.Limits{Frame: maxFrameBytes, Cache: maxCacheBytes}})
		s := fillStacks(t, tracker, &output{bus: embedded{b}}, c.count, c.depth, c.nameBytes)
		used, counted := heapBytes()-before, tracker.stacks.bytes.Used()
		t.Logf("%d stacks of %d frames: %d bytes, bound %d, counted %d", len(s.stacks), c.depth, used, maxStackBytes, counted)
		assert.Check(t, used <= maxStackBytes && min(counted, used) >= maxStackBytes/4,
			"the bound is exceeded, or not reached")
		runtime.KeepAlive(b)
	}
}

// What is known of an object that is on the bus takes less memory than the object.
func TestSoakMirrorMemory(t *testing.T) {
	const objects, most = 1000, 500
	o := &output{bus: &recorder{}}
	frames := make([]string, 100)
	for i := range frames {
		frames[i] = strings.Repeat("x", 60)
	}
	before := heapBytes()
	s := &snapshot{stacks: make([]types.CorrelatorStack, objects)}
	for i := range s.stacks {
		s.stacks[i] = types.CorrelatorStack{
			Host: value.Some("h"), ID: value.Some(fmt.Sprint(i)), Frames: value.Some(frames),
		}
	}
	_, _ = o.sync(s, wantStacks)
	o.bus = nil
	s.stacks = nil
	each := (heapBytes() - before) / objects
	runtime.KeepAlive(o)
	t.Logf("%d bytes for a stack, bound %d", each, most)
	assert.Check(t, each <= most, "the bound is exceeded")
}
