package agent

import (
	"context"

	"go.uber.org/zap"

	"correlator/procscan/watch"
)

// liveEvents is what the kernel tells of processes at the moment when it happens. A nil one tells nothing.
type liveEvents struct {
	watcher *watch.EventWatcher
	ended   chan error // has why it told no more, once
}

// listen begins to pass on live events. It returns nil when the kernel, or our rights, do not allow it.
func (a *Agent) listen(serving context.Context) *liveEvents {
	watcher, err := a.discovery.open()
	if err != nil {
		a.tellDeaf(err)
		return nil
	}
	a.discovery.live.Store(true)
	a.discovery.lost.Store(true) // what happened before
	live := &liveEvents{watcher: watcher, ended: make(chan error, 1)}
	go func() {
		live.ended <- watcher.Run(func(e watch.Event) { a.happened(serving, e) })
	}()
	return live
}

// tellDeaf tells once that there are no live events.
func (a *Agent) tellDeaf(err error) {
	a.counters.EventsFailed.Add(1)
	a.discovery.live.Store(false)
	if !a.discovery.deaf {
		a.discovery.deaf = true
		a.log.Warn("no live events: new processes are found by sweeps alone", because("events_failed"),
			zap.Duration("every", a.sweepInterval(nil)), zap.Error(err))
	}
}

// failed has an error when there will be no more events.
func (l *liveEvents) failed() <-chan error {
	if l == nil {
		return nil
	}
	return l.ended
}

// tellHearing tells that there are live events again, if it was told that there were none.
func (a *Agent) tellHearing() {
	if a.discovery.deaf {
		a.discovery.deaf = false
		a.log.Info("live events are there again")
	}
}

// giveUp ends live events that do not tell of all CPUs any more. The next sweep tries anew.
func (a *Agent) giveUp(live *liveEvents, err error) *liveEvents {
	a.tellDeaf(err)
	live.close()
	return nil
}

func (l *liveEvents) close() error {
	if l == nil {
		return nil
	}
	return l.watcher.Close()
}

// happened takes an event to where it belongs. It must not block: the kernel goes on to write.
func (a *Agent) happened(serving context.Context, e watch.Event) {
	if e.Kind == watch.EventLost {
		if a.counters.EventsLost.Add(e.Lost) == e.Lost && e.Lost > 0 {
			a.log.Warn("live events were lost, a sweep makes up for them; counted from here on", because("events_lost"),
				zap.Uint64("events", e.Lost))
		}
		a.unseen()
		return
	}
	p := a.process(e.PID)
	switch e.Kind {
	case watch.EventLibrary:
		a.lookAt(serving, e.PID)
	case watch.EventExec:
		if p != nil {
			p.executed.Store(true)
			p.Stir()
		}
	case watch.EventMapping:
		if p != nil {
			p.remapped()
		}
	}
}
