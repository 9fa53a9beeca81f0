package record

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/memread"
	"correlator/procscan"
	"correlator/profile"
)

// A process that is started while others are recorded is recorded, too, and one that ends is not
// lost; of services that are not asked for there is nothing.
func TestRecordingComingAndGoing(t *testing.T) {
	goes := demo.Start(t, demo.Options{Service: "passing", Busy: 1, Gap: -1})
	other := demo.Start(t, demo.Options{Service: "other", Busy: 1, Gap: -1})
	r := record(t, Options{Filter: services(t, "passing"), MaxProcesses: 2}) // at a time
	r.poll("a process", func(p Progress) bool { return p.Processes == 1 })
	r.poll("samples of the first", func(p Progress) bool { return p.WithTrace > 100 })
	threads, code := goes.Threads(), goes.Functions()
	report := goes.Quit()
	silent(t, report)
	comes := demo.Start(t, demo.Options{Service: "passing", Busy: 1, Gap: -1, Flavor: demo.GlibcDynamic})
	r.poll("samples of both", func(p Progress) bool { return p.Processes == 2 && p.WithTrace > 300 })
	recording := r.end()
	verifyTransactions(t, recording, recording.of(goes.PID), report, threads, code)
	threads, code = comes.Threads(), comes.Functions()
	verifyTransactions(t, recording, recording.of(comes.PID), comes.Quit(), threads, code)
	silent(t, other.Quit())
	if len(recording.Processes) != 2 || len(recording.of(other.PID)) != 0 || len(recording.Failed) != 0 {
		t.Errorf("processes %v, failed %v", recording.Processes, recording.Failed)
	}
	assert.Check(t, recording.of(goes.PID) != nil && !slices.ContainsFunc(recording.Processes, func(p *Process) bool {
		return (p.Handle.Close() == nil) != (p.PID == comes.PID)
	}), "the handle of a process is closed that lives, or open of one that has ended")
}

// The only process to be recorded is alone in the recording, and its end is that of the recording.
func TestRecordingOneProcess(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	other := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := record(t, Options{PID: p.PID})
	r.poll("samples", func(p Progress) bool { return p.WithTrace > 100 })
	silent(t, p.Quit())
	recording := r.wait()
	if len(recording.Processes) != 1 || recording.Processes[0].PID != p.PID || len(recording.of(p.PID)) == 0 {
		t.Errorf("processes %v", recording.Processes)
	}
	silent(t, other.Quit())
}

// The only process need not publish anything. When it begins to, its samples have traces.
func TestRecordingProcessWithoutLibrary(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Busy: 1})
	r := record(t, Options{PID: p.PID})
	r.poll("samples", func(p Progress) bool { return p.Samples > 0 })
	p.Load()
	p.Publish()
	p.Begin(1)
	r.poll("samples with a trace", func(p Progress) bool { return p.WithTrace > 0 })
	recording := r.end()
	assert.Check(t, recording.NumProcesses() == 1 && len(recording.Failed) == 0, "%v, failed %v", recording.Processes,
		recording.Failed)
}

// Processes of any kind are recorded where that is wanted, those that begin later, too.
func TestRecordingAll(t *testing.T) {
	start := func(name string) *demo.Process {
		return demo.Start(t, demo.Options{Hold: true, Busy: 1,
			Placement: demo.Placement{Env: []string{"OTEL_SERVICE_NAME=" + name}}})
	}
	first, other := start("first"), start("other")
	filter := services(t, "first|second")
	filter.All = true
	r := record(t, Options{Filter: filter})
	r.poll("samples", func(p Progress) bool { return p.Samples > 0 })
	second := start("second")
	r.poll("both processes", func(p Progress) bool { return p.Processes == 2 })
	recording := r.end()
	var found []string
	for _, p := range recording.Processes {
		assert.Check(t, p.PID == first.PID || p.PID == second.PID, "%+v, not %d", p, other.PID)
		found = append(found, p.Service)
	}
	slices.Sort(found)
	assert.Check(t, slices.Equal(found, []string{"first", "second"}) && len(recording.Failed) == 0, "%v, failed %v",
		found, recording.Failed)
}

// A process that is asked for and cannot be recorded is an error that says why.
func TestRecordingNoProcess(t *testing.T) {
	other := demo.Start(t, demo.Options{Service: "other"})
	for name, test := range map[string]struct {
		options Options
		want    error
	}{
		"other service": {Options{PID: other.PID, Filter: services(t, "this")}, process.ErrServiceFiltered},
		"other command": {Options{PID: other.PID, Filter: commands(t, "this")}, process.ErrCommandFiltered},
		"none":          {Options{PID: 1 << 30}, procscan.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, test.options)
			<-r.ended
			assert.Check(t, errors.Is(r.err, test.want), "%v, want %v", r.err, test.want)
		})
	}
	t.Run("nothing published", func(t *testing.T) {
		silentAgent := demo.Start(t, demo.Options{Hold: true})
		silentAgent.Load()
		all := record(t, Options{Filter: services(t, "none-is-called-so")})
		all.probedInVain(silentAgent.PID)
		recording := all.end()
		assert.Check(t, len(recording.Processes)+len(recording.Samples) == 0 &&
			slices.ContainsFunc(recording.Failed, func(f Failure) bool {
				return f.PID == silentAgent.PID && errors.Is(f.Err, memread.ErrNotPublished)
			}),
			"processes %v, failed %v", recording.Processes, recording.Failed)
	})
	_, err := Open(Options{ProcRoot: "/proc"}, nil)
	assert.Check(t, err != nil && strings.Contains(err.Error(), "0 samples"), "without a rate: %v", err)
}

// probedInVain waits until a process was probed, in vain.
func (r *running) probedInVain(pid int) {
	r.t.Helper()
	r.poll("a probe", func(Progress) bool { return r.fails(pid) })
}

// A process for which there is no room is reported.
func TestRecordingTooManyProcesses(t *testing.T) {
	for range 2 {
		demo.Start(t, demo.Options{Service: "crowd", Busy: 1})
	}
	r := record(t, Options{Filter: services(t, "crowd"), MaxProcesses: 1})
	r.poll("a refusal", func(Progress) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.refused) > 0
	})
	failed := r.end().Failed
	assert.Check(t, slices.ContainsFunc(failed, func(f Failure) bool { return errors.Is(f.Err, errTooManyProcesses) }),
		"failed %v", failed)
}

// A process that executes its program again is two in the recording: what is at an address of the
// one is not what is there in the other.
func TestRecordingExec(t *testing.T) {
	p := demo.Start(t, demo.Options{Service: "executed", Busy: 1, Transaction: 200 * time.Millisecond, Gap: -1})
	r := record(t, Options{Filter: services(t, "executed")})
	r.poll("samples", func(p Progress) bool { return p.WithTrace > 100 })
	p.Restart(false)
	before := r.Progress().WithTrace
	r.poll("samples of both", func(p Progress) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.Recorder.sampled()) == 2 && p.WithTrace > before+200
	})
	n := r.Progress().Processes
	assert.Check(t, n == 1, "%d processes", n)
	threads, code := p.Threads(), p.Functions()
	recording := r.end()
	if len(recording.Processes) != 2 || recording.Processes[0].PID != recording.Processes[1].PID ||
		recording.NumProcesses() != 1 {
		t.Fatalf("processes %v", recording.Processes)
	}
	report := p.Quit()
	for _, process := range recording.Processes {
		samples := make(map[Key]uint64)
		for key, n := range recording.Samples {
			if key.Process == process {
				samples[key] = n
			}
		}
		ours := sum(samples, func(key Key) bool { _, known := report.Transaction(key.TraceID); return known })
		assert.Check(t, ours == 0 || ours == sum(samples, traced), "a process has samples of two programs")
		if ours != 0 {
			verifyTransactions(t, recording, samples, report, threads, code)
		}
	}
}

// An exec does not end the recording of a process, though the program that it executes takes a
// while to map the library, nor does it begin another one. The only process is recorded meanwhile, too.
func TestRecordingExecSlow(t *testing.T) {
	for name, only := range map[string]bool{"only process": true, "all processes": false} {
		t.Run(name, func(t *testing.T) {
			p := demo.Start(t, demo.Options{Service: "slow", Hold: true, Busy: 1, Gap: -1})
			p.Load()
			p.Publish()
			options := Options{Filter: services(t, "slow")}
			if only {
				options = Options{PID: p.PID}
			}
			r := record(t, options)
			r.poll("samples", func(p Progress) bool { return p.WithTrace > 100 })
			h := r.handler(p.PID)
			p.Restart(false)
			if without := r.Progress(); only {
				r.poll("samples without library", func(p Progress) bool {
					return p.Samples-p.WithTrace > without.Samples-without.WithTrace+10
				})
			} else {
				r.probedInVain(p.PID)
			}
			p.Load()
			p.Publish()
			before := r.Progress().WithTrace
			r.poll("samples of the new program", func(p Progress) bool { return p.WithTrace > before+100 })
			assert.Check(t, r.handler(p.PID) == h, "it is recorded as another process")
			programs := 2
			if only {
				programs++ // the second is another before it publishes
			}
			if recording := r.end(); len(recording.Processes) != programs || recording.NumProcesses() != 1 ||
				len(recording.Failed) != 0 {
				t.Errorf("processes %v, failed %v", recording.Processes, recording.Failed)
			}
		})
	}
}

// A process that is found again after its recording has ended takes no further place, and has no
// more programs than one whose recording goes on.
func TestRecordingFoundAgain(t *testing.T) {
	r := &Recorder{
		options:   Options{MaxProcesses: 1},
		processes: make(map[procscan.ProcessID]*handler),
		ended:     make(map[procscan.ProcessID][]*handler),
		aggregate: newAggregate(),
	}
	for i := range 2 {
		p := new(lifecycle.Process)
		assert.NilError(t, r.Admit(p.Identity()), "found the %d. time", i+1)
		made, _ := r.NewHandler(p)
		h := made.(*handler)
		assert.NilError(t, h.Attach())
		h.programs = make([]*program, maxPrograms/2)
		err := h.Attach()
		assert.Check(t, (err != nil) == (i == 1), "attaching the %d. time: %v", i+1, err)
		n := r.Progress().Processes
		assert.Check(t, n == 1, "%d processes", n)
		delete(r.processes, h.id)
		r.ended[h.id] = append(r.ended[h.id], h)
	}
	n := r.Progress().Processes
	assert.Check(t, n == 1, "%d processes", n)
}

// A process that makes whoever reads it hang loses samples of its own, and none of its neighbor's.
func TestRecordingNeighborHangs(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Service: "neighbors", Busy: 1, Gap: -1})
	slot := demo.Start(t, demo.Options{Service: "neighbors", Busy: 1, Manual: true})
	storage := demo.Start(t, demo.Options{Service: "neighbors", Idle: 1})
	storage.Hostile("storage-hangs", "")
	r := record(t, Options{Filter: services(t, "neighbors")})
	r.poll("two processes", func(p Progress) bool { return p.Processes == 2 })
	slot.Begin(1)
	slot.Spoil(1, "slot-hangs")
	before := r.Progress().WithTrace
	r.poll("samples of the neighbor, and of the others in vain", func(p Progress) bool {
		return p.WithTrace > before+300 && r.fails(storage.PID) &&
			r.counters.Sampling.Outcomes[process.OutcomeStale].Load() > 0 // those behind one that is read
	})
	threads, code := neighbor.Threads(), neighbor.Functions()
	recording := r.end()
	verifyTransactions(t, recording, recording.of(neighbor.PID), neighbor.Quit(), threads, code)
	assert.Check(t, recording.Lost[process.OutcomeStale.String()] > 0, "lost %v", recording.Lost)
	if !slices.ContainsFunc(recording.Failed, func(f Failure) bool {
		return f.PID == storage.PID &&
			(errors.Is(f.Err, procscan.ErrStuck) || process.ReasonOf(f.Err) == process.ReasonTimeout)
	}) {
		t.Errorf("failed %v", recording.Failed)
	}
	slot.Kill()
	storage.Kill()
}

// slowLearner takes for ever with the processes of a service.
type slowLearner struct {
	service string
	release chan struct{}

	mu      sync.Mutex
	learned map[*Process][]profile.StackTraceID
}

func (l *slowLearner) Learn(p *Process, sample *profile.Sample) {
	l.mu.Lock()
	l.learned[p] = append(l.learned[p], profile.TraceID(sample.Stack.Frames))
	l.mu.Unlock()
	if p.Service == l.service {
		<-l.release
	}
}

// Each stack of a process is learned once, while the process lives, and a Learner that takes long
// with one process is not late with another.
func TestLearner(t *testing.T) {
	slow := demo.Start(t, demo.Options{Service: "learned-slow", Busy: 1})
	fast := demo.Start(t, demo.Options{Service: "learned-fast", Busy: 1})
	learner := &slowLearner{service: "learned-slow", release: make(chan struct{}),
		learned: make(map[*Process][]profile.StackTraceID)}
	r := record(t, Options{Filter: services(t, "learned-.*"), Learner: learner})
	learned := func(service string) int {
		learner.mu.Lock()
		defer learner.mu.Unlock()
		for p, stacks := range learner.learned {
			if p.Service == service {
				return len(stacks)
			}
		}
		return 0
	}
	r.poll("stacks to be learned", func(Progress) bool {
		return learned("learned-slow") == 1 &&
			learned("learned-fast") > 5
	})
	slow.StopThreads()
	fast.StopThreads()
	close(learner.release)
	recording := r.end()
	stacks := make(map[*Process]map[profile.StackTraceID]bool)
	for key := range recording.Samples {
		if stacks[key.Process] == nil {
			stacks[key.Process] = make(map[profile.StackTraceID]bool)
		}
		stacks[key.Process][key.Stack] = true
	}
	for p, known := range stacks {
		if len(learner.learned[p]) != len(known) {
			t.Errorf("%s: %d stacks, %d learned", p.Service, len(known), len(learner.learned[p]))
		}
		for _, id := range learner.learned[p] {
			if !known[id] {
				t.Errorf("%s: a stack was learned that is not recorded", p.Service)
			}
		}
	}
}

// The child of a fork that executes nothing shows its parent's trace, and works on nothing of the
// kind: what it burns is nobody's transaction.
func TestRecordingFork(t *testing.T) {
	for _, before := range []bool{false, true} {
		p := demo.Start(t, demo.Options{Service: "forking", Manual: true, Idle: 1})
		p.Begin(0) // the slot of the thread that forks
		child := 0
		if before {
			child = p.Fork(true)
		}
		r := record(t, Options{Filter: services(t, "forking")})
		r.poll("the parent", func(p Progress) bool { return p.Processes > 0 })
		if !before {
			child = p.Fork(true)
		}
		r.poll("the child to be taken for one", func(Progress) bool {
			h := r.handler(child)
			if h == nil {
				return false
			}
			_, err := h.failure()
			return errors.Is(err, process.ErrCopy)
		})
		burnt := cpuSeconds(t, child)
		r.poll("the child to burn CPU", func(Progress) bool { return cpuSeconds(t, child) > burnt+0.1 })
		recording := r.end()
		// Found in the same moment, the child may come first, until the parent does.
		if samples := sum(recording.of(child), traced); samples > map[bool]uint64{false: 0, true: 100}[before] {
			t.Errorf("%d samples of the child have a trace", samples)
		}
		silent(t, p.Quit())
	}
}

func cpuSeconds(t *testing.T, pid int) float64 {
	t.Helper()
	proc, err := procfs.NewProc(pid)
	assert.NilError(t, err)
	stat, err := proc.Stat()
	assert.NilError(t, err)
	return stat.CPUTime()
}
