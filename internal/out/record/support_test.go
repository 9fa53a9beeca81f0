package record

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
)

// deadline is far more than anything takes that happens at once on an idle machine.
const deadline = 4 * time.Minute

// running is a Recorder that runs in the test.
type running struct {
	*Recorder
	t     *testing.T
	stop  func()
	ended chan struct{}

	recording *Recording // when ended is closed
	err       error
}

// services are the names that one expression matches.
func services(t *testing.T, expression string) process.Filter {
	t.Helper()
	patterns, err := process.ParsePatterns(expression)
	assert.NilError(t, err)
	return process.Filter{IncludeServices: patterns}
}

// commands are the same, of first threads and programs.
func commands(t *testing.T, expression string) process.Filter {
	return process.Filter{IncludeCommands: services(t, expression).IncludeServices}
}

// record begins to record, until the test ends at the latest.
func record(t *testing.T, options Options) *running {
	t.Helper()
	return run(t, open(t, options, zaptest.NewLogger(t)))
}

func open(t *testing.T, options Options, log *zap.Logger) *Recorder {
	t.Helper()
	testenv.NeedRoot(t)
	options.ProcRoot = "/proc"
	if options.SamplesPerSecond == 0 {
		options.SamplesPerSecond = 997
	}
	recorder, err := Open(options, log)
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	return recorder
}

func run(t *testing.T, recorder *Recorder) *running {
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Recorder: recorder, t: t, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.recording, r.err = recorder.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if r.recording != nil {
			r.recording.Close()
		}
	})
	return r
}

// end ends recording, and makes sure that each sample is accounted for.
func (r *running) end() *Recording {
	r.t.Helper()
	r.stop()
	return r.wait()
}

// wait waits until recording has ended.
func (r *running) wait() *Recording {
	r.t.Helper()
	<-r.ended
	assert.NilError(r.t, r.err)
	taken, accounted := uint64(0), r.aggregate.early
	for o := range r.counters.Sampling.Kernel {
		if outcome := bpf.KernelOutcome(o); outcome != bpf.NoTarget && outcome != bpf.Idle {
			taken += r.counters.Sampling.Kernel[o].Load()
		}
	}
	for _, samples := range r.recording.Samples {
		accounted += samples
	}
	for reason, samples := range r.recording.Lost {
		accounted += samples
		assert.Check(r.t, samples != 0, "none is lost for the reason %s", reason)
	}
	if taken != accounted {
		r.t.Errorf("%d samples were taken, %d are accounted for; lost %v", taken, accounted, r.recording.Lost)
	}
	if without := r.options.Unwinder == sampling.FramePointers; without {
		walked, _ := r.recording.Walked()
		assert.Check(r.t, walked == 0, "without an engine, frame pointers are no exception")
		for _, of := range r.recording.Walks {
			assert.Check(r.t, of == Walks{}, "%+v", of)
		}
	}
	troubles := r.counters.Sampling.Errors.Load()
	assert.Check(r.t, troubles == 0, "sampling was in trouble %d times", troubles)
	for key := range r.recording.Samples {
		assert.Assert(r.t, len(r.recording.Stacks[key.Stack]) != 0, "no frames of stack %v", key.Stack)
	}
	return r.recording
}

// poll waits for something that happens after recording has begun.
func (r *running) poll(what string, done func(Progress) bool) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, what, func() bool {
		progress := r.Progress()
		return !progress.Start.IsZero() && done(progress)
	})
}

// handler returns that of a process that runs, nil when there is none.
func (r *running) handler(pid int) *handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.processes {
		if id.PID == pid {
			return h
		}
	}
	return nil
}

// fails reports whether a process was probed, in vain.
func (r *running) fails(pid int) bool {
	h := r.handler(pid)
	if h == nil {
		return false
	}
	_, err := h.failure()
	return err != nil
}

// failure is why a process was not recorded.
func (r *Recording) failure(pid int) Failure {
	for _, f := range r.Failed {
		if f.PID == pid {
			return f
		}
	}
	return Failure{}
}

// of is the samples of a process's programs.
func (r *Recording) of(pid int) map[Key]uint64 {
	samples := make(map[Key]uint64)
	for key, n := range r.Samples {
		if key.Process.PID == pid {
			samples[key] = n
		}
	}
	return samples
}

func sum(samples map[Key]uint64, wanted func(Key) bool) (n uint64) {
	for key, samples := range samples {
		if wanted(key) {
			n += samples
		}
	}
	return n
}

func traced(key Key) bool   { return key.HasTrace() }
func untraced(key Key) bool { return !key.HasTrace() }

// silent makes sure that a process was sent nothing.
func silent(t *testing.T, report demo.Report) {
	t.Helper()
	assert.Check(t, report.Messages == 0, "%d messages were sent", report.Messages)
}
