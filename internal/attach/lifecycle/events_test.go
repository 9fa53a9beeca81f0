package lifecycle

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// All that happens to a process after the sweep is noticed without another one.
func TestLive(t *testing.T) {
	r := run(t, sweepOnce)
	r.sweeps(1)
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	p.Load()
	r.state(p, process.StateNoStorage, "")
	p.Publish()
	r.attached(p, 1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	p.Republish(filepath.Join(p.Dir, "second.socket"), "renamed")
	storage := r.attached(p, 2)
	assert.Check(t, storage.ServiceName == "renamed", "attached to %+v", storage)
	p.Unload()
	r.gone(p)
	p.Load()
	p.Publish()
	r.attached(p, 3)
	p.Exec("sleep", "600")
	r.gone(p)
	p.Kill()

	p = demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{FixedLayout: true}})
	r.attached(p, 1)
	p.Restart(true) // the same program again, in the same process, with all at the same place
	r.attached(p, 2)
	r.state(p, process.StateRegistered, "")

	if r.counters.EventsLost.Load() == 0 && r.counters.Sweeps.Load() != 1 {
		t.Errorf("%d sweeps, want one", r.counters.Sweeps.Load())
	}
	failed := r.counters.EventsFailed.Load()
	assert.Check(t, failed == 0, "live events failed %d times", failed)
}

// Without live events there are sweeps, which is logged once; when there are events again, that is
// logged too.
func TestLiveEventsRefused(t *testing.T) {
	var refuse atomic.Bool
	refuse.Store(true)
	r := runPrepared(t, func(m *Manager) {
		m.discovery.open = func() (*watch.EventWatcher, error) {
			if refuse.Load() {
				return nil, procscan.ErrDenied
			}
			return watch.OpenEventWatcher()
		}
	})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r.attached(p, 1)
	r.sweeps(3)
	n := r.logs.FilterMessage("no live events: new processes are found by sweeps alone").Len()
	assert.Check(t, n == 1, "logged %d times that there are no live events", n)
	refuse.Store(false)
	testenv.Poll(t, deadline, "live events", func() bool {
		return r.logs.FilterMessage("live events are available again").Len() == 1
	})
	before := r.counters.LiveProbes.Load()
	later := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r.attached(later, 1)
	testenv.Poll(t, deadline, "a probe of what a live event reported", func() bool {
		return r.counters.LiveProbes.Load() > before
	})
}

// A sweep finds what lost events do not report.
func TestLiveEventsLost(t *testing.T) {
	var watcher *watch.EventWatcher
	r := runPrepared(t, func(m *Manager) {
		m.discovery.blind = 50 * time.Millisecond
		m.discovery.open = func() (_ *watch.EventWatcher, err error) {
			watcher, err = watch.OpenEventWatcher()
			return watcher, err
		}
	}, sweepOnce)
	r.sweeps(1)
	before := r.counters.EventsLost.Load() // of others
	r.handleEvent(watch.Event{Kind: watch.EventLost, Lost: 7})
	lost := r.counters.EventsLost.Load() - before
	r.sweeps(2)
	assert.Check(t, lost == 7, "%d events lost", lost)
	watcher.Close() // as if the kernel had ended it
	testenv.Poll(t, deadline, "events again", func() bool { return r.counters.EventsFailed.Load() == 1 })
	r.sweeps(3)
	r.attached(demo.Start(t, demo.Options{Manual: true, Idle: 1}), 1)
}

// What a process maps is told while there are live events, and what it has mapped is outdated once some were lost.
func TestMappingsTold(t *testing.T) {
	var watcher *watch.EventWatcher
	var refuse atomic.Bool
	s := new(noSampling)
	r := runPrepared(t, func(m *Manager) {
		m.discovery.blind = 50 * time.Millisecond
		m.discovery.open = func() (_ *watch.EventWatcher, err error) {
			if refuse.Load() {
				return nil, procscan.ErrDenied
			}
			watcher, err = watch.OpenEventWatcher()
			return watcher, err
		}
	}, sweepOnce, func(o *Options) { o.Sampling = s })
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r.attached(p, 1)
	outdated := &r.handler(p).outdated
	assert.Check(t, s.told.Load(), "not told")
	for _, kind := range []watch.EventKind{watch.EventMapping, watch.EventFile, watch.EventLibrary} {
		invalidated := r.handler(p).invalidated.Load()
		r.handleEvent(watch.Event{Kind: kind, PID: p.PID})
		assert.Check(t, r.handler(p).invalidated.Load() > invalidated, "not told of kind %v", kind)
	}
	before := outdated.Load()
	r.handleEvent(watch.Event{Kind: watch.EventLost, Lost: 7})
	testenv.Poll(t, deadline, "it to be outdated", func() bool { return outdated.Load() > before })
	refuse.Store(true)
	watcher.Close()
	testenv.Poll(t, deadline, "the end of events", func() bool { return !s.told.Load() })
	before = outdated.Load()
	refuse.Store(false)
	testenv.Poll(t, deadline, "events again", func() bool { return s.told.Load() && outdated.Load() > before })
}

// What happens to a known process while there are no events is found by the sweep when there are
// again.
func TestLiveEventsAgain(t *testing.T) {
	var watcher *watch.EventWatcher
	var meanwhile func()
	r := runPrepared(t, func(m *Manager) {
		m.discovery.blind = 50 * time.Millisecond
		m.discovery.open = func() (_ *watch.EventWatcher, err error) {
			if meanwhile != nil {
				meanwhile()
			}
			watcher, err = watch.OpenEventWatcher()
			return watcher, err
		}
	}, sweepOnce)
	r.sweeps(1)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r.attached(p, 1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	var swept atomic.Uint64 // sweeps, with that which begins when there are events again
	meanwhile = func() {
		p.LoadAgain()
		swept.Store(r.counters.Sweeps.Load() + 1)
	}
	watcher.Close()
	testenv.Poll(t, deadline, "events again", func() bool { return swept.Load() > 0 })
	r.sweeps(swept.Load())
	p.Publish() // by the library that was loaded meanwhile
	r.attached(p, 2)
}

// Of two probes of a process, the one that began later found what is newer, whichever is slower.
func TestOldMappings(t *testing.T) {
	r := run(t, sweepOnce)
	r.sweeps(1)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r.attached(p, 1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	old, err := r.discovery.scanner.Process(p.PID)
	assert.NilError(t, err)
	probes := r.counters.LiveProbes.Load()
	p.LoadAgain()
	testenv.Poll(t, deadline, "a probe", func() bool { return r.counters.LiveProbes.Load() > probes })
	r.process(p.PID).mappings.put(old)
	r.process(p.PID).notify()
	p.Publish()
	r.attached(p, 2)
}

// A manager for one process takes no other, whatever the events report.
func TestOnlyProcess(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	p.Load()
	r := run(t, sweepOnce, func(o *Options) { o.PID = p.PID })
	r.sweeps(1)
	other := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Publish()
	r.attached(p, 1)
	r.requestFullSweep()
	r.sweeps(2)
	assert.Check(t, r.handler(other) == nil, "another process was taken")
	err := r.scan(func(pid int) bool { return pid == p.PID },
		func(procscan.Found) { t.Error("it was read, though known") })
	assert.Check(t, err)
}
