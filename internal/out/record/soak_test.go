//go:build soak

package record

import (
	"fmt"
	"math"
	"os/exec"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
)

// Shares of whole and named stacks from the first sample of a recording on, of programs as they run in
// production.
func TestSoakUnwoundShares(t *testing.T) {
	for _, c := range []struct {
		jdk   int
		work  string
		flags []string
		whole float64
	}{
		{17, "mixed", nil, 0.96},
		{17, "mixed", []string{"-Xint"}, 0.96},
		{17, "recursive", []string{"-XX:+UseG1GC", "-XX:-UseSerialGC"}, 0.99},
		{17, "deep", nil, 0.96}, // 300 calls
		{25, "mixed", nil, 0.96},
		{25, "recursive", nil, 0.99},
		{25, "recursive", []string{"-Xint"}, 0.99},
		{25, "virtual", nil, 0.96},
	} {
		t.Run(fmt.Sprint(c.jdk, " ", c.work, c.flags), func(t *testing.T) {
			p := startWorking(t, c.jdk, 2, "work", c.work, c.flags...)
			r := unwound(t, Options{PID: p.PID, SamplesPerSecond: 199}, 1)
			r.poll("samples", func(p Progress) bool { return p.Samples >= 400 })
			recording := r.end()
			p.Quit()
			ofWork := func(key Key) bool {
				frames := recording.Stacks[key.Stack]
				return key.HasTrace() && c.work != "virtual" || calls(frames, "Work.ping") || calls(frames, "Work.pong")
			}
			all := sum(recording.Samples, ofWork)
			whole := sum(recording.Samples, func(key Key) bool {
				return ofWork(key) && !isCut(recording.Stacks[key.Stack])
			})
			named := sum(recording.Samples, func(key Key) bool {
				frames := recording.Stacks[key.Stack]
				return ofWork(key) && (threadOf(t, frames) != 0 || calls(frames, "Work.inVirtualThread"))
			})
			atLeast(t, "whole", whole, all, c.whole)
			atLeast(t, "with their thread's method", named, all, 0.9)
		})
	}
}

// Beside 20 busy loops, a recording begins in some seconds, and has unwound stacks from its first sample on.
func TestSoakBusyHost(t *testing.T) {
	testenv.NeedUnwinding(t)
	p := startWorking(t, 17, 2, "busy", "mixed")
	for range 20 {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		assert.NilError(t, loop.Start())
		t.Cleanup(func() {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		})
	}
	opened := time.Now()
	r := record(t, Options{PID: p.PID, SamplesPerSecond: 97, Unwinder: sampling.AutoUnwinder,
		Duration: 10 * time.Second})
	r.poll("the beginning", func(Progress) bool { return true })
	const bound = 5 * time.Second
	waited := r.Progress().Start.Sub(opened)
	t.Logf("it began after %v, bound %v", waited, bound)
	assert.Check(t, waited <= bound, "out of bounds")
	recording := r.wait()
	all := sum(recording.Samples, func(Key) bool { return true })
	walked, _ := recording.Walked()
	atLeast(t, "unwound", all-walked, all, 0.98)
}

// Code without frame pointers is whole, and the work in transactions and in gaps is what is sampled.
func TestSoakNativeShares(t *testing.T) {
	p := demo.Start(t, demo.Options{Flavor: demo.GlibcUnframed, Service: "unframed", Busy: 2,
		Transaction: 200 * time.Millisecond, Gap: 50 * time.Millisecond})
	r := unwound(t, Options{PID: p.PID}, 1)
	r.more(400)
	code := p.Functions()
	recording := r.end()
	in := func(wanted func(Key) bool, functions ...string) uint64 {
		return sum(recording.Samples, func(key Key) bool {
			frames := recording.Stacks[key.Stack]
			for _, function := range functions {
				if wanted(key) && !isCut(frames) && code[function].In(frames) {
					return true
				}
			}
			return false
		})
	}
	traces, gaps := sum(recording.Samples, traced), sum(recording.Samples, untraced)
	atLeast(t, "whole", in(traced, "worker_main"), traces, 0.96)
	atLeast(t, "in their transaction's work", in(traced, "checkout", "search", "browse", "housekeeping"), traces, 0.9)
	atLeast(t, "in the work of gaps", in(untraced, "housekeeping"), gaps, 0.5)
}

// Transactions have as many samples as they burnt CPU: five times the deviation of independent ones is never
// exceeded by chance.
func TestSoakSamplesAreCPU(t *testing.T) {
	p := demo.Start(t, demo.Options{Service: "burning", Busy: 2, Transaction: 200 * time.Millisecond,
		Gap: 50 * time.Millisecond})
	r := record(t, Options{PID: p.PID})
	r.poll("the beginning", func(Progress) bool { return true })
	from := bpf.Now()
	r.more(3000)
	p.StopThreads() // all that was burnt is sampled
	r.more(0)
	recording := r.end()
	var cpu time.Duration
	counted := make(map[demo.TraceID]bool)
	for _, transaction := range p.Quit().Transactions {
		if transaction.BeginNs > from && transaction.EndNs != 0 {
			cpu += transaction.CPU
			counted[transaction.TraceID] = true
		}
	}
	got := sum(recording.Samples, func(key Key) bool { return counted[key.TraceID] })
	want := cpu.Seconds() * float64(recording.SamplesPerSecond)
	bound := 5 * math.Sqrt(want)
	t.Logf("%d samples, %.1f expected of %v CPU: differs by %.1f, bound %.1f", got, want, cpu, float64(got)-want, bound)
	assert.Check(t, math.Abs(float64(got)-want) <= bound, "out of bounds")
}

// atLeast prints a share beside its bound.
func atLeast(t *testing.T, what string, part, all uint64, bound float64) {
	t.Helper()
	t.Logf("%s: %d of %d samples, %.3f, bound %.2f", what, part, all, float64(part)/float64(max(all, 1)), bound)
	assert.Check(t, all != 0 && float64(part) >= bound*float64(all), "%s: out of bounds", what)
}
