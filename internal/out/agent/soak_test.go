//go:build soak

package agent

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
)

// As many samples of a process arrive as its transactions burn CPU. The samples of each CPU come at even
// intervals, so their number is closer to the truth than that of as many independent ones; 5 times the
// deviation of the latter is never exceeded by chance.
func TestSoakSamplesAreCPU(t *testing.T) {
	for perSecond, samples := range map[int]uint64{20: 1000, 97: 4000, 997: 20_000} {
		p := demo.Start(t, demo.Options{Busy: 2, Transaction: 500 * time.Millisecond, Gap: 50 * time.Millisecond})
		r := run(t, atRate(perSecond), roomy)
		registered := p.Registration(1).ReadNs
		testenv.Poll(t, time.Hour, "samples", func() bool { return r.statusOf(p).Sent >= samples })
		p.StopThreads() // all that was burnt is sampled
		r.end()
		r.added()
		report := p.Quit()
		clean(t, report)
		var cpu time.Duration
		var got uint64
		for _, transaction := range report.Transactions {
			if transaction.BeginNs > registered && transaction.EndNs != 0 {
				cpu += transaction.CPU
				got += transaction.Samples
			}
		}
		want := cpu.Seconds() * float64(perSecond)
		t.Logf("%d Hz: %d samples, %.1f expected of %v CPU, bound %.1f", perSecond, got, want, cpu, 5*math.Sqrt(want))
		assert.Check(t, math.Abs(float64(got)-want) <= 5*math.Sqrt(want))
	}
}

// What is sampled at 997 Hz on all CPUs arrives, all of it and in time, at the default delay.
func TestSoakDelivery(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, MinReportInterval} {
		p := demo.Start(t, demo.Options{Busy: 2, Transaction: 500 * time.Millisecond})
		r := run(t, atRate(997), func(c *Config) { c.ReportInterval = interval })
		testenv.Poll(t, time.Hour, "samples", func() bool { return r.statusOf(p).Sent >= 60_000 })
		p.StopThreads() // nothing more is sampled
		r.end()
		report := p.Quit()
		r.added()
		clean(t, report)
		c := &r.Counters().Messages
		timing := c.Timing()
		t.Logf("every %v: %d samples in %d messages, p99 %v, oldest %v (bound %v); dropped %d, late %d (bound 0)",
			interval, c.SamplesSent.Load(), c.MessagesSent.Load(), timing.Quantile(0.99), timing.Quantile(1),
			r.config.SamplesDelay, dropped(c), report.LateSamples)
		assert.Check(t, dropped(c)+timing.Overdue+timing.Lost+report.LateSamples == 0)
	}
}

// The stacks of a JVM are whole from when it is synchronized on. How many samples there are before, the
// test tells: where another process has had the engine loaded, as many as come while it is
// synchronized.
func TestSoakFirstSamplesUnwound(t *testing.T) {
	testenv.NeedUnwinding(t)
	r := run(t, atRate(97), roomy, func(c *Config) { c.Unwinder = sampling.AutoUnwinder })
	first := demo.Start(t, demo.Options{Busy: 1})
	testenv.Poll(t, deadline, "the engine", func() bool { return r.Unwinding().Unwound == 1 })
	p := demo.StartJVM(t, demo.JVMOptions{Busy: true, Threads: 2})
	p.Registration(1)
	trace := p.Begin(1).TraceID
	samplesWhen := func(what string, done func(samples uint64) bool) (samples, whole uint64) {
		return r.whole(p.ReportWhen(what, func(report demo.Report) bool {
			transaction, _ := report.Transaction(trace)
			return done(transaction.Samples)
		}))
	}
	early, earlyWhole := samplesWhen("an unwound JVM", func(uint64) bool { return r.Unwinding().Unwound == 2 })
	samples, whole := samplesWhen("300 more", func(samples uint64) bool { return samples >= early+300 })
	samples, whole = samples-early, whole-earlyWhole
	t.Logf("of the first %d samples %d are whole; of the next %d, %d (bound %d)", early, earlyWhole, samples, whole,
		samples*8/10)
	assert.Check(t, whole >= samples*8/10) // some were on their way
	p.End(1)
	first.Quit()
	clean(t, p.Quit())
}

// Processes come and go for minutes, and the heap does not grow: by less than 35 bytes a process.
func TestSoakChurn(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what the first made reachable by finalizers no more
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return int64(memory.HeapAlloc)
	}
	random := rand.New(rand.NewPCG(1, 2))
	churn(t, random, 1000)
	before := heap()
	processes := churn(t, random, 20_000)
	grown := heap() - before
	t.Logf("%d bytes more after %d processes (bound %d)", grown, processes, 1<<20+35*processes)
	assert.Check(t, grown < int64(1<<20+35*processes))
}
