package sampling

import (
	"flag"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/profile"
)

var long = flag.Bool("long", false, "take 10⁶ samples where a test usually takes fewer")

// Every sample of threads that rewrite their slots without pause is one of a trace that was there,
// and has the frames of its stack.
func TestRewriting(t *testing.T) {
	s := open(t, bpf.SamplerOptions{SamplesPerSecond: bpf.MaxSamplesPerSecond})
	p := demo.Start(t, demo.Options{Busy: 3, Rewrite: demo.RewriteNew, Swap: true})
	r := newReceiver(t, 1<<20)
	stop := r.serve(s)
	s.start(p, r)
	samples := uint64(3_000)
	if *long {
		samples = 1_000_000
	}
	s.poll("samples", func() bool { return t.Failed() || s.outcome(process.OutcomeCorrelated) >= samples })
	s.end()
	stop()
	s.added(0)
	if got, _ := r.sum(); got != s.outcome(process.OutcomeCorrelated) {
		t.Errorf("%d samples correlated, %d handed over", s.outcome(process.OutcomeCorrelated), got)
	}
}

// What finds no place in the kernel's tables is handed over all the same, one by one, to the last
// sample that waits in the ring buffer at the end.
func TestTablesFull(t *testing.T) {
	for name, options := range map[string]bpf.SamplerOptions{
		"counts": {MaxCounts: 2},
		"stacks": {MaxStacks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, options)
			p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond, Gap: -1})
			r := newReceiver(t, 1<<20)
			r.delay = time.Millisecond // more wait than come
			stop := r.serve(s)
			s.start(p, r)
			s.poll("a full table", func() bool { return s.kernel(bpf.TableFull) > 0 })
			s.end()
			stop()
			s.added(0)
			lost := s.kernel(bpf.TableFull) + s.kernel(bpf.Correlated) - s.outcome(process.OutcomeCorrelated)
			assert.Check(t, lost == 0, "%d samples not handed over", lost)
		})
	}
}

// A process whose inbox has no room loses what is to wait there, with a count, and nothing else:
// what can be named without a probe of the process is handed over.
func TestBacklog(t *testing.T) {
	s := open(t, bpf.SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := newReceiver(t, 0)
	program := s.start(p, r)
	s.poll("a backlog", func() bool { return s.outcome(process.OutcomeBacklog) > 100 })
	samples, held := r.sum()
	assert.Check(t, samples+held == 0, "%d samples named, %d pending, before the process was probed", samples, held)
	assert.NilError(t, program.space.Update(time.Now(), program.memory))
	s.poll("samples", func() bool { return s.outcome(process.OutcomeCorrelated) > 100 })
	s.end()
	refused, backlog := r.refused[process.OutcomeBacklog].Load(),
		s.outcome(process.OutcomeBacklog)
	assert.Check(t, refused == backlog, "the sink was called with %d samples of backlog, of %d", refused, backlog)
	s.added(0)
	if samples, _ := r.sum(); samples != s.outcome(process.OutcomeCorrelated) {
		t.Errorf("%d samples handed over, %d correlated", samples, s.outcome(process.OutcomeCorrelated))
	}
}

// The sink of a program that was forgotten is not called any more, though its process is sampled
// still. What is in its inbox stays there.
func TestForget(t *testing.T) {
	p, other := demo.Start(t, demo.Options{Busy: 1, Gap: -1}), demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	s := open(t, bpf.SamplerOptions{SamplesPerSecond: 5000})
	r, neighbor := newReceiver(t, 1<<20), newReceiver(t, 1<<20)
	stop := neighbor.serve(s)
	program := s.start(p, r)
	s.start(other, neighbor)
	pending := func() uint64 { _, pending := r.sum(); return pending }
	s.poll("pending samples", func() bool { return pending() > 0 })
	s.forget(r.inbox)
	calls, before := r.calls, pending() // without a lock: that nobody calls is what is proved
	s.poll("samples of a process that was forgotten",
		func() bool { return s.outcome(process.OutcomeUnknownProcess) > 100 })
	before2, _ := neighbor.sum()
	s.poll("samples of the other process", func() bool { now, _ := neighbor.sum(); return now > before2 })
	if r.calls != calls || pending() != before {
		t.Errorf("called %d times, and %d times when it was forgotten; %d samples pending, then %d", r.calls, calls,
			pending(), before)
	}
	s.end()
	stop()
	s.added(before)

	// What was under way to the sink when that was forgotten.
	unknown := s.outcome(process.OutcomeUnknownProcess)
	sample := profile.Sample{Count: 3}
	s.deliver(program, &sample, time.Now())
	s.enqueue(program, []pendingSample{{program: program, sample: sample}}, time.Now())
	if n := s.outcome(process.OutcomeUnknownProcess) - unknown; n != 6 || r.calls != calls || r.refused.Sum() != 0 {
		t.Errorf("%d samples of an unknown process, want 6; %d calls more, %d samples refused", n, r.calls-calls,
			r.refused.Sum())
	}
	s.counters.Outcomes[process.OutcomeUnknownProcess].Store(unknown)
	for _, sample := range r.inbox.take() {
		s.finish(&sample, process.OutcomeUnknownProcess)
	}
	s.added(0)
}

// What was counted before a program's sampling was stopped is handed over after.
func TestStop(t *testing.T) {
	for range 3 {
		s := open(t, bpf.SamplerOptions{SamplesPerSecond: 5000})
		p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond, Gap: -1})
		r := newReceiver(t, 1<<20)
		stop := r.serve(s)
		program := s.start(p, r)
		s.poll("samples", func() bool { return s.outcome(process.OutcomeCorrelated) > 0 })
		assert.NilError(t, program.stop())
		again := s.start(p, r) // the same program, and another target
		s.drains(3)            // one that may be under way, the last for the program, and one after
		s.mu.RLock()
		programs, stopped := len(s.programs), len(s.stopped)
		s.mu.RUnlock()
		assert.Check(t, programs == 1 && stopped == 0,
			"%d programs and %d stopped ones known: want 1 and none", programs, stopped)
		assert.NilError(t, again.stop())
		s.end()
		stop()
		s.added(0)
		samples, _ := r.sum()
		if taken := s.kernel(bpf.Correlated) + s.kernel(bpf.TableFull); samples != taken {
			t.Errorf("%d samples taken, %d handed over, %d of an unknown process", taken, samples,
				s.outcome(process.OutcomeUnknownProcess))
		}
	}
}

// A stack that begins where no code can be has no frames, and so no name: no sink gets it.
func TestStackWithoutFrames(t *testing.T) {
	s := open(t, bpf.SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := newReceiver(t, 1<<20)
	program := s.start(p, r)
	assert.NilError(t, program.space.Update(time.Now(), program.memory))
	s.end()
	before, samples := s.outcome(process.OutcomeNoStack), r.calls
	nowhere := pendingSample{program: program, sample: profile.Sample{Count: 3, At: time.Now()},
		raw: bpf.Stack{User: []uint64{1 << 63}}}
	assert.Check(t, s.deliverResolved(&nowhere, time.Now(), new(scratch)), "it is to wait for a probe")
	outcome, later := s.resolve(&nowhere, namedWords{})
	assert.Check(t, !later, "it is to wait again")
	program.inbox.held.Add(nowhere.Samples())
	s.finish(&nowhere, outcome)
	if n := s.outcome(process.OutcomeNoStack) - before; n != 6 || r.calls != samples {
		t.Errorf("%d samples without a stack, want 6; %d calls", n, r.calls-samples)
	}
}
