package memread

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
)

// benchWays runs a benchmark with either way of reading.
func benchWays(b *testing.B, run func(b *testing.B, child *puppet, process *Process)) {
	for _, way := range []string{"process_vm_readv", "mem"} {
		b.Run(way, func(b *testing.B) {
			child := newPuppet(b)
			process := child.open()
			if way == "mem" {
				assert.NilError(b, process.openMem())
			}
			run(b, child, process)
		})
	}
}

// Every thread has a variable and a slot of its own; one slot in a hundred lies across pages, as
// with an allocator that knows nothing of them.
func BenchmarkReadSlots(b *testing.B) {
	benchWays(b, func(b *testing.B, child *puppet, process *Process) {
		const most, stride = 1000, 48
		base := child.mapPages(2 + (most*stride)/smallestPage + 1)
		var pointers []byte
		for i := range most {
			off := 2*smallestPage + i*stride
			child.write(0, off, demoSlot)
			pointers = append(pointers, pointer(base+uint64(off))...)
		}
		child.write(0, 0, pointers)
		varAddrs, out := make([]uint64, most), make([]SlotResult, most)
		for i := range varAddrs {
			varAddrs[i] = base + uint64(i*pointerBytes)
		}
		for _, threads := range []int{1, 10, 100, most} {
			b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := process.ReadSlots(varAddrs[:threads], out); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(threads*b.N)/b.Elapsed().Seconds(), "slots/s")
			})
		}
		for i, result := range out {
			if result.Slot != demoSlotDecoded {
				b.Fatalf("thread %d: %+v", i, result)
			}
		}
	})
}

func BenchmarkReadProcessStorage(b *testing.B) {
	benchWays(b, func(b *testing.B, child *puppet, process *Process) {
		base := child.mapDemo(1)
		b.Run("published", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := process.ReadProcessStorage(base + pointerBytes); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("candidate", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := process.ReadProcessStorage(base + 2*pointerBytes); err != ErrNotPublished {
					b.Fatal(err)
				}
			}
		})
	})
}
