package bpf

import (
	"fmt"
	"testing"
)

// BenchmarkProcess walks a small process, and one with many threads, on a machine with 2000 more
// threads. Unfiltered is how kernels before 6.1 do it.
func BenchmarkProcess(b *testing.B) {
	startChild(b, "cc", 2000, nil)
	for _, filters := range []bool{true, false} {
		for _, workers := range []int{8, 500} {
			threads := openThreads(b)
			name := fmt.Sprintf("filtered=%v/threads=%d", filters, workers+2)
			threads.filters = threads.filters && filters
			c := startChild(b, "cc", workers, nil)
			b.Run(name, func(b *testing.B) {
				benchmark(b, func(into []Thread) ([]Thread, error) { return threads.Process(c.pid, into) })
			})
		}
	}
}

// BenchmarkAll walks all threads of the machine, 2000 of which are of one process.
func BenchmarkAll(b *testing.B) {
	startChild(b, "cc", 2000, nil)
	benchmark(b, openThreads(b).all)
}

func benchmark(b *testing.B, walk func([]Thread) ([]Thread, error)) {
	b.ReportAllocs()
	var threads []Thread
	reported := 0
	for b.Loop() {
		var err error
		if threads, err = walk(threads[:0]); err != nil {
			b.Fatal(err)
		}
		reported += len(threads)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(reported), "ns/thread")
}
