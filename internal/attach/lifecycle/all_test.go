package lifecycle

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// all has processes of any kind taken, those of the test.
func all(t *testing.T) func(*Options) {
	return func(o *Options) {
		patterns, err := process.ParsePatterns("otel.*|demo|.*writer.*")
		assert.NilError(t, err)
		o.Filter.All, o.Filter.IncludeCommands = true, patterns
	}
}

// class waits until a process is of a class of the admission.
func (r *running) class(pid int, want class) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "a class", func() bool {
		p := r.process(pid)
		if p == nil {
			return false
		}
		r.admission.mu.Lock()
		defer r.admission.mu.Unlock()
		return p.claim.class == want
	})
}

// taken waits until a process was attached to; again, if that was while it executed its program.
func (r *running) taken(pid int) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "a process to be attached to", func() bool {
		h := r.handler(&demo.Process{PID: pid})
		return h != nil && h.times() > 0
	})
}

// A process that was taken before it published anything has a place among those that publish as long as it does.
func TestPublishesLater(t *testing.T) {
	r := run(t, all(t), sweepOnce)
	w := demo.StartOTel(t, demo.OTelOptions{Hold: true, Threads: 1})
	r.class(w.PID, classCandidate)
	r.taken(w.PID)
	w.Load()
	w.Publish()
	r.class(w.PID, classPublisher)
	w.Withdraw()
	r.class(w.PID, classCandidate)
}

// Between two sweeps it is looked for processes that were not there before, of which no event tells; those that are
// known are left alone.
func TestLooks(t *testing.T) {
	r := run(t, all(t), sweepOnce)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1, NoThreads: true})
	r.taken(w.PID)
	r.sweeps(r.counters.Sweeps.Load() + 2) // what happened before has been looked at
	h := r.handler(&demo.Process{PID: w.PID})
	probed := h.probes.Load()
	child := w.Fork(false, false)
	r.taken(child)
	r.sweeps(r.counters.Sweeps.Load() + 2)
	assert.Check(t, h.probes.Load() == probed, "probed %d times, and %d before", h.probes.Load(), probed)
}

// Who was refused is not forgotten by a look, which does not see it.
func TestLooksForgetNobody(t *testing.T) {
	r := run(t, all(t), sweepOnce)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1, NoThreads: true})
	r.taken(w.PID)
	refused := &Process{id: procscan.ProcessID{PID: 1 << 30, StartTime: 1}}
	r.admission.mu.Lock()
	r.admission.remember(refused, classPublisher)
	r.admission.mu.Unlock()
	r.taken(w.Fork(false, false)) // else nobody is looked at
	r.sweeps(r.counters.Sweeps.Load() + 3)
	publishing, _ := r.WithoutPlace()
	assert.Check(t, publishing == 1, publishing)
}
