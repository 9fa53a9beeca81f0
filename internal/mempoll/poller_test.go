package mempoll

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"correlator/elfsym"
	"correlator/internal/demo"
	"correlator/internal/process"
	"correlator/internal/testenv"
	"correlator/memread"
	"correlator/procscan"
)

// polledDemo is a demo process that a Poller polls, and what that reported of it.
type polledDemo struct {
	*demo.Process
	target  *process.Target
	polled  *Entry
	changed chan struct{}
}

func newPoller(t *testing.T, hangs *atomic.Uint64) *Poller {
	t.Helper()
	l, err := New(hangs)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func pollDemo(t *testing.T, l *Poller, p *demo.Process) *polledDemo {
	t.Helper()
	scanner, err := procscan.NewScanner("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found, err := scanner.Process(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	files, err := elfsym.NewCache(1)
	if err != nil {
		t.Fatal(err)
	}
	d := &polledDemo{Process: p, changed: make(chan struct{}, 1)}
	if d.target, err = process.Open("/proc", found, process.Filter{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.target.Close)
	if err := d.target.Load(files); err != nil {
		t.Fatal(err)
	}
	d.polled = l.Add(func() *memread.Process { return memread.Open("/proc", p.PID) },
		func() { d.changed <- struct{}{} })
	t.Cleanup(func() { l.Drop(d.polled) })
	return d
}

// probe has the process polled from what it publishes now on.
func (d *polledDemo) probe(l *Poller, since time.Time) bool {
	d.target.Probe()
	return l.Start(d.polled, d.target.Words().Hold, since)
}

func (d *polledDemo) reported(t *testing.T, what string) {
	t.Helper()
	select {
	case <-d.changed:
	case <-time.After(deadline):
		t.Fatalf("waited %v in vain for the report of %s", deadline, what)
	}
}

func readsOf(l *Poller) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// Publishing, withdrawing, publishing something else at the same place: each is reported once, and
// nothing when nothing happens.
func TestPollerReports(t *testing.T) {
	testenv.NeedRoot(t)
	l := newPoller(t, new(atomic.Uint64))
	defer l.Close()
	still := pollDemo(t, l, demo.Start(t, demo.Options{Manual: true, Idle: 1}))
	still.probe(l, time.Time{})
	hold := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	hold.Load()
	d := pollDemo(t, l, hold)

	d.probe(l, time.Now())
	before := readsOf(l)
	testenv.Poll(t, deadline, "reads", func() bool { return readsOf(l) > before+100 })
	d.Publish()
	d.reported(t, "what was published")
	if d.probe(l, time.Time{}); !d.target.Publishes() {
		t.Fatal("nothing is published")
	}
	d.Withdraw()
	d.reported(t, "what was withdrawn")
	d.probe(l, time.Now())
	d.Publish()
	d.reported(t, "what was published again")
	d.probe(l, time.Time{})
	d.Unload()
	d.reported(t, "the end of the library")
	if len(still.changed) != 0 || len(d.changed) != 0 {
		t.Error("more was reported than has happened")
	}
}

// slowProcess is a process whose memory makes its reader wait.
type slowProcess struct {
	*Entry
	reports chan struct{}
}

func addSlow(l *Poller) *slowProcess {
	p := &slowProcess{reports: make(chan struct{}, 1)}
	p.Entry = l.Add(func() *memread.Process { return memread.Open("/proc", os.Getpid()) }, func() {
		select {
		case p.reports <- struct{}{}:
		default:
		}
	})
	return p
}

func (p *slowProcess) wasReported(t *testing.T, what string) {
	t.Helper()
	select {
	case <-p.reports:
	case <-time.After(deadline):
		t.Fatalf("waited %v in vain for the report of %s", deadline, what)
	}
}

// A process that makes its reader wait holds up no other: the others are read, its own goroutine
// must probe it, and it is left alone while it hangs and after some times. So is one that answers,
// but slowly.
func TestPollerHangs(t *testing.T) {
	testenv.NeedRoot(t)
	var hangs atomic.Uint64
	l := newPoller(t, &hangs)
	defer l.Close()
	hostile := addSlow(l)
	defer l.Drop(hostile.Entry)
	hold := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	hold.Load()
	other := pollDemo(t, l, hold)
	for i := range maxHangs {
		other.probe(l, time.Now())
		let := make(chan struct{}) // it go
		hang := func(*process.WordReader, *memread.Process) bool { <-let; return true }
		if !l.Start(hostile.Entry, hang, time.Now()) {
			t.Fatalf("not polled any more after it hung %d times", i)
		}
		hostile.wasReported(t, "its own hanging")
		if l.Start(hostile.Entry, hang, time.Now()) {
			t.Error("polled while it hangs")
		}
		other.Publish()
		other.reported(t, "what was published while another process hangs")
		other.Withdraw()
		close(let)
		testenv.Poll(t, deadline, "the read to return", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.abandoned == 0 && !hostile.hanging
		})
	}
	if n := hangs.Load(); n != maxHangs {
		t.Errorf("counted %d times that it hung, want %d", n, maxHangs)
	}
	holds := func(*process.WordReader, *memread.Process) bool { return true }
	if l.Start(hostile.Entry, holds, time.Now()) {
		t.Errorf("polled again after it hung %d times", maxHangs)
	}
	l.mu.Lock()
	hostile.last = hostile.last.Add(-hangTime)
	l.mu.Unlock()
	if !l.Start(hostile.Entry, holds, time.Now()) {
		t.Error("not polled again after a long time")
	}
	before := readsOf(l)
	testenv.Poll(t, deadline, "quick reads", func() bool { return readsOf(l) > before+100 })
	if len(hostile.reports) != 0 {
		t.Error("a change was reported by reads that were quick and found none")
	}

	slow := addSlow(l)
	defer l.Drop(slow.Entry)
	var looks atomic.Int64
	l.Start(slow.Entry, func(*process.WordReader, *memread.Process) bool {
		looks.Add(1)
		time.Sleep(slowRead + time.Millisecond)
		return true
	}, time.Now())
	slow.wasReported(t, "its own slowness")
	if n := looks.Load(); n != maxHangs {
		t.Errorf("it was slow %d times before it was left alone", n)
	}
}

// When too many hang, all must be probed by their own goroutines, until one read returns.
func TestPollerGivesUp(t *testing.T) {
	l := newPoller(t, new(atomic.Uint64))
	defer l.Close()
	l.mu.Lock()
	l.abandoned = maxAbandoned // as many as may
	l.mu.Unlock()
	let := make(chan struct{})
	hangs := func(*process.WordReader, *memread.Process) bool { <-let; return true }
	holds := func(*process.WordReader, *memread.Process) bool { return true }
	other, hostile := addSlow(l), addSlow(l)
	defer l.Drop(other.Entry)
	defer l.Drop(hostile.Entry)
	l.Start(other.Entry, holds, time.Time{})
	l.Start(hostile.Entry, hangs, time.Now())
	hostile.wasReported(t, "its own hanging")
	other.wasReported(t, "the end of polling")
	if l.Start(other.Entry, holds, time.Now()) {
		t.Error("polled while too many hang")
	}
	close(let)
	testenv.Poll(t, deadline, "to be polled again", func() bool { return l.Start(other.Entry, holds, time.Now()) })
}

// Candidates are read in ever longer periods, and a crowd of them in longer ones than one.
func TestPollerPeriods(t *testing.T) {
	l := &Poller{}
	now := time.Now()
	period := func(w *Entry) time.Duration { return pollPeriods[w.period] }
	place := func(age time.Duration) time.Duration {
		w := &Entry{since: now.Add(-age), period: -1}
		l.insert(w, now)
		defer l.remove(w)
		return period(w)
	}
	for age, want := range map[time.Duration]time.Duration{
		0:                      time.Millisecond,
		255 * time.Millisecond: time.Millisecond,
		256 * time.Millisecond: 2 * time.Millisecond,
		time.Second:            5 * time.Millisecond,
		2 * time.Second:        10 * time.Millisecond,
		time.Minute:            200 * time.Millisecond,
		2 * time.Minute:        500 * time.Millisecond,
		128 * time.Second:      time.Second,
		time.Hour:              time.Second,
	} {
		if got := place(age); got != want {
			t.Errorf("%v old: every %v, want %v", age, got, want)
		}
	}
	crowd := make([]*Entry, 1000)
	for i := range crowd {
		crowd[i] = &Entry{since: now, period: -1}
		l.insert(crowd[i], now)
	}
	if first, last := period(crowd[0]), period(crowd[999]); first != time.Millisecond || last != 50*time.Millisecond {
		t.Errorf("of 1000 new candidates, the first every %v and the last every %v", first, last)
	}
	for _, w := range slices.Backward(crowd) {
		l.remove(w)
	}
	if l.crowd != 0 || l.Len() != 0 {
		t.Errorf("%d candidates, %v after all were removed", l.crowd, l.periods)
	}
	idle := &Entry{period: -1, lastUse: now.Add(-activeTime)}
	if l.insert(idle, now); period(idle) != 10*time.Second {
		t.Errorf("one that does nothing: every %v", period(idle))
	}
	l.remove(idle)
	idle.lastUse = now
	if l.insert(idle, now); period(idle) != time.Second {
		t.Errorf("one that is sampled: every %v", period(idle))
	}
}
