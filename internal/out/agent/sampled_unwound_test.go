package agent

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
	"correlator/profile"
)

// The stacks of a JVM without frame pointers are unwound and named as soon as the engine runs, for
// which an agent that must have it is not ready before.
func TestSampledUnwound(t *testing.T) {
	testenv.NeedUnwinding(t)
	p := demo.StartJVM(t, demo.JVMOptions{Busy: true, Threads: 2})
	r := run(t, atRate(97), roomy, func(c *Config) { c.Unwinder = sampling.FullUnwinder })
	p.Registration(1)
	r.state(p, process.StateRegistered, "")
	testenv.Poll(t, deadline, "the engine", func() bool { return r.Ready() == nil })
	u := r.Unwinding()
	assert.Check(t, u.Err() == nil && u.Loaded, "ready with %+v", u)
	testenv.Poll(t, deadline, "an unwound process", func() bool { return r.Unwinding().Unwound == 1 })
	trace := p.Begin(1).TraceID
	report := p.ReportWhen("samples", func(report demo.Report) bool {
		transaction, _ := report.Transaction(trace)
		return transaction.Samples >= 100
	})
	samples, whole := r.whole(report)
	t.Logf("%d of %d samples have a whole stack with Java frames", whole, samples)
	assert.Check(t, whole >= samples*9/10, "%d of %d samples have a whole stack with Java frames", whole, samples)
	if s := r.Status(); s.Unwinder != sampling.FullUnwinder || s.Unwinding == nil || s.NotReady != "" {
		t.Errorf("status %v, %+v, not ready: %q", s.Unwinder, s.Unwinding, s.NotReady)
	}
	p.End(1)
	r.end()
	r.sampledAdded()
	clean(t, p.Quit())
	c := &r.Counters().Sampling.Unwinding
	if c.Started.Load() != 1 || c.Synchronized.Load() == 0 || c.Stacks.Load() == 0 {
		t.Errorf("%d workers, %d synchronizations, %d stacks", c.Started.Load(), c.Synchronized.Load(), c.Stacks.Load())
	}
}

// whole returns how many samples a report has, and how many of these have a whole stack with Java frames
// of the demo.
func (r *running) whole(report demo.Report) (samples, whole uint64) {
	r.t.Helper()
	stacks := r.stacks(report)
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			samples += n
			frames := stacks[text]
			java := slices.ContainsFunc(frames, func(f profile.Frame) bool {
				return f.Kind() == profile.JVMFrame && f.Line > 0 && f.Function.SourceFile == "Demo.java"
			})
			if root := frames[len(frames)-1]; java && root.Kind() == profile.NativeFrame {
				whole += n
			}
		}
	}
	return samples, whole
}

// Where there is nothing to sample, there is no engine, which takes memory, and nothing is amiss.
func TestUnwinderWhenNeeded(t *testing.T) {
	testenv.NeedUnwinding(t)
	r := run(t, atRate(97), func(c *Config) { c.Unwinder = sampling.AutoUnwinder })
	r.swept(3)
	started := &r.Counters().Sampling.Unwinding.Started
	u := r.Unwinding()
	assert.Check(t, !u.Needed && !u.Loaded && u.Err() == nil && started.Load() == 0, "without a process: %+v", u)
	p := demo.Start(t, demo.Options{Busy: 1})
	p.Registration(1)
	testenv.Poll(t, deadline, "an unwound process", func() bool { return r.Unwinding().Unwound == 1 })
	u = r.Unwinding()
	assert.Check(t, u.Needed && u.Loaded && u.Err() == nil, "with a process: %+v", u)
	clean(t, p.Quit())
}

// The stacks of a JVM are whole from when it is synchronized on. How many samples there are before, the
// test tells: where another process has had the engine loaded, as many as come while it is
// synchronized.
func TestFirstSamplesUnwound(t *testing.T) {
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
	t.Logf("of the first %d samples %d are whole", early, earlyWhole)
	samples, whole := samplesWhen("300 more", func(samples uint64) bool { return samples >= early+300 })
	t.Logf("of the next %d samples %d are whole", samples-early, whole-earlyWhole)
	if samples, whole := samples-early, whole-earlyWhole; whole < samples*8/10 { // some were on their way
		t.Errorf("of %d samples after the JVM was synchronized %d are whole", samples, whole)
	}
	p.End(1)
	first.Quit()
	clean(t, p.Quit())
}
