package lifecycle

import (
	"go.uber.org/zap"

	"correlator/procscan/watch"
)

// liveEvents are the kernel's records of exec, mmap and exit, as they happen. A nil one has none.
type liveEvents struct {
	watcher *watch.EventWatcher
	ended   chan error // has why there are no more, once
}

// listen begins to handle live events. It returns nil when the kernel, or our rights, do not allow
// it.
func (m *Manager) listen() *liveEvents {
	watcher, err := m.discovery.open()
	if err != nil {
		m.setEventsDown(err)
		return nil
	}
	m.setLive(true)
	m.discovery.lost.Store(true) // what happened before
	live := &liveEvents{watcher: watcher, ended: make(chan error, 1)}
	go func() { live.ended <- watcher.Run(m.handleEvent) }()
	return live
}

// setEventsDown counts that there are no live events, and logs it once.
func (m *Manager) setEventsDown(err error) {
	m.counters.EventsFailed.Add(1)
	m.setLive(false)
	if !m.discovery.eventsDown {
		m.discovery.eventsDown = true
		m.log.Warn("no live events: new processes are found by sweeps alone", reason("events_failed"),
			zap.Duration("every", m.sweepInterval(false)), zap.Error(err))
	}
}

// setLive notes whether there are live events.
func (m *Manager) setLive(live bool) {
	m.discovery.live.Store(live)
	if m.options.Sampling != nil {
		m.options.Sampling.SetTold(live)
	}
}

// failed has an error when there will be no more events.
func (l *liveEvents) failed() <-chan error {
	if l == nil {
		return nil
	}
	return l.ended
}

// logEventsRestored logs that there are live events again, if it was logged that there were none.
func (m *Manager) logEventsRestored() {
	if m.discovery.eventsDown {
		m.discovery.eventsDown = false
		m.log.Info("live events are available again")
	}
}

// stopEvents ends live events that do not cover all CPUs any more. The next sweep opens them again.
func (m *Manager) stopEvents(live *liveEvents, err error) *liveEvents {
	m.setEventsDown(err)
	live.close()
	return nil
}

func (l *liveEvents) close() error {
	if l == nil {
		return nil
	}
	return l.watcher.Close()
}

// handleEvent passes an event on. It must not block: the kernel goes on to write.
func (m *Manager) handleEvent(e watch.Event) {
	if e.Kind == watch.EventLost {
		if m.counters.EventsLost.Add(e.Lost) == e.Lost && e.Lost > 0 {
			m.log.Warn("live events were lost, a sweep makes up for them; counted from here on", reason("events_lost"),
				zap.Uint64("events", e.Lost))
		}
		m.requestFullSweep()
		return
	}
	if m.options.PID != 0 && e.PID != m.options.PID {
		return
	}
	p := m.process(e.PID)
	if p != nil && e.Kind != watch.EventExec { // whatever it has mapped, which a probe may not tell from what was there
		p.sampler.Invalidate()
	}
	switch e.Kind {
	case watch.EventLibrary:
		m.requestProbe(e.PID)
		m.lookForContext(e.PID)
	case watch.EventExec:
		m.lookForContext(e.PID)
		m.admission.replaced(e.PID)
		if p != nil {
			p.executed.Store(true)
			p.MarkDirty()
		}
	case watch.EventFile:
		m.lookForContext(e.PID)
	}
}

// lookForContext has a process looked at for a process context, now and then for a while. It does not
// block.
func (m *Manager) lookForContext(pid int) {
	if !m.discovery.contexts.add(pid) {
		m.skipLook(pid)
	}
}

// skipLook counts a process that there is no place to look at. It does not block.
func (m *Manager) skipLook(pid int) {
	m.counters.ContextLooksSkipped.Add(1)
	if m.options.Filter.All { // it is probed: it may be of another owner than those that are looked at
		m.requestProbe(pid)
	}
}
