package record

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/worker"
	"correlator/procscan"
)

// What is found before our descriptors are used up is recorded, and why there is no more is
// reported once.
func TestRecordingSweepFails(t *testing.T) {
	demo.StartMany(t, 3, demo.Options{}).Published()
	core, logs := observer.New(zapcore.ErrorLevel)
	r := run(t, open(t, Options{}, zap.New(core)))
	recorder := r.Recorder
	r.poll("processes", func(p Progress) bool { return p.Processes == 3 })
	limitDescriptors(t, 60)
	demo.StartMany(t, 100, demo.Options{}).Published()
	sweeps := func() int { return logs.FilterMessage("sweep ended early").Len() }
	r.poll("a sweep that ended early", func(Progress) bool { return sweeps() > 0 })
	r.stop()
	<-r.ended
	assert.NilError(t, r.err)
	n := len(r.recording.Processes)
	assert.Check(t, n >= 3 && n != 103, "%d processes", n)
	if f := r.recording.failure(0); !errors.Is(f.Err, unix.EMFILE) || !f.Since.IsZero() {
		t.Errorf("failed %v", r.recording.Failed)
	}
	recorder.Swept(errors.New("once more"))
	if field := logs.FilterMessage("sweep ended early").All()[0].ContextMap()["reason"]; sweeps() != 1 ||
		field != "sweeps_failed" {
		t.Errorf("%d sweeps logged, reason %v", sweeps(), field)
	}
}

// limitDescriptors leaves us so many more than are open now, until the test ends.
func limitDescriptors(t *testing.T, more int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	var before unix.Rlimit
	if err == nil {
		err = unix.Getrlimit(unix.RLIMIT_NOFILE, &before)
	}
	limited := before
	limited.Cur = uint64(len(open) + more)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limited)
	}
	assert.NilError(t, err)
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
}

// A process that was sampled, and cannot be any more, is reported, and when that began.
func TestRecordingFailsLater(t *testing.T) {
	p := demo.Start(t, demo.Options{Service: "later", Busy: 1, Gap: -1})
	r := record(t, Options{Filter: services(t, "later")})
	r.poll("samples", func(p Progress) bool { return p.WithTrace > 100 })
	spoilt := time.Now()
	p.Hostile("storage-length", "")
	r.poll("a probe in vain", func(Progress) bool { return r.fails(p.PID) })
	recording := r.end()
	if f := recording.failure(p.PID); len(recording.Processes) != 1 || f.Err == nil || f.Since.Before(spoilt) {
		t.Errorf("processes %v, failed %v", recording.Processes, recording.Failed)
	}
}

// One that ends, or publishes nothing any more, has not failed.
func TestRecordingNoFailure(t *testing.T) {
	ends := demo.Start(t, demo.Options{Service: "quiet", Busy: 1, Gap: -1})
	withdraws := demo.Start(t, demo.Options{Service: "quiet", Busy: 1, Gap: -1})
	r := record(t, Options{Filter: services(t, "quiet")})
	r.poll("both", func(p Progress) bool { return p.Processes == 2 })
	ends.Quit()
	withdraws.Withdraw()
	r.poll("no samples", func(Progress) bool { return r.handler(ends.PID) == nil && r.fails(withdraws.PID) })
	if recording := r.end(); len(recording.Processes) != 2 || len(recording.Failed) != 0 {
		t.Errorf("processes %v, failed %v", recording.Processes, recording.Failed)
	}
}

// How long a recording is begins to count when the processes are sampled.
func TestRecordingDuration(t *testing.T) {
	demo.Start(t, demo.Options{Service: "while", Busy: 1, Gap: -1})
	for duration := 500 * time.Millisecond; ; duration *= 2 { // until the process has got a CPU
		r := record(t, Options{Filter: services(t, "while"), Duration: duration})
		r.poll("the beginning", func(p Progress) bool {
			assert.Check(t, p.Processes == 1, "begun with %d processes", p.Processes)
			return true
		})
		recording := r.wait()
		assert.Check(t, recording.Start == r.Progress().Start && recording.Duration >= duration,
			"%v from %v", recording.Duration, recording.Start)
		if len(recording.Samples) > 0 {
			break
		}
		assert.Assert(t, duration < time.Minute, "no samples in %v", duration)
	}
}

// The end of a recording is no failure of a process: one that hung until then failed for that, and one that was sampled
// has not failed.
func TestProbedAtTheEnd(t *testing.T) {
	closed := fmt.Errorf("reading: %w", worker.ErrClosed)
	for _, test := range []struct {
		probed bool
		before error
		want   error
	}{{false, nil, procscan.ErrStuck}, {true, nil, nil}, {true, worker.ErrTimeout, worker.ErrTimeout}} {
		h := &handler{recorder: new(Recorder), probed: make(chan struct{})}
		if test.probed {
			h.Probed(test.before)
		}
		h.Probed(closed)
		_, err := h.failure()
		assert.Check(t, err == test.want, "%+v: %v", test, err)
	}
}

// The two ways to lose a sample that have one name are told apart, and none is left out.
func TestLost(t *testing.T) {
	r := Recorder{aggregate: newAggregate()}
	r.counters.Sampling.Kernel[bpf.Stale].Store(2)
	r.counters.Sampling.Kernel[bpf.Correlated].Store(10)
	r.counters.Sampling.Kernel[bpf.Idle].Store(7)
	r.counters.Sampling.Outcomes.Add(process.OutcomeStale, 3)
	r.counters.Sampling.Outcomes.Add(process.OutcomeAbandoned, 4)
	// One is of another trace, and one after the recording was closed.
	r.counters.Sampling.Outcomes.Add(process.OutcomeCorrelated, 3)
	c := &r.counters.Sampling
	c.LabelsRefused.Store(5)
	c.AttributesCut.Store(6)
	c.UnknownKeys.Store(7)
	recording := Recording{Lost: make(map[string]uint64), Samples: map[Key]uint64{{}: 1}, Unselected: 1}
	r.addLost(&recording)
	assert.Check(t, recording.LabelsRefused == 5 && recording.AttributesCut == 6 && recording.UnknownKeys == 7)
	want := "map[abandoned:5 kernel_stale:2 stale:3]"
	assert.Check(t, fmt.Sprint(recording.Lost) == want, "%v, want %s", recording.Lost, want)
}

// What is said of a pid is of the last program that the process runs, and of no process that had it before.
func TestRunning(t *testing.T) {
	first, last, before := new(Process), new(Process), new(Process)
	runs := &handler{programs: []*program{{process: first}, {process: last}}}
	ended := &handler{programs: []*program{{process: before}}}
	r := &Recorder{
		processes: map[procscan.ProcessID]*handler{{PID: 7, StartTime: 2}: runs, {PID: 8}: new(handler)},
		ended:     map[procscan.ProcessID][]*handler{{PID: 7, StartTime: 1}: {ended}},
	}
	got := r.running(map[int]string{7: "why", 8: "why", 9: "why"})
	assert.Check(t, maps.Equal(got, map[*Process]string{last: "why"}), "%v", got)
}
