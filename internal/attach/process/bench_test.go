package process

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access/accesstest"
	"correlator/procscan"
)

// BenchmarkContext is what a sample without context costs: finding its thread's slot from outside,
// reading it, and making sure afterwards that it was the right one. The process has eight threads.
func BenchmarkContext(b *testing.B) {
	testenv.NeedRoot(b)
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.GlibcDynamic} {
		p := demo.Start(b, demo.Options{Flavor: flavor, Manual: true, Idle: 6})
		threads, err := bpf.OpenThreads()
		assert.NilError(b, err)
		defer threads.Close()
		t := openDemo(b, p.PID)
		defer t.Close()
		tids := make([]int, 6)
		for i := range tids {
			tids[i] = p.Begin(i + 1).Thread.TID
		}
		for _, samples := range []int{1, 6} {
			b.Run(fmt.Sprintf("%v/%d samples at once", flavor, samples), func(b *testing.B) {
				var reader ContextReader
				b.ReportAllocs()
				for b.Loop() {
					if _, err := reader.FindThreads(threads, p.PID); err != nil {
						b.Fatal(err)
					}
					contexts, err := reader.ReadThreads(t, samples, func(i int) int { return tids[i] })
					if err != nil || t.CheckPublishing() != nil {
						b.Fatal(err)
					}
					for i := range samples {
						if contexts[i].Outcome != OutcomeCorrelated || !t.HasThread(tids[i]) {
							b.Fatal(contexts[i].Outcome)
						}
					}
				}
			})
		}
	}
}

// openDemo is a target as far as the agent would know it when it is registered.
func openDemo(b testing.TB, pid int) *Target {
	b.Helper()
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(b, err)
	found, err := scanner.Process(pid)
	assert.NilError(b, err)
	t, err := Open(accesstest.Open(b), "/proc", found, Filter{})
	assert.NilError(b, err)
	assert.NilError(b, t.Load())
	_, err = t.Probe()
	assert.NilError(b, err)
	assert.NilError(b, t.Resolve())
	return t
}
