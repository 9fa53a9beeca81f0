package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"correlator/internal/attach"
	"correlator/internal/attach/mempoll"
	"correlator/internal/attach/process"
	"correlator/memread"
	"correlator/procscan"
)

const (
	// hangTimeout is how long one probe of a process may take before it counts as hanging.
	hangTimeout = 2 * time.Second

	// maxPosted is how many functions may wait for the process's goroutine.
	maxPosted = 16
)

// Process is the life of one process that maps the library or a process context. Everything that touches the process
// happens on the goroutine of run.
type Process struct {
	manager *Manager
	entry   *attach.Entry
	id      procscan.ProcessID
	log     *zap.Logger
	handler Handler
	sampler Sampler

	dirty    chan struct{} // has a token when it is to be probed
	posted   chan func()
	worked   chan struct{}  // of hands.do
	exited   chan struct{}  // closed by the exit watcher
	evicted  chan struct{}  // closed when it has to give way to another
	mappings latestMappings // what was found mapped
	poll     *mempoll.Entry // of the manager's memory poller

	active      atomic.Bool  // it does something
	changed     atomic.Bool  // it is to be probed at once, not only when it is its turn
	executed    atomic.Bool  // it runs another program since the last probe
	stuckLogged bool         // owned by the sweep
	truncated   bool         // it was found to map too many libraries; guarded by discovery.taking
	busySince   atomic.Int64 // when run began to do something with the process, as uptime; 0 while it awaits

	// Owned by run.
	target     *process.Target
	kept       bool              // the target is the handler's
	own        process.Ownership // of what it has published
	attached   bool
	attachedAt time.Time
	execution  process.Execution // that was attached to; zero: not known
	everRan    bool              // a program of it was sampled
	unsampled  error             // why an attached process is not sampled
	verified   time.Time         // when its libraries were last known to be mapped
	unmapped   time.Time         // since when it is known to map none; zero: it maps some
	born       time.Time         // when it became a candidate: the origin of its poll intervals
	suspect    bool              // something has changed in its memory
	unpolled   bool              // it maps nothing that could publish, and takes part all the same
	probed     bool              // the last step found out what is published, or that nothing is
	retry      time.Duration
	attaches   *rate.Limiter
	failures   *rate.Limiter
	binds      *rate.Limiter // probes of an attached process whose variable is not bound
	logged     [process.NumReasons]bool
	filtered   bool // was logged
	shutdown   bool // its end is the Manager's

	claim claim // the Manager's admission guards it

	mu     sync.Mutex
	status Status
}

var (
	// errTooOften: the process publishes something new faster than we follow.
	errTooOften = errors.New("publishing something new too often")
	// errUnmapped: the process may map one again, see Options.RemapGrace.
	errUnmapped = fmt.Errorf("neither a library nor a process context is mapped: %w", memread.ErrNotPublished)
	// errShutdown: the Manager ends.
	errShutdown = errors.New("shutting down")
)

// newProcess opens a process that was found. It is shown, and its goroutine begun, by the caller.
func (m *Manager) newProcess(found procscan.Found) (*Process, error) {
	p := &Process{
		manager:  m,
		entry:    m.table.Add(found.ProcessID),
		id:       found.ProcessID,
		dirty:    make(chan struct{}, 1),
		posted:   make(chan func(), maxPosted),
		worked:   make(chan struct{}, 1),
		exited:   make(chan struct{}),
		evicted:  make(chan struct{}),
		attaches: newAttachLimiter(),
		failures: newFailureLimiter(),
		binds:    newAttachLimiter(),
		status:   Status{View: process.NewView(found.ProcessID)},
	}
	if err := p.open(found); err != nil {
		p.entry.End()
		return nil, err
	}
	m.processes.Set(p.entry, p)
	return p, nil
}

// open opens what the process is served with, and registers for its end what closes that.
func (p *Process) open(found procscan.Found) (err error) {
	m, atEnd := p.manager, p.entry.OnEnd
	if p.target, err = process.Open(m.options.Access, m.options.ProcRoot, found, m.options.Filter); err != nil {
		return err
	}
	p.log = m.logBudget.logger(m.options.ProcessLog, p.target.User()).With(zap.Int("pid", found.PID))
	if err := p.enter(); err != nil {
		p.target.Close()
		return err
	}
	atEnd(func() { m.admission.end(p) })
	atEnd(func() {
		if !p.kept {
			p.target.Close()
		}
	})
	if err := m.exits.Add(p.target.Handle(), func() { close(p.exited) }); err != nil {
		return err
	}
	atEnd(func() { m.exits.Remove(p.target.Handle()) })
	p.poll = mempoll.NewEntry(found.PID, p.target.Owner(), &p.active, p.MarkDirty)
	atEnd(func() { m.poller.Stop(p.poll) })
	p.handler, p.sampler = m.client.NewHandler(p)
	atEnd(p.doPosted) // which learns from the handler that that is closed
	atEnd(p.probeAgain)
	atEnd(p.entry.Hide)
	atEnd(func() { p.handler.Close(p.shutdown) })
	p.own = process.NewOwnership(&m.originals, p)
	atEnd(p.own.GiveUp)
	atEnd(func() { _ = p.sampler.Close() }) // stopped; from here on no samples come
	return nil
}

// enter has the process let in, as one of its user.
func (p *Process) enter() error {
	before, err := p.manager.admission.enter(p, p.target.Owner())
	p.filtered = before == classExcluded // it was counted, if it was filtered then
	return err
}

// Identity returns which process it is.
func (p *Process) Identity() procscan.ProcessID { return p.id }

// Log is where to log what happens to the process. Texts are cut, and lines are dropped when there
// are too many about processes of the same user.
func (p *Process) Log() *zap.Logger { return p.log }

// Exited is closed when the process has ended. It may be called by any goroutine.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// IsAttached reports whether Handler.Attach has done its part. It is for the process's goroutine.
func (p *Process) IsAttached() bool { return p.attached }

// Target returns the process as it was probed. It is the goroutine's.
func (p *Process) Target() *process.Target { return p.target }

// KeepTarget leaves the target to the Handler, which calls this in its Close and must then close
// it.
func (p *Process) KeepTarget() *process.Target {
	p.kept = true
	return p.target
}

// IsSampled reports whether samples of the process are taken now. It may be called by any
// goroutine.
func (p *Process) IsSampled() bool { return p.sampler.IsRunning() }

// MarkActive has the process's memory read more often for a while. It may be called by any
// goroutine.
func (p *Process) MarkActive() { p.active.Store(true) }

// Active returns what MarkActive sets.
func (p *Process) Active() *atomic.Bool { return &p.active }

// Entry returns the process in the Manager's Table.
func (p *Process) Entry() *attach.Entry { return p.entry }

// Post has a function called on the process's goroutine. It returns false when too many wait for
// that, and may be called by any goroutine until Handler.Close returns.
func (p *Process) Post(do func()) bool {
	select {
	case p.posted <- do:
		return true
	default:
		return false
	}
}

// MarkDirty has the process probed at once. It may be called by any goroutine.
func (p *Process) MarkDirty() {
	p.changed.Store(true)
	p.notify()
}

// notify has the process take what was found mapped, and be probed, unless a retry is due at a time
// of its own and nothing new is mapped. It may be called by any goroutine.
func (p *Process) notify() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// run serves the process until it has ended, maps nothing to serve any more, has to give way to
// another, or serving ends.
func (p *Process) run(serving context.Context) {
	err := p.probe()
	for !process.IsGone(err) && !errors.Is(err, errShutdown) && !isEvicted(err) {
		var retry time.Duration
		p.manager.hands.do(func() { retry = p.nextRetry(err) }, p.worked)
		err = p.await(serving, after(retry))
	}
	if isEvicted(err) {
		p.giveWay(err)
	} else if !errors.Is(err, errShutdown) {
		p.manager.counters.Gone.Add(1)
		level := zap.InfoLevel
		if p.target.NeedsNothing() && len(p.Contexts()) == 0 {
			level = zap.DebugLevel // most processes of a host are of no interest
		}
		p.log.Log(level, "process gone")
	}
	p.end(serving, errors.Is(err, errShutdown))
}

// isEvicted reports whether the process has to give way to others.
func isEvicted(err error) bool { return errors.Is(err, errEvicted) || errors.Is(err, errPublishing) }

// giveWay ends what the process was served for.
func (p *Process) giveWay(why error) {
	if errors.Is(why, errPublishing) {
		p.manager.refuse(p.id, why)
	} else if p.attached {
		p.log.Info("process gives way to one of another user", reason("processes_evicted_"+EvictedShare.String()))
	}
	p.detach()
}

// await does what others ask for until it is time to probe the process again, or something
// happened. It returns how that went.
func (p *Process) await(serving context.Context, due <-chan time.Time) error {
	for {
		select {
		case do := <-p.posted:
			p.work(do)
		case <-p.sampler.Ready():
			var stale bool
			p.work(func() { stale = p.sampler.Serve() })
			switch {
			case stale && p.isTrusted():
				p.work(p.sampler.Probe)
			case stale:
				p.suspect = true
				return p.probe()
			}
		case <-p.dirty:
			p.takeMappings()
			if changed := p.changed.Swap(false); changed || due == nil {
				p.suspect = changed
				return p.probe()
			}
		case down := <-p.handler.Down():
			p.detach()
			return process.WithReason(process.ReasonSocketGone, down)
		case <-due:
			return p.probe()
		case <-p.exited:
			return procscan.ErrGone
		case <-p.evicted:
			return errEvicted
		case <-serving.Done():
			return errShutdown
		}
	}
}

// work has a function called during which the process may make the goroutine hang.
func (p *Process) work(do func()) {
	p.busySince.Store(p.manager.uptime())
	defer p.busySince.Store(0)
	p.manager.hands.do(do, p.worked)
}

// IsStuck reports whether the process makes its goroutine hang. It may be called by any goroutine.
func (p *Process) IsStuck() bool {
	since := p.busySince.Load()
	return since != 0 && p.manager.uptime()-since > int64(hangTimeout)
}

// takeMappings stores what the process maps now, if that was found meanwhile.
func (p *Process) takeMappings() {
	found, ok := p.mappings.take()
	switch {
	case !ok:
	case p.unmapped.IsZero() && p.target.Maps(found.Libraries, found.Contexts):
		p.verified = found.At
	default:
		p.changed.Store(true)
		p.target.SetMappings(found.Libraries, found.Contexts)
		p.sampler.Invalidate()
	}
}

// end is the end of the process, or the Manager's.
func (p *Process) end(serving context.Context, shutdown bool) {
	p.shutdown = shutdown
	if shutdown {
		p.drain() // where samples come from has ended before
	}
	p.stopSampling()
	if !shutdown && p.everRan && p.manager.options.Linger > 0 {
		p.linger(serving)
	}
	p.entry.End()
}

// probeAgain has a process probed that maps a library again, since it was hidden.
func (p *Process) probeAgain() {
	if _, ok := p.mappings.take(); ok {
		p.manager.requestProbe(p.id.PID)
	}
}

// doPosted calls the functions that wait.
func (p *Process) doPosted() {
	for {
		select {
		case do := <-p.posted:
			do()
		default:
			return
		}
	}
}

// drain does what waits.
func (p *Process) drain() {
	for {
		select {
		case do := <-p.posted:
			p.work(do)
		case <-p.sampler.Ready():
			p.work(func() { p.sampler.Serve() })
		default:
			return
		}
	}
}

// linger takes the samples that come after the end of the process.
func (p *Process) linger(serving context.Context) {
	over := time.NewTimer(p.manager.options.Linger)
	defer over.Stop()
	for {
		select {
		case do := <-p.posted:
			do()
		case <-p.sampler.Ready():
			p.sampler.Serve()
		case <-over.C:
			p.drain()
			return
		case <-serving.Done():
			p.drain()
			return
		}
	}
}
