package agent

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/profile"
)

// However the variable was placed, samples come to the transactions that they were taken in, with
// the stacks of what these did. The processes run beside each other, and each knows its own traces.
func TestSampledFlavors(t *testing.T) {
	r := run(t, atRate(997))
	var processes []*demo.Process
	for _, flavor := range demo.Flavors() {
		processes = append(processes, demo.Start(t, demo.Options{Flavor: flavor, Busy: 2, Gap: -1}))
	}
	for _, p := range processes {
		r.sampledReport(p, 300)
	}
	for i, p := range processes {
		t.Run(demo.Flavors()[i].String(), func(t *testing.T) {
			r := *r
			r.t = t
			report := p.Report()
			r.stacksTrue(p, report)
			clean(t, report)
			threads := make(map[int]uint64)
			for _, transaction := range report.Transactions {
				threads[transaction.Thread] += transaction.Samples
			}
			assert.Check(t, threads[1] != 0 && threads[2] != 0, "samples by thread: %v, want some of both", threads)
		})
	}
	r.end()
	r.sampledAdded()
}

// Whatever threads do to their slots, no sample comes to a trace that its thread was not working on
// at that instant. There are more traces than can be sent, so many samples come to nothing; none
// comes to something wrong.
func TestSampledWhileRewritten(t *testing.T) {
	for _, o := range []demo.Options{
		{Flavor: demo.Glibc, Rewrite: demo.RewriteNew, Swap: true},
		{Flavor: demo.Musl, Rewrite: demo.RewriteNew},
		{Flavor: demo.GlibcDTPMod, Rewrite: demo.RewriteCycle, Swap: true},
	} {
		if t.Failed() { // it would be over at once, and too few the next failure
			return
		}
		samples := uint64(5_000)
		if *long {
			samples = 1_000_000
		}
		o.Busy = 4
		p := demo.Start(t, o)
		r := run(t, atRate(bpf.MaxSamplesPerSecond))
		p.Registration(1)
		p.ReportWhen("samples", func(report demo.Report) bool {
			clean(t, report)
			return t.Failed() || r.kernel(bpf.Correlated) >= samples
		})
		r.end()
		r.sampledAdded()
		report := p.Quit()
		clean(t, report)
		sent := r.Counters().Messages.Sent.Load()
		t.Logf("%v, %s: %d samples, %d of them sent, %d messages; %d rewrites; %d while updating", o.Flavor, o.Rewrite,
			r.kernel(bpf.Correlated), sent, report.Messages, report.Rewrites, r.kernel(bpf.Updating))
		assert.Check(t, report.Rewrites >= 100*samples,
			"slots were rewritten %d times: that is no torture", report.Rewrites)
		n := r.kernel(bpf.Malformed) + r.kernel(bpf.Stale)
		assert.Check(t, n == 0, "%d samples malformed or of another program", n)
		assert.Check(t, sent >= samples/20, "%d samples sent: too few to tell anything", sent)
	}
}

// Samples of traces that are not sampled are counted, and sent only when asked for.
func TestSampledUnsampled(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Unsampled: true, Gap: -1})
	t.Run("counted", func(t *testing.T) {
		r := run(t, atRate(997))
		p.Registration(1)
		r.recounted(2)
		r.end()
		r.sampledAdded()
		if r.kernel(bpf.Unsampled) == 0 || r.Counters().Sampling.Outcomes.Sum() != 0 {
			t.Errorf("%d samples unsampled, %d handed over", r.kernel(bpf.Unsampled),
				r.Counters().Sampling.Outcomes.Sum())
		}
		report := p.Report()
		assert.Check(t, report.Messages == 1, "%d messages: want the registration alone", report.Messages)
	})
	t.Run("sent when asked to", func(t *testing.T) {
		r := run(t, atRate(997), func(c *Config) { c.Unsampled = true })
		r.sampledReport(p, 300)
		r.stacksTrue(p, p.Report())
		r.end()
		r.sampledAdded()
		if r.kernel(bpf.Correlated) != 0 {
			t.Errorf("%d samples of traces that are sampled", r.kernel(bpf.Correlated))
		}
		clean(t, p.Quit())
	})
}

// The kernel's frames come first, as far as a thread was in it, and only when asked for.
func TestSampledKernelStacks(t *testing.T) {
	// Threads that take their slots out of memory all the time are in the kernel most of the time.
	o := demo.Options{Busy: 2, Rewrite: demo.RewriteCycle, PageOut: true}
	for _, kernel := range []bool{false, true} {
		p := demo.Start(t, o)
		r := run(t, atRate(997), func(c *Config) { c.KernelStacks = kernel })
		report := r.sampledReport(p, 300)
		found := 0
		for _, frames := range r.stacks(report) {
			user := 0 // the first user frame
			for user < len(frames) && frames[user].Kind() == profile.KernelFrame {
				user++
			}
			for _, frame := range frames[user:] {
				assert.Check(t, frame.Kind() != profile.KernelFrame,
					"a frame of the kernel after those of the process: %v", frames)
			}
			if user > 0 && p.Functions()["tracer_rewrite"].In(frames[user:]) {
				found++
			}
		}
		assert.Check(t, kernel == (found > 0),
			"kernel stacks %v: %d of %d stacks begin in the kernel", kernel, found, len(report.Transactions))
		r.end()
		r.sampledAdded()
		clean(t, p.Quit())
		n := r.Counters().Sampling.Outcomes[process.OutcomeNoStack].Load()
		assert.Check(t, n == 0, "%d samples without stack", n)
	}
}
