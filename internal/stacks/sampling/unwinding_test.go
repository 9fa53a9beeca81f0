package sampling

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
)

// An engine that could not be loaded because descriptors were short is loaded when they are not any more.
func TestEngineIsLoadedLater(t *testing.T) {
	testenv.NeedUnwinding(t)
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{})
	assert.NilError(t, err)
	defer sampler.Close()
	u := newUnwinding(sampler, new(unwind.Counters), unwind.Options{ProcRoot: "/proc"}, false, false,
		zaptest.NewLogger(t))
	defer u.close()
	u.reload = time.Millisecond

	var limit unix.Rlimit
	entries, err := os.ReadDir("/proc/self/fd")
	err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	assert.NilError(t, err)
	short := limit
	short.Cur = uint64(len(entries)) + 16 // the engine has more programs and tables
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &short))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	u.need()
	<-u.loaded
	s := u.status()
	assert.Assert(t, !s.Loaded && errors.Is(u.failed(), unix.EMFILE), "%+v", s)
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	testenv.Poll(t, deadline, "the engine", func() bool { return u.engine.Load() != nil })
	if s := u.status(); s.Err() != nil {
		t.Errorf("%+v", s)
	}
}

func (u *unwinding) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failure
}

// One that is waited for to be tried again ends at once.
func TestEngineEndsBeforeItIsLoaded(t *testing.T) {
	noProcfs := unwind.Options{ProcRoot: t.TempDir()}
	u := newUnwinding(nil, new(unwind.Counters), noProcfs, true, false, zaptest.NewLogger(t))
	<-u.loaded
	if err := u.close(); err != nil || u.failed() == nil {
		t.Errorf("%v, %v", err, u.failed())
	}
}

// That the engine's programs could not be set is said as long as a program is sampled for which
// that is so, and logged once.
func TestChainFails(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	u := &unwinding{
		log: zap.New(core), programs: make(map[*program]struct{}),
		time: newEngineTime(), need: func() {}, wake: make(chan struct{}, 1),
	}
	u.engine.Store(new(unwind.Engine))
	fails := func(p *program) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.warn(errNoChain)
		p.unwound.failure = fmt.Errorf("%w: %w", errNoChain, unix.ENOMEM)
	}
	for range 2 {
		first, second := new(program), new(program)
		u.add(first)
		u.add(second)
		fails(first)
		fails(second)
		fails(first)
		if s := u.status(); s.Err() == nil || s.Waiting != 2 || !u.isSettled(time.Now()) {
			t.Errorf("%+v", s)
		}
		first.unwound.failure = nil
		if s := u.status(); s.Err() == nil {
			t.Errorf("%+v", s)
		}
		u.remove(second)
		if s := u.status(); s.Err() != nil {
			t.Errorf("%+v", s)
		}
		u.remove(first)
	}
	n := logged.Len()
	assert.Check(t, n == 2, "it was logged %d times", n)
}

// What the engine lacks for Java's stacks is logged with the reason.
func TestWarnOfJava(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	u := &unwinding{log: zap.New(core)}
	u.warnOfJava(unwind.Status{})
	u.warnOfJava(unwind.Status{JavaRefused: "R3 !read_ok"})
	lines := logged.All()
	assert.Assert(t, len(lines) == 1)
	assert.Check(t, lines[0].Message == unwind.LossOfJava && lines[0].ContextMap()["error"] == "R3 !read_ok", lines[0])
}

// What waits for unwound stacks waits for programs that the engine was not asked about yet, whatever that takes, for
// those that it knows soon, and for no others.
func TestSettled(t *testing.T) {
	now := time.Now()
	for what, c := range map[string]struct {
		unwound
		settled bool
	}{
		"not tried yet":             {unwound{due: now}, false},
		"unwound":                   {unwound{on: true}, true},
		"unwound, and tried again":  {unwound{on: true, failure: unwind.ErrNotReady, tried: now}, true},
		"a runtime that starts":     {unwound{failure: unwind.ErrNotReady, tried: now.Add(1 - startGrace)}, false},
		"a runtime as it is":        {unwound{failure: unwind.ErrNotReady, tried: now.Add(-startGrace)}, true},
		"the worker was killed":     {unwound{failure: fmt.Errorf("%w: it got no CPU", unwind.ErrKilled)}, false},
		"the program is left out":   {unwound{failure: unwind.ErrQuarantined}, true},
		"another failure":           {unwound{failure: errors.New("a file")}, true},
		"the program has ended":     {unwound{failure: unwind.ErrGone}, true},
		"its user has to wait":      {unwound{failure: errHeldBack, due: now}, true},
		"there is no worker at all": {unwound{failure: unwind.ErrUnavailable}, true},
	} {
		p := &program{unwound: c.unwound}
		u := &unwinding{programs: map[*program]struct{}{p: {}, {unwound: unwound{on: true}}: {}}}
		u.engine.Store(new(unwind.Engine))
		assert.Check(t, u.isSettled(now) == c.settled, what)
	}
}

// A process is unwound, or as native code where a runtime of its was refused, or waits, each with its reason; that a
// version was not tried makes no difference.
func TestStatusOfRuntimes(t *testing.T) {
	u := &unwinding{programs: make(map[*program]struct{}), needed: make(chan struct{})}
	for pid, w := range map[int]unwound{
		1: {on: true}, 2: {on: true, unknown: "V8 99"}, 3: {on: true, refused: "V8: no layout", unknown: "Python 9"},
		4: {refused: "not yet"}, 5: {failure: unix.EPERM, unknown: "not yet"},
		6: {failure: unwind.ErrNotReady}, 7: {failure: fmt.Errorf("%w: V8: odd", unwind.ErrNotReady)},
	} {
		p := &program{unwound: w}
		p.identity.PID = pid
		u.programs[p] = struct{}{}
	}
	s := u.status()
	assert.Check(t, s.Unwound == 2 && s.Native == 1 && s.Waiting == 4, "%+v", s)
	assert.Check(t, maps.Equal(s.Refused, map[int]string{3: "V8: no layout"}), s.Refused)
	assert.Check(t, maps.Equal(s.Unknown, map[int]string{2: "V8 99", 3: "Python 9"}), s.Unknown)
	assert.Check(t, len(s.Failures) == 3 && s.Failures[5] == unix.EPERM.Error(), s.Failures)
	assert.Check(t, maps.Equal(s.Unread(), map[int]string{3: "V8: no layout", 7: "V8: odd"}), s.Unread())
	assert.Check(t, len(s.Refused) == 1, s.Refused)
	for pid := range 2 * maxFailures {
		say(&s.Refused, 10+pid, "")
	}
	assert.Check(t, len(s.Refused) == maxFailures, len(s.Refused))
}

// A target that has gone is removed after its time, not at it: until then there is nothing to do.
func TestNextAtTheTime(t *testing.T) {
	now := time.Now()
	u := &unwinding{programs: make(map[*program]struct{}), time: newEngineTime(), gone: []goneTarget{{at: now}}}
	first, gone, wait := u.next(now)
	assert.Check(t, first == nil && gone == nil && wait == 0, "%v, %v, %v", first, gone, wait)
	first, gone, _ = u.next(now.Add(1))
	assert.Check(t, first == nil && gone != nil, "%v, %v", first, gone)
}

// withoutEngine returns an unwinding with a sampler, for which nothing is loaded and nothing runs.
func withoutEngine(t *testing.T) *unwinding {
	t.Helper()
	testenv.NeedRoot(t)
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{})
	assert.NilError(t, err)
	t.Cleanup(func() { sampler.Close() })
	return &unwinding{
		sampler: sampler, log: zaptest.NewLogger(t), programs: make(map[*program]struct{}),
		time: newEngineTime(), need: func() {}, wake: make(chan struct{}, 1),
	}
}

// A program whose stacks are unwound from its first samples on is not synchronized before, nor waited for.
func TestUnwoundOnceSampled(t *testing.T) {
	u := withoutEngine(t)
	p := &program{sampling: &Sampling{unwinding: u}}
	p.unseen.Store(true)
	u.add(p)
	u.changed(p)
	u.endedEarly(p)
	first, _, _ := u.next(time.Now())
	status := u.status()
	assert.Check(t, first == nil && u.isSettled(time.Now()) && status.Waiting+status.Unwound == 0, "%+v", status)
	p.newSample(new(bpf.Count), instant{})
	p.newSample(new(bpf.Count), instant{})
	status = u.status()
	assert.Check(t, !u.isSettled(time.Now()) && status.Waiting == 1, "%+v", status)
	first, _, _ = u.next(time.Now())
	assert.Check(t, first == p && p.unwound.due.IsZero())

	early := &program{sampling: &Sampling{unwinding: u}} // its first sample comes before it was added
	early.unseen.Store(true)
	early.newSample(new(bpf.Count), instant{})
	u.add(early)
	first, _, _ = u.next(time.Now())
	assert.Check(t, first == early)
}

// The pause after a program was synchronized is as long as that took when files were read for it, which is the first
// time of each worker, and ten times as long later, and after failures.
func TestPause(t *testing.T) {
	u := withoutEngine(t)
	p := new(program)
	u.add(p)
	w := &p.unwound
	w.pause = 20 * time.Second // it was not ready
	for i, c := range []struct {
		took         time.Duration
		failure      error
		least, pause time.Duration
	}{
		{time.Second, unwind.ErrNotReady, 10 * time.Second, 20 * time.Second},
		{5 * time.Second, nil, 5 * time.Second, 5 * time.Second},
		{50 * time.Millisecond, nil, 500 * time.Millisecond, 5 * time.Second},
		{time.Millisecond, nil, minResync, 5 * time.Second},
		{time.Second, unwind.ErrNotReady, 10 * time.Second, 5 * time.Second},
		{2 * time.Second, nil, 20 * time.Second, 20 * time.Second},
	} {
		w.failure = c.failure
		if w.took(c.took); w.least != c.least || w.pause != c.pause {
			t.Errorf("time %d: least %v, pause %v, want %+v", i, w.least, w.pause, c)
		}
	}
	u.reset()
	if w.took(5 * time.Second); w.least != 5*time.Second || w.pause != 5*time.Second {
		t.Errorf("with the next worker: least %v, pause %v", w.least, w.pause)
	}
}

// The stacks of a user who has had the engine serve nobody else for too long are walked by frame pointers, until
// the user may use the engine again; those of others are not.
func TestHeldBackLeaves(t *testing.T) {
	u := withoutEngine(t)
	slow, other := new(program), new(program)
	slow.unwound.target.User, other.unwound.target.User = "slow", "other"
	for _, p := range []*program{slow, other} {
		u.add(p)
		p.unwound.on = true
	}
	slow.unwound.due, other.unwound.due = time.Time{}, time.Time{}
	<-u.wake
	u.charge("slow", turnTime)
	assert.Check(t, slow.unwound.on && slow.unwound.due.IsZero(), "a user is held back for a turn")
	u.charge("slow", time.Hour)
	if slow.unwound.on || !errors.Is(slow.unwound.failure, errHeldBack) || !other.unwound.on {
		t.Errorf("slow %+v, other %+v", slow.unwound, other.unwound)
	}
	select {
	case <-u.wake:
	default:
		t.Error("who waits for what is due does not come to know")
	}
	now := time.Now()
	first, _, wait := u.next(now)
	assert.Check(t, first == nil && wait > 0 && wait <= maxSpent*userShare, "next is %v, after %v", first, wait)
	if first, _, _ := u.next(now.Add(wait)); first != slow {
		t.Error("the user is not served when that may be again")
	}
}
