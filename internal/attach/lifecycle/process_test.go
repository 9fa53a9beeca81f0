package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/mempoll"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker/access/accesstest"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/procscan/watch"
	"correlator/profile"
)

// A number that is given to another process means that process from then on, and what a sweep found
// of the former comes to nothing.
func TestReusedPID(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, sweepOnce)
	r.attached(p, 1)
	now, err := r.discovery.scanner.Process(p.PID)
	assert.NilError(t, err)
	before := now
	before.StartTime--
	h := r.handler(p)
	r.take(before) // what a slow sweep could still find
	assert.Check(t, r.handler(p) == h && r.process(p.PID) == h.process, "the process that has the pid now was replaced")
}

// A process that is refused is refused before anything of it is opened.
func TestRefusedUnopened(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, sweepOnce)
	r.attached(p, 1)
	found, err := r.discovery.scanner.Process(p.PID)
	assert.NilError(t, err)
	r.mu.Lock()
	r.limit = 1
	r.mu.Unlock()
	before := r.counters.Refused[RefusedError].Load()
	found.StartTime-- // that process cannot be opened any more
	r.take(found)
	for reason, err := range map[RefusalReason]error{RefusedPublishing: errPublishing, RefusedUnprobed: errUnprobed} {
		r.refuse(found.ProcessID, fmt.Errorf("letting it in: %w", err))
		assert.Check(t, r.counters.Refused[reason].Load() == 1, "%v", reason)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counters.Refused[RefusedError].Load() == before || !errors.Is(errors.Join(r.refused...), errLimit) {
		t.Errorf("refused %v", r.refused)
	}
}

// What is mapped when a sweep reads it can be gone before it is opened.
func TestLibraryGoneBeforeItWasOpened(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	p.Load()
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	found, err := scanner.Process(p.PID)
	assert.NilError(t, err)
	p.UnlinkLibrary()
	p.Unload()
	r := run(t, sweepOnce)
	r.take(found)
	r.gone(p)
}

// An attachment that the process has ended is begun again.
func TestDown(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	r.attached(p, 1)
	h := r.handler(p)
	h.down <- errors.New("down")
	r.attached(p, 2)
	if last := h.process.Status().LastError; last == nil || last.Reason != process.ReasonSocketGone.String() ||
		h.detached != 1 {
		t.Errorf("last error %+v, detached %d times", last, h.detached)
	}
}

// No worker for access stays where none is needed for a while; the next process has one again.
func TestIdleWorkerEnds(t *testing.T) {
	r := runPrepared(t, func(m *Manager) { m.discovery.idle = time.Millisecond }, sweepOnce)
	for range 2 {
		r.attached(demo.Start(t, demo.Options{Manual: true, Idle: 1}), 1)
		testenv.Poll(t, deadline, "no worker to be left", func() bool { return r.options.Access.Stats().Running == 0 })
	}
}

// Whatever ends a process, nothing of it is left, and what is told of the end is told once: first who takes samples,
// then who serves the process, then what waited for its goroutine.
func TestNothingIsLeft(t *testing.T) {
	r := run(t, func(o *Options) { o.MaxProcesses = 10 })
	var handlers []*recorder
	for name, end := range map[string]func(*demo.Process){
		"killed":   (*demo.Process).Kill,
		"unloaded": func(p *demo.Process) { p.Unload() },
		"exec":     func(p *demo.Process) { p.Exec("sleep", "600") },
	} {
		p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
		p.Load()
		p.Publish()
		r.attached(p, 1)
		h := r.handler(p)
		handlers = append(handlers, h)
		within, goOn := make(chan struct{}), make(chan struct{})
		h.process.Post(func() { close(within); <-goOn })
		<-within
		end(p)
		h.process.entry.OnEnd(func() { // before all others
			h.called("end")
			h.process.Post(func() { h.called("posted") })
		})
		close(goOn)
		r.gone(p)
		if name == "exec" {
			p.Kill() // sleep does not end with its standard input
		}
		assert.Check(t, r.table.Len() == 0, "%s: %d processes are found", name, r.table.Len())
	}
	r.table.Wait()
	for _, h := range handlers {
		p := h.process
		want := []string{"end", "sampler closed", "handler closed", "posted"}
		assert.Check(t, slices.Equal(h.calls, want), "called: %q", h.calls)
		assert.Check(t, !r.exits.Remove(p.target.Handle()), "the exit of process %d is watched", p.id.PID)
		assert.Check(t, !p.target.Handle().Alive(), "the handle of process %d is open", p.id.PID)
	}
	assert.Check(t, r.originals.Len() == 0, "%d still hold what they published", r.originals.Len())
	a := &r.admission
	if n := len(r.table.Entries()) + r.poller.Len() + a.held + a.leaving + len(a.counts); n != 0 {
		t.Errorf("left are %d entries, %d polled, %d admitted, %d leaving, %v", len(r.table.Entries()), r.poller.Len(),
			a.held, a.leaving, a.counts)
	}
}

// A Manager that ends waits no longer for a process that hangs than it may: that is abandoned, and told by its pid.
func TestShutdownAbandons(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	r.attached(p, 1)
	h := r.handler(p)
	within, goOn := make(chan struct{}), make(chan struct{})
	h.process.Post(func() { close(within); <-goOn })
	<-within
	over, cancel := context.WithCancel(t.Context())
	cancel()
	stuck, ok := r.Shutdown(over)
	assert.Check(t, !ok && slices.Contains(stuck, p.PID), "stuck are %v", stuck)
	h.mu.Lock()
	assert.Check(t, slices.Equal(h.calls, []string{"abandoned"}), "called: %q", h.calls)
	h.mu.Unlock()
	close(goOn)
	r.gone(p)
}

// Functions that are posted are called on the process's goroutine, a few may wait, and at the end
// all were called.
func TestPost(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	r.attached(p, 1)
	h := r.handler(p)
	begun, wait, called := make(chan struct{}), make(chan struct{}), 0
	h.process.Post(func() { close(begun); <-wait })
	<-begun
	for range maxPosted {
		assert.Check(t, h.process.Post(func() { called++ }), "refused")
	}
	assert.Check(t, !h.process.Post(func() {}), "there is no end")
	p.Kill()
	close(wait)
	r.gone(p)
	testenv.Poll(t, deadline, "the end",
		func() bool { r.mu.Lock(); defer r.mu.Unlock(); h.mu.Lock(); defer h.mu.Unlock(); return h.closed })
	r.table.Wait()
	assert.Check(t, called == maxPosted, "%d functions called", called)
}

// What waits for a probe of a process that hangs is refused when it is late: it does not add up. What is
// late goes as soon as it is more than half of what waits, as TestInbox of package sampling shows.
func TestHangingHoldsLittle(t *testing.T) {
	counters := new(sampling.Counters)
	r := run(t, sampled(t, 997, counters))
	p := startHanging(t, r)
	for tries := 0; !r.process(p.PID).sampler.IsRunning(); tries++ {
		// It was probed just then: what publishes something else meanwhile is not sampled until that is known.
		assert.Assert(t, tries != 10, "no process is sampled that hangs")
		p.Kill()
		r.gone(p)
		p = startHanging(t, r)
	}
	stale := &counters.Outcomes[process.OutcomeStale]
	testenv.Poll(t, deadline, "samples to be given up", func() bool { return stale.Load() > 300 })
	p.Kill()
	r.gone(p)
}

// startHanging starts a process that hangs when it is read, once there were samples.
func startHanging(t *testing.T, r *running) *demo.Process {
	t.Helper()
	p := demo.Start(t, demo.Options{Busy: 1, PageOut: true, Gap: -1})
	testenv.Poll(t, deadline, "samples", func() bool {
		h := r.handler(p)
		if h == nil {
			return false
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.samples > 0
	})
	p.Hostile("storage-hangs", "")
	r.state(p, process.StateError, process.ReasonTimeout.String())
	return p
}

// Samples of a process that live events and the memory poller watch are no reason to probe what it publishes; where
// one of these is missing, or the last look at its libraries is long ago, they are.
func TestTrusted(t *testing.T) {
	p := demo.Start(t, demo.Options{})
	r := run(t, sampled(t, 20, new(sampling.Counters)))
	r.attached(p, 1)
	known := r.process(p.PID)
	trusted := func(distrust func()) (is bool) {
		done := make(chan struct{})
		posted := known.Post(func() {
			defer close(done)
			distrust()
			is = known.isTrusted()
		})
		assert.Assert(t, posted)
		<-done
		return is
	}
	testenv.Poll(t, deadline, "the process to be trusted", func() bool { return trusted(func() {}) })
	for what, distrust := range map[string]func(){
		"no live events":   func() { r.discovery.live.Store(false) },
		"checked long ago": func() { known.verified = known.verified.Add(-trustInterval) },
		"not polled":       func() { r.poller.Stop(known.poll) },
		"not attached":     func() { known.attached = false },
	} {
		live, verified := r.discovery.live.Load(), known.verified
		assert.Check(t, !trusted(distrust), what)
		trusted(func() {
			r.discovery.live.Store(live)
			known.verified, known.attached = verified, true
			known.startPolling()
		})
	}
}

// That a program was executed may be told after it was attached to, whether it is sampled or not: it stays attached to.
// Another program is another agent, also if it is the same one at the same addresses.
func TestExecToldLate(t *testing.T) {
	for name, options := range map[string][]func(*Options){
		"sampled": {sampled(t, 97, new(sampling.Counters)), sweepOnce}, "fed": {sweepOnce}, "fed, fixed": {sweepOnce},
	} {
		t.Run(name, func(t *testing.T) {
			r := runPrepared(t, func(m *Manager) {
				m.discovery.open = func() (*watch.EventWatcher, error) { return nil, procscan.ErrDenied }
			}, options...)
			p := demo.Start(t, demo.Options{Idle: 1, Placement: demo.Placement{FixedLayout: name == "fed, fixed"}})
			p.Restart(true) // with the arguments and the environment that it has again
			r.requestProbe(p.PID)
			r.attached(p, 1)
			r.handleEvent(watch.Event{Kind: watch.EventExec, PID: p.PID})
			executed := &r.process(p.PID).executed
			testenv.Poll(t, deadline, "a look at the program", func() bool { return !executed.Load() })
			probes := r.counters.Probes.Load()
			r.process(p.PID).MarkDirty()
			testenv.Poll(t, deadline, "another probe", func() bool { return r.counters.Probes.Load() > probes })
			h := r.handler(p)
			h.mu.Lock()
			assert.Check(t, h.detached == 0) // which a probe does first
			h.mu.Unlock()
			p.Restart(true)
			r.handleEvent(watch.Event{Kind: watch.EventExec, PID: p.PID})
			r.attached(p, 2)
		})
	}
}

// A program that is executed again while the former is attached to is another agent, also at the same addresses.
func TestExecWhileAttaching(t *testing.T) {
	p := demo.Start(t, demo.Options{Idle: 1, Placement: demo.Placement{FixedLayout: true}})
	r := runPrepared(t, func(m *Manager) {
		m.discovery.open = func() (*watch.EventWatcher, error) { return nil, procscan.ErrDenied }
		m.client.(*running).attaching = sync.OnceFunc(func() { p.Restart(true) })
	}, sweepOnce)
	r.attached(p, 1)
	r.handleEvent(watch.Event{Kind: watch.EventExec, PID: p.PID})
	r.attached(p, 2)
}

// A program may be executed again and look the same from outside: everything at the same addresses,
// the same socket. Its samples show it, where no live event does.
func TestExecUnseen(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Placement: demo.Placement{FixedLayout: true}})
	counters := new(sampling.Counters)
	r := runPrepared(t, func(m *Manager) {
		m.discovery.open = func() (*watch.EventWatcher, error) { return nil, procscan.ErrDenied }
	}, sampled(t, 997, counters), sweepOnce)
	r.attached(p, 1)
	var h *recorder
	samples := func() uint64 { h.mu.Lock(); defer h.mu.Unlock(); return h.samples }
	stale := &counters.Kernel[bpf.Stale]
	for try := 1; ; try++ {
		h = r.handler(p)
		h.mu.Lock()
		h.samples = 0
		h.mu.Unlock()
		testenv.Poll(t, deadline, "samples", func() bool { return samples() > 30 })
		storage, base, before := p.Published().Storage, p.Loaded().Base, stale.Load()
		p.Restart(true)
		if again := p.Published().Storage; again != storage || p.Loaded().Base != base {
			t.Fatalf("storage at %#x and library at %#x before, %#x and %#x after: that can be seen", storage, base,
				again, p.Loaded().Base)
		}
		r.attached(p, try+1) // it is another agent
		if stale.Load() > before && r.handler(p) == h {
			break
		}
		// else it was looked at before it published again
		assert.Assert(t, try != 10, "no sample was found to be of another program")
	}
	code := p.Functions()
	h.mu.Lock()
	h.samples = 0
	h.isWork = func(frames []profile.Frame) bool {
		return slices.ContainsFunc([]string{"checkout", "search", "browse", "housekeeping"}, func(kind string) bool {
			return code[kind].In(frames)
		})
	}
	h.mu.Unlock()
	testenv.Poll(t, deadline, "samples in the work of the new program", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.inWork > 30
	})
}

// unprobed is a process of a Manager that has a memory poller alone.
func unprobed(t *testing.T) *Process {
	poller, err := mempoll.New(accesstest.Open(t), new(atomic.Uint64))
	assert.NilError(t, err)
	t.Cleanup(poller.Close)
	m := &Manager{poller: poller, counters: new(Counters), started: time.Now()}
	m.admission.init(1, m.counters, nil)
	p := &Process{manager: m, log: zap.NewNop(), target: &process.Target{}, born: time.Now(), probed: true,
		attaches: newAttachLimiter(), binds: newAttachLimiter(), failures: newFailureLimiter()}
	p.poll = mempoll.NewEntry(os.Getpid(), "0", &p.active, func() {})
	return p
}

// A process that would not be attached to yet is not probed every millisecond meanwhile.
func TestLeftAlone(t *testing.T) {
	p := unprobed(t)
	m := p.manager
	if wait := p.nextRetry(memread.ErrNotPublished); wait != 0 || m.counters.TooOften.Load() != 0 ||
		m.poller.Len() != 1 {
		t.Errorf("probed again after %v at first, %d polled", wait, m.poller.Len())
	}
	for p.attaches.Allow() {
	}
	for i, err := range []error{memread.ErrNotPublished, messaging.ErrNoSocket} {
		if wait := p.nextRetry(err); wait < attachInterval || m.counters.TooOften.Load() != uint64(i+1) {
			t.Errorf("probed again after %v, counted %d times", wait, m.counters.TooOften.Load())
		}
		assert.Check(t, m.poller.Len() == 0, "it is polled")
	}
}

// One whose probes fail at once after each change is left alone after some of them.
func TestFailingLeftAlone(t *testing.T) {
	p := unprobed(t)
	n := 0
	for ; p.nextRetry(memread.ErrNotPublished) < attachInterval; n++ {
		assert.Assert(t, n < 100*failureBurst, "it is probed on and on")
	}
	assert.Check(t, n >= failureBurst && p.manager.counters.TooOften.Load() == 1 && p.manager.poller.Len() == 0, n)
}

// A process is attached to a few times in a row, and once a second in the long run.
func TestAttachLimiter(t *testing.T) {
	l, now := newAttachLimiter(), time.Now()
	allowed := func(at time.Time) (n int) {
		for l.AllowN(at, 1) {
			n++
		}
		return n
	}
	got := []int{allowed(now), allowed(now.Add(attachInterval - time.Millisecond)), allowed(now.Add(attachInterval)),
		allowed(now.Add(100 * attachInterval))}
	assert.DeepEqual(t, got, []int{attachBurst, 0, 1, attachBurst})
}

// A process in error is probed again after pauses that double up to the longest, and begin anew once it was well.
func TestRetryPauses(t *testing.T) {
	p := unprobed(t)
	for range 2 {
		p.probed = false
		for want := retryMin; ; want = min(2*want, retryMax) {
			wait := p.nextRetry(messaging.ErrNoSocket)
			assert.Assert(t, wait == want, "probed again after %v, want %v", wait, want)
			if want == retryMax {
				break
			}
		}
		wait := p.nextRetry(messaging.ErrNoSocket)
		assert.Check(t, wait == retryMax, "probed again after %v, want the longest pause", wait)
		assert.Check(t, p.manager.poller.Len() == 0, "it is polled, too")
		p.probed = true
		if wait := p.nextRetry(memread.ErrNotPublished); wait != 0 || p.manager.poller.Len() != 1 {
			t.Errorf("probed again after %v when it was well, %d polled", wait, p.manager.poller.Len())
		}
	}
	for _, err := range []error{process.ErrNotTarget, process.ErrContainerFiltered} {
		wait := p.nextRetry(err)
		assert.Check(t, wait == retryMax, "%v: probed again after %v", err, wait)
	}
}
