package sampling

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/worker/access/accesstest"
	"correlator/procscan"
	"correlator/profile"
	"correlator/tlsdesc"
)

// openTarget opens a process that publishes, and looks at it.
func openTarget(t *testing.T, p *demo.Process) *process.Target {
	t.Helper()
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	found, err := scanner.Process(p.PID)
	assert.NilError(t, err)
	opened, err := process.Open(accesstest.Open(t), "/proc", found, process.Filter{})
	assert.NilError(t, err)
	t.Cleanup(opened.Close)
	assert.NilError(t, opened.Load())
	_, err = opened.Probe()
	assert.NilError(t, err)
	return opened
}

// A program that a process executes while it is about to be sampled is not taken for the one
// before, and its samples are nobody's, even where the rule of the one would fit the other.
func TestProcessSamplerExec(t *testing.T) {
	s := open(t, bpf.SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Placement: demo.Placement{FixedLayout: true}})
	before, after := newReceiver(t, 1<<20), newReceiver(t, 1<<20)
	receivers := []*receiver{before, after}
	var identities []bpf.ExecID
	f := NewProcessSampler(s.Sampling, openTarget(t, p), func(identity bpf.ExecID) Sink {
		identities = append(identities, identity)
		if len(identities) == 1 { // it is identified, and its rule is known
			p.Restart(true)
		}
		return receivers[len(identities)-1]
	}, new(atomic.Bool), time.Hour)
	assert.NilError(t, f.Start())
	s.poll("the exec to be noticed", func() bool { return !f.IsCurrent() })
	assert.Check(t, s.kernel(bpf.Stale) != 0, "no sample of the new program was refused")
	old := f.program.Load()
	err := f.Stop()
	assert.Assert(t, err == nil && !f.IsRunning(), "still sampled: %v", err)
	assert.NilError(t, f.Start())
	s.poll("samples", func() bool { f.Serve(); samples, _ := after.sum(); return samples > 100 })
	if err := f.Start(); err != nil || len(identities) != 2 || identities[0] == identities[1] {
		t.Errorf("sampled as %v: %v", identities, err)
	}
	s.end()
	f.Serve()
	if samples, pending := before.sum(); samples+pending+s.outcome(process.OutcomeUnknownProcess) != 0 {
		t.Errorf("%d samples, and %d pending, of a program that was gone", samples, pending)
	}
	s.added(0)

	// What waited for the program before is not read from this one.
	f.inbox.held.Add(3 + 5)
	f.report([]pendingSample{
		{program: old, sample: profile.Sample{Count: 3, At: time.Now()}, needsContext: true},
		{program: f.program.Load(), sample: profile.Sample{Count: 5, At: time.Now().Add(-2 * time.Hour)}},
	})
	if gone, late := before.refused[process.OutcomeNotRegistered].Load(),
		after.refused[process.OutcomeStale].Load(); gone != 3 || late != 5 {
		t.Errorf("%d samples of the program before and %d late ones refused, want 3 and 5", gone, late)
	}
}

// A rule that is not supported is so for good: the process is left alone until the library is
// another one.
func TestProcessSamplerUnsupported(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Untouched: 1}) // nothing uses the words that are spoilt
	s := open(t, bpf.SamplerOptions{})
	opened := openTarget(t, p)
	asked := 0
	f := NewProcessSampler(s.Sampling, opened, func(bpf.ExecID) Sink {
		asked++
		return newReceiver(t, 0)
	}, new(atomic.Bool), 0)
	restore := spoilDescriptor(t, p)
	for range 2 {
		if err := f.Start(); !errors.Is(err, tlsdesc.ErrUnsupported) || f.IsRunning() || asked != 0 {
			t.Errorf("%v, running %v, %d sinks", err, f.IsRunning(), asked)
		}
		restore()
	}
	opened.ForgetRules()
	if err := f.Start(); err != nil || !f.IsRunning() || asked != 1 {
		t.Errorf("%v, running %v, %d sinks", err, f.IsRunning(), asked)
	}
	only := NewProcessSampler(nil, opened, nil, nil, 0)
	if err := only.Start(); err != nil || only.IsRunning() || !only.IsCurrent() || only.Close() != nil {
		t.Errorf("without a sampling: %v, running %v", err, only.IsRunning())
	}
}

// spoilDescriptor has the process's thread-local variable resolved by what is no code of a C
// library.
func spoilDescriptor(t *testing.T, p *demo.Process) (restore func()) {
	t.Helper()
	parsed := libraryOf(t, p)
	at := int64(p.Loaded().Base + parsed.Relocation.Addr)
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID), os.O_RDWR, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { memory.Close() })
	var whole [8]byte
	_, err = memory.ReadAt(whole[:], at)
	assert.NilError(t, err)
	write := func(word []byte) {
		_, err := memory.WriteAt(word, at)
		assert.NilError(t, err)
	}
	storage := binary.NativeEndian.AppendUint64(nil, p.Published().Storage) // mapped, of no file
	write(storage)
	return func() { write(whole[:]) }
}

// A context that is read from outside has the span of the slot, as in the kernel: by span, and else
// none.
func TestProcessSamplerSpan(t *testing.T) {
	for _, bySpan := range []bool{false, true} {
		t.Run(fmt.Sprint(bySpan), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Busy: 1, Manual: true, PageOut: true})
			begun := p.Begin(1)
			want := profile.Sample{TraceID: begun.TraceID, TransactionID: begun.TransactionID, TID: begun.Thread.TID,
				Thread: begun.Thread.Name}
			if span := p.Span(1, 2); bySpan {
				want.SpanID = span
			}
			s := open(t, bpf.SamplerOptions{BySpan: bySpan, ByThread: true})
			r := newReceiver(t, 1<<20)
			f := NewProcessSampler(s.Sampling, openTarget(t, p), func(bpf.ExecID) Sink { return r }, new(atomic.Bool),
				time.Hour)
			assert.NilError(t, f.Start())
			s.poll("a sample whose context was read from outside, and others", func() bool {
				f.Serve()
				p.Span(1, 2) // not in memory again
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.alone > 0 && len(r.counted) > 0
			})
			s.end()
			for got := range r.samples {
				want.Stack, want.Space = got.Stack, f.program.Load().space
				assert.Check(t, got == want, "%+v, want %+v", got, want)
			}
			if s.kernel(bpf.TableFull) != 0 { // then those alone may be others
				t.Errorf("%d samples found no place", s.kernel(bpf.TableFull))
			}
		})
	}
}

// What the goroutine of a process is at when its samples are abandoned ends as nothing else.
func TestProcessSamplerAbandon(t *testing.T) {
	s := open(t, bpf.SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := newReceiver(t, 1<<20)
	sink := func(bpf.ExecID) Sink { return r }
	f := NewProcessSampler(s.Sampling, openTarget(t, p), sink, new(atomic.Bool), time.Hour)
	assert.NilError(t, f.Start())
	s.poll("samples", func() bool { f.Serve(); samples, _ := r.sum(); return samples > 0 })
	s.end()
	f.Serve()
	s.added(0)
	program := f.program.Load()
	code, err := program.memory.ExecutableMappings()
	assert.NilError(t, err)
	var last profile.Sample
	for last = range r.samples {
		break
	}
	enqueue := func(samples uint64) {
		sample := profile.Sample{TraceID: last.TraceID, TransactionID: last.TransactionID}
		sample.Count, sample.At = samples, time.Now()
		sample.Last = sample.At
		raw := bpf.Stack{User: []uint64{code[0].Start}}
		s.enqueue(program, []pendingSample{{program: program, sample: sample, raw: raw}}, time.Now())
	}
	before, calls := s.counters.Outcomes.Sum(), r.calls
	enqueue(2)
	f.Serve()
	if all := s.counters.Outcomes.Sum() - before; all != 2 || r.calls != calls+1 {
		t.Errorf("%d outcomes, %d calls of the sink, want 2 and 1", all, r.calls-calls)
	}
	enqueue(3)
	taken := f.inbox.take()
	enqueue(5)
	waiting := f.Abandon()
	f.report(taken)
	assert.Check(t, f.Close())
	abandoned, all := s.outcome(process.OutcomeAbandoned), s.counters.Outcomes.Sum()-before
	if waiting != 8 || abandoned != 8 || all != 10 || r.calls != calls+1 || r.refused.Sum() != 0 {
		t.Errorf("%d samples abandoned, and counted %d, want 8; %d outcomes, want 10; %d calls of the sink, and %d refused",
			waiting, abandoned, all, r.calls-calls, r.refused.Sum())
	}
}

// A context that is read by way of a thread's pointer is of no use when the thread is not there afterwards, nor one of
// another program, nor of a process that publishes nothing any more.
func TestProcessSamplerReadContext(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, PageOut: true})
	begun := p.Begin(1)
	threads, err := bpf.OpenThreads()
	assert.NilError(t, err)
	defer threads.Close()
	found, err := threads.Process(p.PID, nil)
	assert.NilError(t, err)
	s := open(t, bpf.SamplerOptions{})
	r := newReceiver(t, 1<<20)
	f := NewProcessSampler(s.Sampling, openTarget(t, p), func(bpf.ExecID) Sink { return r },
		new(atomic.Bool), time.Hour)
	assert.NilError(t, f.Start())
	read := func(change func(*pendingSample)) (pending pendingSample, outcome process.SampleOutcome) {
		s.poll("a context that was not read too late", func() bool {
			p.Span(1, 2) // not in memory again
			pending = pendingSample{program: f.program.Load(), needsContext: true, tid: begun.Thread.TID}
			for _, thread := range found {
				if thread.TID == begun.Thread.TID {
					pending.threadPointer = thread.ThreadPointer
				}
			}
			pending.sample.At = time.Now()
			change(&pending)
			outcome = f.readContext(&pending)
			return outcome != process.OutcomeStale
		})
		return pending, outcome
	}
	got, outcome := read(func(*pendingSample) {})
	assert.Check(t, outcome == process.OutcomeCorrelated && !got.needsContext && got.sample.TraceID == begun.TraceID &&
		got.sample.TransactionID == begun.TransactionID,
		"%v, %+v", outcome, got.sample)
	for name, c := range map[string]struct {
		change func(*pendingSample)
		want   process.SampleOutcome
	}{
		"no thread any more": {func(p *pendingSample) { p.tid = 1 }, process.OutcomeNoThread},
		"another program":    {func(p *pendingSample) { p.program = new(program) }, process.OutcomeNotRegistered},
	} {
		if got, outcome := read(c.change); outcome != c.want || !got.needsContext || got.sample.TraceID != [16]byte{} {
			t.Errorf("%s: %v, want %v; %+v", name, outcome, c.want, got.sample)
		}
	}
	assert.Check(t, f.Close())
}
