package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"gotest.tools/v3/assert"
)

// What describes compiled methods is read within bounds; beyond, nothing of a method is known, or too much for it to be
// followed.
func TestJVMMethodLimits(t *testing.T) {
	layout := layouts()[0]
	withCode := func(size int) *jvmCode {
		b := append(someMethod(&layout)[:1024], bytes.Repeat([]byte{0x90}, 1<<19-1024)...)
		binary.LittleEndian.PutUint32(b[layout.stub:], uint32(1024+size))
		b[1024+size-1] = 0xc3
		return newJVMCode(remotememory.RemoteMemory{ReaderAt: &anyMemory{bytes: b}}, layout)
	}
	for size, want := range map[uint32]error{maxDebugBytes: nil, maxDebugBytes + 1: errCodeGone} {
		_, err := withCode(1).table(0, 1, 1+size)
		assert.Check(t, errors.Is(err, want), "a table of %d bytes: %v", size, err)
	}
	for _, test := range []struct {
		size, work int
		known      bool
	}{
		{maxInstructions, maxInstructions, true}, {maxInstructions + 1, maxInstructions, false},
		{maxMethodBytes + 1, 0, false},
	} {
		c := withCode(test.size)
		m, err := c.methodAt(1 << 30)
		assert.NilError(t, err)
		g, _, err := c.flowOf(m)
		assert.Check(t, err == nil && (g != nil) == test.known && c.work == test.work, "%+v: %d, %v", test, c.work, err)
	}
	// In fewer instructions, a method may be longer.
	c := withCode(maxMethodBytes)
	c.memory.ReaderAt.(*anyMemory).bytes[1025] = 0xc3
	m, err := c.methodAt(1 << 30)
	assert.NilError(t, err)
	g, _, err := c.flowOf(m)
	assert.Check(t, err == nil && g != nil && len(g.nodes) == 2)
}

// The name of code is looked for in so many heaps, and so far before it.
func TestBlobNameLimits(t *testing.T) {
	layout := layouts()[1]
	layout.heaps = 0x100
	const array, list, none, heap, low, segments, name = 0x200, 0x300, 0x1000, 0x2000, 0x4000, 0x6000, 0x7000
	for _, test := range []struct {
		heaps, steps uint32
		want         string
	}{{maxCodeHeaps, maxSegmentSteps, "trap"}, {maxCodeHeaps + 1, 1, ""}, {1, maxSegmentSteps + 1, ""}} {
		b := make([]byte, 0x8000)
		put := func(at uint64, value uint64) { binary.LittleEndian.PutUint64(b[at:], value) }
		put(uint64(layout.heaps), array)
		put(array, uint64(test.heaps))
		put(array+layout.arrayData, list)
		for i := range uint64(test.heaps) {
			put(list+8*i, none)
		}
		put(list+8*uint64(test.heaps-1), heap)
		put(heap+layout.heapMemory+layout.lowBoundary, low)
		put(heap+layout.heapMemory+layout.highBoundary, low+0x1000)
		put(heap+layout.heapSegments+layout.lowBoundary, segments)
		put(heap+layout.heapShift, 4)
		copy(b[segments+1:], bytes.Repeat([]byte{1}, 100)) // the code begins one before each
		put(low+layout.heapBlockBytes+layout.blobName, name)
		copy(b[name:], "trap")
		c := newJVMCode(remotememory.RemoteMemory{ReaderAt: &anyMemory{bytes: b}}, layout)
		got := c.blobName(low + libpf.Address(test.steps-1)<<4)
		assert.Check(t, got == test.want, "%+v: %q", test, got)
	}
}

// A method in which too many are inlined in each other is as one that does not say it.
func TestManyInlined(t *testing.T) {
	layout := layouts()[0]
	for n, want := range map[int]int{maxInlined: maxInlined, maxInlined + 1: 0} {
		b := someMethod(&layout)
		for i := range n { // where its caller is described, which has no description if it is the outermost
			caller := []byte{byte(4 * i)} // of class UNSIGNED5
			if at := 4*i - 192; at >= 0 {
				caller = []byte{byte(192 + at%64), byte(at / 64)}
			}
			copy(b[512+4*(i+1):], append(caller, 1, 1))
		}
		c := newJVMCode(remotememory.RemoteMemory{ReaderAt: &anyMemory{bytes: b}}, layout)
		m := &compiledMethod{at: 4096, pcDescs: []pcDesc{{offset: 1, scope: uint32(4 * n)}}}
		d := &methodFrames{target: &target{code: c}, method: m}
		assert.Check(t, len(d.scopes(1)) == want, "%d of %d", len(d.scopes(1)), n)
	}
}

// A table in which a JVM describes itself has an end.
func TestVMTableLimit(t *testing.T) {
	const stride = 8
	for n, want := range map[int]error{maxVMEntries - 1: nil, maxVMEntries: errVMTables} {
		entries := append(bytes.Repeat([]byte{1}, stride*(1+n)), make([]byte, stride)...)
		table := vmTable{at: stride, stride: stride, valueAt: stride, addressAt: stride,
			memory: remotememory.RemoteMemory{ReaderAt: bytes.NewReader(entries)}}
		assert.Check(t, errors.Is(table.check(), want), "%d entries: %v", n, table.check())
	}
}

// The next certain instruction is looked for so far.
func TestWalkedLimit(t *testing.T) {
	for n, want := range map[int32]UnknownLeaf{maxWalked: knownLeaf, maxWalked + 1: UnknownTooLarge} {
		g := &flow{nodes: make([]node, n+1)}
		for i := range n + 1 { // one after the other
			g.nodes[i].certain = none
			g.next.to, g.next.ends = append(g.next.to, i+1), append(g.next.ends, i+1)
		}
		g.nodes[n].certain = 7
		places, why := g.first(0, false)
		assert.Check(t, why == want && (len(places) == 1) == (want == knownLeaf), "%d instructions: %v, %d", n, places,
			why)
	}
}

// Loops around an instruction are told apart up to a number.
func TestManyLoops(t *testing.T) {
	for loops, want := range map[int]uint8{maxLoops: maxLoops, maxLoops + 1: maxLoops} {
		c := code{steps: make([]step, loops+1)}
		for i := range c.steps {
			c.steps[i].does = "."
		}
		for i := range loops { // the innermost first
			c.steps = append(c.steps, step{does: fmt.Sprintf("b-%d", 2*i+3)})
		}
		c.steps = append(c.steps, step{does: "r"})
		l := c.flow().loopsAround(int32(loops))
		assert.Check(t, l.number == want, "%d of %d", l.number, loops)
	}
}
