package mempoll

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/internal/worker/access/accesstest"
	"correlator/procscan"
)

// polledDemo is a demo process that a Poller polls, and what that reported of it.
type polledDemo struct {
	*demo.Process
	target  *process.Target
	polled  *Entry
	changed chan struct{}
}

func openPoller(t *testing.T) *Poller {
	t.Helper()
	l, err := newPoller(patientMemory{accesstest.Open(t)}, new(atomic.Uint64))
	assert.NilError(t, err)
	return l
}

func pollDemo(t *testing.T, p *demo.Process) *polledDemo {
	t.Helper()
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	found, err := scanner.Process(p.PID)
	assert.NilError(t, err)
	d := &polledDemo{Process: p, changed: make(chan struct{}, 1)}
	d.target, err = process.Open(accesstest.Open(t), "/proc", found, process.Filter{})
	assert.NilError(t, err)
	t.Cleanup(d.target.Close)
	assert.NilError(t, d.target.Load())
	d.polled = NewEntry(p.PID, d.target.Owner(), new(atomic.Bool), func() { d.changed <- struct{}{} })
	return d
}

// probe has the process polled from what it publishes now on.
func (d *polledDemo) probe(l *Poller, since time.Time) bool {
	d.target.Probe()
	return l.Start(d.polled, d.target.Words(), since)
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
	l := openPoller(t)
	defer l.Close()
	still := pollDemo(t, demo.Start(t, demo.Options{Manual: true, Idle: 1}))
	still.probe(l, time.Time{})
	hold := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	hold.Load()
	d := pollDemo(t, hold)

	d.probe(l, time.Now())
	before := readsOf(l)
	testenv.Poll(t, deadline, "reads", func() bool { return readsOf(l) > before+100 })
	d.Publish()
	d.reported(t, "what was published")
	d.probe(l, time.Time{})
	assert.Assert(t, d.target.Publishes(), "nothing is published")
	d.Withdraw()
	d.reported(t, "what was withdrawn")
	d.probe(l, time.Now())
	d.Publish()
	d.reported(t, "what was published again")
	d.probe(l, time.Time{})
	d.Unload()
	d.reported(t, "the end of the library")
	assert.Check(t, len(still.changed) == 0 && len(d.changed) == 0, "more was reported than has happened")
}

// patientMemory is memory that is read again when the worker that was to read it got no CPU in time, as soon as that
// has ended.
type patientMemory struct{ reader }

func (p patientMemory) Read(user worker.User, timeout time.Duration, reads []access.MemoryRead) error {
	for {
		err := p.reader.Read(user, timeout, reads)
		if !errors.Is(err, access.ErrTimeout) && !errors.Is(err, access.ErrHung) &&
			!errors.Is(err, access.ErrUnavailable) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// hangingMemory is memory of which that of some processes cannot be read in time.
type hangingMemory struct {
	reader
	mu      sync.Mutex
	hanging map[int]bool // by pid
	late    bool         // a read took too long
}

func (h *hangingMemory) IsSuspect(worker.User) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.late
}

func (h *hangingMemory) set(pid int, hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hanging[pid] = hangs
}

func (h *hangingMemory) Read(user worker.User, timeout time.Duration, reads []access.MemoryRead) error {
	h.mu.Lock()
	hangs := slices.ContainsFunc(reads, func(r access.MemoryRead) bool { return h.hanging[r.PID] })
	h.late = h.late || hangs
	h.mu.Unlock()
	if hangs {
		return access.ErrTimeout
	}
	return h.reader.Read(user, timeout, reads)
}

// A process that makes its reader wait holds up no other of its user: each is read by itself then,
// its own goroutine must probe it, and it is left alone after some times.
func TestPollerHangs(t *testing.T) {
	testenv.NeedRoot(t)
	var hangs atomic.Uint64
	memory := &hangingMemory{reader: patientMemory{accesstest.Open(t)}, hanging: make(map[int]bool)}
	l, err := newPoller(memory, &hangs)
	assert.NilError(t, err)
	defer l.Close()
	hostile := pollDemo(t, demo.Start(t, demo.Options{Manual: true, Idle: 1}))
	hold := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	hold.Load()
	other := pollDemo(t, hold)
	for i := range maxHangs {
		other.probe(l, time.Now())
		memory.set(hostile.PID, true)
		assert.Assert(t, hostile.probe(l, time.Now()), "not polled any more after it hung %d times", i)
		hostile.reported(t, "its own hanging")
		other.Publish()
		other.reported(t, "what was published while another process hangs")
		other.Withdraw()
		memory.set(hostile.PID, false)
	}
	n := hangs.Load()
	assert.Check(t, n == maxHangs, "counted %d times that it hung, want %d", n, maxHangs)
	assert.Check(t, !hostile.probe(l, time.Now()), "polled again after it hung %d times", maxHangs)
	l.mu.Lock()
	hostile.polled.last = hostile.polled.last.Add(-hangTime)
	l.mu.Unlock()
	assert.Check(t, hostile.probe(l, time.Now()), "not polled again after a long time")
	before := readsOf(l)
	testenv.Poll(t, deadline, "quick reads", func() bool { return readsOf(l) > before+100 })
	assert.Check(t, len(hostile.changed) == 0, "a change was reported by reads that were quick and found none")
}

// Processes whose memory cannot be read because others of their user make workers hang are left as
// they are, and read again.
func TestPollerRefused(t *testing.T) {
	testenv.NeedRoot(t)
	memory := &refusingMemory{reader: accesstest.Open(t)}
	memory.refuses.Store(true)
	l, err := newPoller(memory, new(atomic.Uint64))
	assert.NilError(t, err)
	defer l.Close()
	d := pollDemo(t, demo.Start(t, demo.Options{Manual: true, Idle: 1}))
	d.probe(l, time.Now())
	testenv.Poll(t, deadline, "refused reads", func() bool { return readsOf(l) > 10 })
	assert.Check(t, len(d.changed) == 0, "a refused read was taken for a change")
	memory.refuses.Store(false)
	d.Withdraw()
	d.reported(t, "what was withdrawn")
}

type refusingMemory struct {
	reader
	refuses atomic.Bool
}

func (r *refusingMemory) Read(user worker.User, timeout time.Duration, reads []access.MemoryRead) error {
	if r.refuses.Load() {
		return access.ErrBusy
	}
	return r.reader.Read(user, timeout, reads)
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
		got := place(age)
		assert.Check(t, got == want, "%v old: every %v, want %v", age, got, want)
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
