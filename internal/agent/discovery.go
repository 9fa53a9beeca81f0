package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/internal/process"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// This file is how processes are found: at once, by live events of the kernel, and by sweeps.

const (
	// blindInterval is the longest time between two sweeps while there are no live events.
	blindInterval = 5 * time.Second

	// A sweep that lost events ask for comes not before minSweepPause after the last, nor before ten
	// times as long as that took: then sweeping takes a tenth of a CPU, however many are lost.
	minSweepPause = time.Second
	sweepShare    = 10

	// fullSweep is how many sweeps make one that looks at all processes, while live events tell of those that
	// are known already.
	fullSweep = 10

	// maintainInterval is how often processes that hang are told of, and CPUs that come and go followed.
	maintainInterval = time.Second
)

// discovery is what finding processes needs.
type discovery struct {
	scanner   *procscan.Scanner
	open      func() (*watch.EventWatcher, error)
	sweeps    chan struct{} // has a token when a sweep is wanted early
	looks     *looks
	admission sync.Mutex  // of one process at a time
	live      atomic.Bool // there are live events
	lost      atomic.Bool // some are missing since the last full sweep
	round     pulse       // of the loop

	// Owned by discover.
	deaf bool // it was told that there are no live events
	turn int  // of the next sweep
}

func newDiscovery(procRoot string) (*discovery, error) {
	scanner, err := procscan.NewScanner(procRoot)
	if err != nil {
		return nil, err
	}
	return &discovery{
		scanner: scanner, open: watch.OpenEventWatcher,
		sweeps: make(chan struct{}, 1), looks: newLooks(), round: newPulse(),
	}, nil
}

// discover finds processes until ctx ends. Those that it finds are served until serving ends.
func (a *Agent) discover(ctx, serving context.Context) {
	a.log.Info("looking for processes", zap.Stringer("mappings_from", a.discovery.scanner.Source()))
	var live *liveEvents
	defer func() {
		live.close()
		a.discovery.looks.close()
	}()
	maintain := time.NewTicker(maintainInterval)
	defer maintain.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	var ended time.Time
	var pause time.Duration
	for {
		a.discovery.round.beat()
		select {
		case <-next.C:
			if live == nil { // first the events, then the sweep: nothing happens in between
				live = a.listen(serving)
			}
			began := time.Now()
			a.sweep(serving)
			ended = time.Now()
			a.counters.SweepNs.Add(uint64(ended.Sub(began)))
			pause = max(minSweepPause, sweepShare*ended.Sub(began))
			next.Reset(a.sweepInterval(live))
		case <-a.discovery.sweeps:
			next.Reset(max(time.Until(ended.Add(pause)), 0))
		case err := <-live.failed():
			live = a.giveUp(live, err)
			next.Reset(a.sweepInterval(nil)) // not at once: it may fail again and again
		case <-maintain.C:
			a.tellStuck()
			if live == nil {
				continue
			}
			if err := live.watcher.Refresh(); err != nil {
				live = a.giveUp(live, err)
				next.Reset(a.sweepInterval(nil))
				continue
			}
			a.tellHearing()
		case <-ctx.Done():
			return
		}
	}
}

// sweepInterval is how long to wait for the next sweep.
func (a *Agent) sweepInterval(live *liveEvents) time.Duration {
	if live == nil {
		return min(a.config.ScanInterval, blindInterval)
	}
	return a.config.ScanInterval
}

// unseen asks for a sweep of all processes: something has happened that nobody looked at. It may be called
// by any goroutine.
func (a *Agent) unseen() {
	a.discovery.lost.Store(true)
	a.sweepSoon()
}

// sweepSoon asks for a sweep. It may be called by any goroutine.
func (a *Agent) sweepSoon() {
	select {
	case a.discovery.sweeps <- struct{}{}:
	default:
	}
}

// sweep looks at all processes once: those that are new get their goroutine, the others hear what they map
// now, and look at themselves.
//
// As long as live events tell all, what known processes map is looked at only now and then.
func (a *Agent) sweep(serving context.Context) {
	full := a.discovery.turn%fullSweep == 0
	a.discovery.turn++
	if a.discovery.lost.Swap(false) || !a.discovery.live.Load() {
		full = true
	}
	var known []*servedProcess
	skip := func(pid int) bool {
		a.discovery.round.beat() // of thousands of processes, or some that hang, it may take long
		if full {
			return false
		}
		p := a.process(pid)
		if p != nil {
			known = append(known, p)
		}
		return p != nil
	}
	report, err := a.discovery.scanner.Sweep(skip, func(found procscan.Found) {
		if p := a.found(serving, found); p != nil {
			known = append(known, p)
		}
	})
	for _, p := range known { // now, together: to wake them one by one takes longer than what they have to do
		p.wake()
	}
	a.counters.Sweeps.Add(1)
	if err != nil {
		a.counters.SweepsFailed.Add(1)
		a.log.Error("sweep ended early", because("sweeps_failed"), zap.Error(err))
	}
	if err != nil || len(report.Unreadable) > 0 { // known processes among them were not looked at
		a.discovery.lost.Store(true)
	}
	for _, process := range report.Unreadable {
		a.counters.ProcessesDenied.Add(1)
		a.log.Warn("process cannot be looked into", because("processes_denied"), zap.Int("pid", process.PID), zap.Error(process.Err))
	}
}

// lookAt has one process looked at that may be new. It does not block.
func (a *Agent) lookAt(serving context.Context, pid int) {
	if !a.discovery.looks.add(pid, func(pid int) { a.look(serving, pid) }) {
		a.unseen()
	}
}

func (a *Agent) look(serving context.Context, pid int) {
	a.counters.LiveLooks.Add(1)
	found, err := a.discovery.scanner.Process(pid)
	switch {
	case err == nil:
		if p := a.found(serving, found); p != nil {
			p.wake()
		}
	case errors.Is(err, procscan.ErrNotFound), errors.Is(err, procscan.ErrGone):
	default: // it is told of, and tried again, by sweeps
		a.unseen()
	}
}

// found takes up a process. One that is known already it tells what it maps, and returns it, to be woken.
func (a *Agent) found(serving context.Context, found procscan.Found) *servedProcess {
	a.discovery.admission.Lock()
	defer a.discovery.admission.Unlock()
	if known := a.process(found.PID); known != nil && known.id == found.ProcessID {
		a.tellTruncated(known, found)
		known.mappings.put(found)
		if a.process(found.PID) == known {
			return known
		} // else it had mapped none just before, and has not heard of these
	}
	if serving.Err() != nil {
		return nil
	}
	a.mu.RLock()
	processes := len(a.processes)
	a.mu.RUnlock()
	if processes >= a.config.MaxProcesses {
		a.refuseProcess(found, fmt.Errorf("serving %d processes already (--max-processes)", processes))
		return nil
	}
	p, err := a.newProcess(found)
	if errors.Is(err, procscan.ErrGone) {
		return nil
	}
	if err != nil {
		a.refuseProcess(found, err)
		return nil
	}
	a.tellTruncated(p, found)
	a.mu.Lock()
	a.processes[found.PID] = p // one with the same pid has ended, and forgets itself
	a.mu.Unlock()
	a.running.Add(1)
	go func() {
		defer a.running.Done()
		p.run(serving)
	}()
	return nil
}

// refuseProcess tells of a process that cannot be served for a reason of our own. It is found again by
// the next sweep; the first time is logged, all are counted.
func (a *Agent) refuseProcess(found procscan.Found, err error) {
	if a.counters.ProcessesRefused.Add(1) == 1 {
		a.log.Error("processes are not served; counted from here on", because("processes_refused"),
			zap.Int("pid", found.PID), zap.Error(err))
	}
}

// tellTruncated counts a process, and logs it, that maps more libraries than are looked at: if the
// agent in it uses one of the others, it is not found.
func (a *Agent) tellTruncated(p *servedProcess, found procscan.Found) {
	if found.Truncated && !p.truncated {
		p.truncated = true
		a.counters.Truncated.Add(1)
		p.log.Warn("process maps too many libraries: only the first are looked at", because("processes_truncated"),
			zap.Int("libraries", len(found.Libraries)))
	}
}

// tellStuck counts the processes that make their goroutines hang, and logs each once.
func (a *Agent) tellStuck() {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, p := range a.processes {
		if p.stuck() && !p.stuckTold {
			p.stuckTold = true
			p.takeDown(process.ReasonTimeout, "looking at it takes more than "+hangTimeout.String())
			p.log.Warn(troubleMessage, zap.Stringer("reason", process.ReasonTimeout))
		}
	}
}
