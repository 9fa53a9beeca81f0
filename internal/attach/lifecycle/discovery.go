package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/internal/attach/process"
	"correlator/internal/host/procdir"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// This file finds processes by sweeps; see events.go for the live events of the kernel.

const (
	// blindInterval is the longest time between two sweeps while there are no live events.
	blindInterval = 5 * time.Second

	// A sweep that is requested because events were lost comes not before minSweepPause after the
	// last, nor before sweepShare times as long as that took: then sweeping takes a tenth of a CPU,
	// however many are lost.
	minSweepPause = time.Second
	sweepShare    = 10

	// Every fullSweep'th sweep probes all processes, while live events report the changes of those
	// that are known already.
	fullSweep = 10

	// lookInterval is how often, where processes of any kind are taken, it is looked for those that were not there
	// before: events do not tell of a fork.
	lookInterval = time.Second

	// maintainInterval is how often hanging processes are logged.
	maintainInterval = time.Second

	// idleWorker is when the last worker for access ends that is not used: where nothing begins, it is not for long.
	// To start one takes some 5 ms.
	idleWorker = 10 * time.Second

	// refreshInterval is how often live events follow CPUs that come and go. That interrupts every
	// CPU, so it is a good part of what an agent costs that does little else. What happens on a new
	// CPU before is found by the sweep that the refresh requests.
	refreshInterval = 5 * time.Second

	// maxDenied is how many processes are remembered that were logged as denied.
	maxDenied = 4096
)

// discovery is the state of finding processes.
type discovery struct {
	scanner  *procscan.Scanner
	open     func() (*watch.EventWatcher, error)
	sweeps   chan struct{} // has a token when a sweep is wanted early
	probes   *probeQueue
	contexts *contextLooks
	taking   sync.Mutex    // one process at a time
	live     atomic.Bool   // there are live events
	lost     atomic.Bool   // some are missing since the last full sweep
	round    heartbeat     // of the loop
	blind    time.Duration // blindInterval
	idle     time.Duration // idleWorker

	// Owned by discover.
	eventsDown bool // it was logged that there are no live events
	turn       int  // of the next sweep
	swept      time.Time
	newest     string           // see procdir.Newest, before the last sweep
	listed     map[int]struct{} // pids, by the last sweep or look; nil: processes of any kind are not taken
	denied     map[procscan.ProcessID]struct{}
	memory     releaser
}

func (m *Manager) initDiscovery() (err error) {
	d := &m.discovery
	if d.scanner, err = procscan.NewScanner(m.options.ProcRoot); err != nil {
		return err
	}
	d.scanner.All = m.options.Filter.All
	d.open = watch.OpenEventWatcher
	d.sweeps, d.probes = make(chan struct{}, 1), newProbeQueue()
	d.contexts = newContextLooks(m.lookAtContext, m.requestProbe, func(pid int) worker.User {
		return process.OwnerOf(m.options.ProcRoot, pid)
	}, m.skipLook)
	d.blind, d.idle = blindInterval, idleWorker
	d.round.began, d.denied = time.Now(), make(map[procscan.ProcessID]struct{})
	return nil
}

// lookAtContext looks for a context in a process that has executed a program, or mapped a file, not long ago. Where
// processes of any kind are taken, it has one probed that runs still: of a thousand that end at once, none costs more.
func (m *Manager) lookAtContext(pid int) (found bool, err error) {
	m.counters.ContextLooks.Add(1)
	found, err = m.discovery.scanner.LookForContext(pid)
	if m.options.Filter.All && m.process(pid) == nil && !errors.Is(err, procscan.ErrGone) {
		m.requestProbe(pid)
	}
	return found, err
}

// discover finds processes until ctx ends.
func (m *Manager) discover(ctx context.Context) {
	m.log.Info("looking for processes", zap.Stringer("mappings_from", m.discovery.scanner.Source()))
	var live *liveEvents
	var looking sync.WaitGroup
	looking.Go(func() { m.discovery.contexts.run(ctx) })
	defer func() {
		live.close()
		looking.Wait()
		m.discovery.probes.close()
	}()
	maintain := make(chan struct{}, 1)
	ticking := m.tick(maintain)
	defer ticking()
	next := time.NewTimer(0)
	defer next.Stop()
	var ended, refreshed time.Time
	var pause time.Duration
	for {
		m.discovery.round.beat()
		select {
		case <-next.C:
			if live == nil { // first the events, then the sweep: nothing happens in between
				live = m.listen()
			}
			began := time.Now()
			m.sweep(ctx)
			ended = time.Now()
			m.counters.SweepNs.Add(uint64(ended.Sub(began)))
			pause = max(minSweepPause, sweepShare*ended.Sub(began))
			next.Reset(m.sweepInterval(live != nil))
		case <-m.discovery.sweeps:
			next.Reset(max(time.Until(ended.Add(pause)), 0))
		case err := <-live.failed():
			live = m.stopEvents(live, err)
			next.Reset(m.sweepInterval(false)) // not at once: it may fail again and again
		case <-maintain:
			m.discovery.memory.check(m.reportStuck())
			m.logBudget.report(m.log, time.Now())
			m.options.Access.EndIdle(m.discovery.idle)
			if live == nil || time.Since(refreshed) < refreshInterval {
				continue
			}
			refreshed = time.Now()
			if err := live.watcher.Refresh(); err != nil {
				live = m.stopEvents(live, err)
				next.Reset(m.sweepInterval(false))
				continue
			}
			m.logEventsRestored()
		case <-ctx.Done():
			return
		}
	}
}

// tick puts a token into a channel every maintainInterval until the returned function is called.
func (m *Manager) tick(token chan<- struct{}) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m.ticker.Wait() == nil {
			select {
			case token <- struct{}{}:
			default:
			}
		}
	}()
	return func() {
		m.ticker.Stop()
		<-ended
	}
}

// sweepInterval is how long to wait for the next sweep.
func (m *Manager) sweepInterval(live bool) time.Duration {
	interval := m.options.SweepInterval
	if m.options.Filter.All {
		interval = min(interval, lookInterval)
	}
	if !live {
		interval = min(interval, m.discovery.blind)
	}
	return interval
}

// requestFullSweep requests a sweep of all processes: something has happened that was not probed.
// It may be called by any goroutine.
func (m *Manager) requestFullSweep() {
	m.discovery.lost.Store(true)
	select {
	case m.discovery.sweeps <- struct{}{}:
	default:
	}
}

// sweep probes all processes once: those that are new get their goroutine, the others are given
// what they map now, and probe themselves. While live events report everything, the mappings of
// known processes are read only now and then.
//
// A sweep before it is time for one is a look: at the processes that were not listed by the last one.
func (m *Manager) sweep(ctx context.Context) {
	d := &m.discovery
	lost := d.lost.Swap(false)
	if lost { // what was mapped meanwhile was not told
		m.processes.Each(func(p *Process) { p.sampler.Outdate() })
	}
	lost = lost || !d.live.Load()
	look := m.options.Filter.All && !lost && time.Since(d.swept) < m.options.SweepInterval
	full := lost || !look && d.turn%fullSweep == 0
	newest := procdir.Newest(m.options.ProcRoot)
	if look && newest == d.newest && newest != "" {
		m.counters.Sweeps.Add(1)
		return // none has begun
	}
	d.newest = newest
	if !look {
		d.turn++
		d.swept = time.Now()
	}
	before := d.listed
	if m.options.Filter.All {
		d.listed = make(map[int]struct{}, len(before))
	}
	var known []*Process
	skip := func(pid int) bool {
		d.round.beat() // of thousands of processes, or some that hang, it may take long
		if ctx.Err() != nil {
			return true // the sweep is to end
		}
		if d.listed != nil {
			d.listed[pid] = struct{}{}
		}
		if full {
			return false
		}
		if look {
			_, listed := before[pid]
			return listed || m.process(pid) != nil || m.admission.skips(pid)
		}
		if p := m.process(pid); p != nil {
			m.admission.saw(pid)
			known = append(known, p)
			return true
		}
		return m.admission.skips(pid)
	}
	found := func(found procscan.Found) {
		if ctx.Err() != nil {
			return
		}
		if p := m.take(found); p != nil {
			m.admission.saw(found.PID)
			known = append(known, p)
		}
	}
	err := m.scan(skip, found)
	for _, p := range known { // now, together: to wake them one by one takes longer than what they have to do
		p.notify()
	}
	m.counters.Sweeps.Add(1)
	if err != nil {
		m.counters.SweepsFailed.Add(1)
		d.lost.Store(true) // known processes may be among those that were not probed
	} else if !look {
		m.admission.swept()
	}
	m.client.Swept(err)
}

// scan calls found with the processes that map the library and are not skipped; with Options.PID
// with that one at most.
func (m *Manager) scan(skip func(pid int) bool, found func(procscan.Found)) error {
	if m.options.PID != 0 {
		if skip(m.options.PID) {
			return nil
		}
		only, err := m.discovery.scanner.Process(m.options.PID)
		if err == nil {
			found(only)
		}
		return err
	}
	report, err := m.discovery.scanner.Sweep(skip, found)
	if len(report.Unreadable) > 0 {
		m.discovery.lost.Store(true)
	}
	for _, denied := range report.Unreadable {
		if _, logged := m.discovery.denied[denied.ProcessID]; logged { // a sweep that ended early forgets them
			continue
		}
		if len(m.discovery.denied) == maxDenied {
			clear(m.discovery.denied)
		}
		m.discovery.denied[denied.ProcessID] = struct{}{}
		m.counters.ProcessesDenied.Add(1)
		m.logBudget.logger(m.options.ProcessLog, process.UnknownUser).Warn("process cannot be read",
			reason("processes_denied"), zap.Int("pid", denied.PID), zap.Error(denied.Err))
	}
	return err
}

// requestProbe has one process probed that may be new. It does not block.
func (m *Manager) requestProbe(pid int) {
	if !m.discovery.probes.add(pid, m.probe) {
		m.requestFullSweep()
	}
}

func (m *Manager) probe(pid int) {
	m.counters.LiveProbes.Add(1)
	found, err := m.discovery.scanner.Process(pid)
	switch {
	case err == nil:
		if p := m.take(found); p != nil {
			p.notify()
		}
	case errors.Is(err, procscan.ErrNotFound), errors.Is(err, procscan.ErrGone):
	default: // sweeps try again, and log it
		m.requestFullSweep()
	}
}

// take begins the life of a process. One that is known already is given what it maps, and returned,
// to be notified.
func (m *Manager) take(found procscan.Found) *Process {
	m.discovery.taking.Lock()
	defer m.discovery.taking.Unlock()
	if known := m.process(found.PID); known != nil && known.id == found.ProcessID {
		known.reportTruncated(found)
		known.mappings.put(found)
		if m.process(found.PID) == known {
			return known
		} // else it had mapped none just before, and has not noticed these
	}
	if m.serving.Err() != nil {
		return nil
	}
	if before, admitted := m.admission.found(found.ProcessID); !admitted {
		switch before {
		case classPublisher:
			m.refuse(found.ProcessID, errPublishing)
		case classCandidate:
			m.refuse(found.ProcessID, errUnprobed)
		}
		return nil
	}
	err := m.client.Admit(found.ProcessID)
	var p *Process
	if err == nil {
		p, err = m.newProcess(found)
	}
	if errors.Is(err, procscan.ErrGone) {
		return nil
	}
	if err != nil {
		m.refuse(found.ProcessID, err)
		return nil
	}
	p.reportTruncated(found)
	p.entry.Show() // one with the same pid has ended
	go p.run(m.serving)
	return nil
}

// refuse counts that a process is not served for a reason of our own.
func (m *Manager) refuse(id procscan.ProcessID, err error) {
	reason := RefusedError
	switch {
	case errors.Is(err, errPublishing):
		reason = RefusedPublishing
	case errors.Is(err, errUnprobed):
		reason = RefusedUnprobed
	}
	m.counters.Refused[reason].Add(1)
	m.client.Refused(id, reason, err)
}

// reportTruncated counts a process, and logs it, that maps more libraries or process contexts than are used: if the
// agent in it uses one of the others, it is not found.
func (p *Process) reportTruncated(found procscan.Found) {
	if found.Truncated && !p.truncated {
		p.truncated = true
		p.manager.counters.Truncated.Add(1)
		p.log.Warn("process maps too many libraries or contexts: only the first are used",
			reason("processes_truncated"), zap.Int("libraries", len(found.Libraries)),
			zap.Int("contexts", len(found.Contexts)))
	}
}

// reportStuck counts the processes that make their goroutines hang, and logs each once. It returns
// how many processes there are.
func (m *Manager) reportStuck() (processes int) {
	var stuck []*Process
	m.processes.Each(func(p *Process) {
		processes++
		if p.IsStuck() && !p.stuckLogged {
			stuck = append(stuck, p)
		}
	})
	for _, p := range stuck {
		p.stuckLogged = true
		p.countError(process.ReasonTimeout, fmt.Sprintf("looking at it takes more than %v", hangTimeout))
		p.log.Warn(troubleMessage, zap.Stringer("reason", process.ReasonTimeout))
	}
	return processes
}

// reason is the field of a log line that names the counter that counts what it reports.
func reason(counter string) zap.Field { return zap.String("reason", counter) }
