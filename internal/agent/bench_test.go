package agent

import (
	"fmt"
	"testing"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/demo"
	"correlator/internal/testenv"
	"correlator/procscan"
)

// BenchmarkContext is what a sample without context costs: finding its thread's slot from outside,
// reading it, and making sure afterwards that it was the right one. The process has eight threads.
func BenchmarkContext(b *testing.B) {
	testenv.NeedRoot(b)
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.GlibcDynamic} {
		p := demo.Start(b, demo.Options{Flavor: flavor, Manual: true, Idle: 6})
		threads, err := bpf.OpenThreads()
		if err != nil {
			b.Fatal(err)
		}
		defer threads.Close()
		t := openDemo(b, p)
		defer t.close()
		tids := make([]int, 6)
		for i := range tids {
			tids[i] = p.Begin(i + 1).Thread.TID
		}
		for _, samples := range []int{1, 6} {
			b.Run(fmt.Sprintf("%v/%d samples at once", flavor, samples), func(b *testing.B) {
				var reader contextReader
				b.ReportAllocs()
				for b.Loop() {
					if err := reader.findThreads(threads, p.PID); err != nil {
						b.Fatal(err)
					}
					contexts, err := reader.read(t, samples, func(i int) int { return tids[i] })
					if err != nil || !t.handle.Alive() || !t.stillPublishing() {
						b.Fatal(err)
					}
					for i := range samples {
						if contexts[i].outcome != OutcomeCorrelated || !threadLives("/proc", p.PID, tids[i]) {
							b.Fatal(contexts[i].outcome)
						}
					}
				}
			})
		}
	}
}

// openDemo is a target as far as the agent would know it when it is registered.
func openDemo(b *testing.B, p *demo.Process) *target {
	b.Helper()
	scanner, err := procscan.NewScanner("/proc")
	if err != nil {
		b.Fatal(err)
	}
	found, err := scanner.Process(p.PID)
	if err != nil {
		b.Fatal(err)
	}
	files, err := elfsym.NewCache(1)
	if err != nil {
		b.Fatal(err)
	}
	t, err := openTarget("/proc", found)
	if err != nil {
		b.Fatal(err)
	}
	if err := t.load(files); err != nil {
		b.Fatal(err)
	}
	if _, err := t.look(); err != nil {
		b.Fatal(err)
	}
	if err := t.resolve(); err != nil {
		b.Fatal(err)
	}
	return t
}
