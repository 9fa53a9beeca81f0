package agent

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"correlator/internal/demo"
	"correlator/internal/process"
	"correlator/internal/testenv"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// sweepOnce has the agent sweep when it starts, and not again in the time of a test.
func sweepOnce(c *Config) { c.ScanInterval = 50 * deadline }

// sweeps waits until there were so many.
func (r *running) sweeps(n uint64) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "a sweep", func() bool { return r.Counters().Sweeps.Load() >= n })
}

// deaf has the agent get no live events.
func deaf(a *Agent) {
	a.discovery.open = func() (*watch.EventWatcher, error) { return nil, procscan.ErrDenied }
}

// All that happens to a process after the sweep is noticed without another one.
func TestLive(t *testing.T) {
	r := run(t, sweepOnce)
	r.sweeps(1)
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	p.Load()
	r.state(p, process.StateNoStorage, "")
	p.Publish()
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	p.Republish(filepath.Join(p.Dir, "second.socket"), "renamed")
	p.Registration(2)
	r.served(p, 1, [16]byte{2})
	p.Unload()
	r.gone(p)
	p.Load()
	p.Publish()
	p.Registration(3)
	r.served(p, 1, [16]byte{3})
	p.Exec("sleep", "600")
	r.gone(p)
	p.Kill()

	p = demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{FixedLayout: true}})
	p.Registration(1)
	r.served(p, 1, [16]byte{4})
	p.Restart(true) // the same program again, in the same process, with all at the same place
	p.Registration(1)
	r.served(p, 1, [16]byte{5})
	clean(t, p.Quit())

	if c := r.Counters(); c.EventsLost.Load() == 0 && c.Sweeps.Load() != 1 {
		t.Errorf("%d sweeps, want one", c.Sweeps.Load())
	}
	if failed := r.Counters().EventsFailed.Load(); failed != 0 {
		t.Errorf("live events failed %d times", failed)
	}
}

// Without live events there are sweeps, which is told once; when there are events again, that is told too.
func TestLiveEventsRefused(t *testing.T) {
	var refuse atomic.Bool
	refuse.Store(true)
	r := runPrepared(t, func(a *Agent) {
		a.discovery.open = func() (*watch.EventWatcher, error) {
			if refuse.Load() {
				return nil, procscan.ErrDenied
			}
			return watch.OpenEventWatcher()
		}
	})
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	r.sweeps(3)
	if n := r.logs.FilterMessage("no live events: new processes are found by sweeps alone").Len(); n != 1 {
		t.Errorf("told %d times that there are no live events", n)
	}
	refuse.Store(false)
	testenv.Poll(t, deadline, "live events", func() bool {
		return r.logs.FilterMessage("live events are there again").Len() == 1
	})
	before := r.Counters().LiveLooks.Load()
	later := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	later.Registration(1)
	if r.Counters().LiveLooks.Load() == before {
		t.Error("no look at what a live event told of")
	}
}

// A sweep finds what lost events do not tell.
func TestLiveEventsLost(t *testing.T) {
	var watcher *watch.EventWatcher
	r := runPrepared(t, func(a *Agent) {
		a.discovery.open = func() (_ *watch.EventWatcher, err error) {
			watcher, err = watch.OpenEventWatcher()
			return watcher, err
		}
	}, sweepOnce)
	r.sweeps(1)
	r.happened(t.Context(), watch.Event{Kind: watch.EventLost, Lost: 7})
	r.sweeps(2)
	if lost := r.Counters().EventsLost.Load(); lost != 7 {
		t.Errorf("%d events lost", lost)
	}
	watcher.Close() // as if the kernel had ended it
	testenv.Poll(t, deadline, "events again", func() bool { return r.Counters().EventsFailed.Load() == 1 })
	r.sweeps(3)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
}

// What happens to a known process while nobody listens is found by the sweep when somebody does again.
func TestLiveEventsAgain(t *testing.T) {
	var watcher *watch.EventWatcher
	var meanwhile func()
	r := runPrepared(t, func(a *Agent) {
		a.discovery.open = func() (_ *watch.EventWatcher, err error) {
			if meanwhile != nil {
				meanwhile()
			}
			watcher, err = watch.OpenEventWatcher()
			return watcher, err
		}
	}, sweepOnce)
	r.sweeps(1)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	meanwhile = func() { p.LoadAgain() }
	watcher.Close()
	r.sweeps(2)
	p.Publish() // by the library that was loaded meanwhile
	p.Registration(2)
}

// Of two looks at a process, what the one that began later says is the newer word, whoever is slower.
func TestOldWord(t *testing.T) {
	r := run(t, sweepOnce)
	r.sweeps(1)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	old, err := r.discovery.scanner.Process(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	looks := r.Counters().LiveLooks.Load()
	p.LoadAgain()
	testenv.Poll(t, deadline, "a look", func() bool { return r.Counters().LiveLooks.Load() > looks })
	r.process(p.PID).mappings.put(old)
	r.process(p.PID).wake()
	p.Publish()
	p.Registration(2)
}

// More processes than may be served: those beyond are told of, and served when there is room.
func TestMaxProcesses(t *testing.T) {
	first := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, func(c *Config) { c.MaxProcesses = 1 }, atRate(20))
	first.Registration(1)
	second := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	testenv.Poll(t, deadline, "a process to be refused", func() bool { return r.Counters().ProcessesRefused.Load() > 0 })
	if n := r.logs.FilterMessage("processes are not served; counted from here on").Len(); n != 1 {
		t.Errorf("told %d times", n)
	}
	first.Kill()
	second.Registration(1)
	r.served(second, 1, [16]byte{1})
}

// A process that forks has a child with a copy of all that it published: that is no agent of its own.
func TestSharedSocket(t *testing.T) {
	r := run(t, atRate(997))
	p := demo.Start(t, demo.Options{Busy: 1})
	p.Registration(1)
	child := &demo.Process{PID: p.Fork(true)}
	r.state(child, process.StateError, process.ReasonSocketShared.String())
	r.sampledReport(p, 100)
	report := p.Quit()
	clean(t, report)
	if report.Registrations != 1 {
		t.Errorf("%d registrations", report.Registrations)
	}
}
