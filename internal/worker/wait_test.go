package worker

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// madeUp is a worker of whom it is known when it answers, and what CPU time it gets.
type madeUp struct {
	began    time.Time
	answerAt time.Duration // 0: never
	late     time.Duration // that its agent comes late, since it gets no CPU
	cpu      func(age time.Duration) time.Duration
	runnable bool
	read     uint64
}

func (m *madeUp) Receive(deadline time.Time) ([]byte, int, error) {
	answer := m.began.Add(m.answerAt)
	if m.answerAt > 0 && !answer.After(deadline) && (m.late == 0 || !answer.After(time.Now())) {
		time.Sleep(time.Until(answer))
		return []byte("answer"), -1, nil
	}
	time.Sleep(time.Until(deadline) + m.late)
	return nil, -1, ErrTimeout
}

func (m *madeUp) cpuTime() time.Duration {
	if m.cpu == nil {
		return time.Hour
	}
	return time.Hour + m.cpu(time.Since(m.began))
}

func (m *madeUp) reads() uint64    { return m.read }
func (m *madeUp) isRunnable() bool { return m.runnable }

// A worker goes on that uses CPU time, gets answers of file systems, or would if there were a CPU; not one that uses
// no more than Go's runtime does.
func TestPulse(t *testing.T) {
	used := time.Duration(0)
	m := madeUp{cpu: func(time.Duration) time.Duration { return used }}
	pulse := newPulse(&m)
	for _, step := range []struct {
		used     time.Duration
		read     uint64
		runnable bool
		want     bool
	}{
		{0, 0, false, false}, {minBeat, 0, false, true}, {minBeat, 0, false, false},
		{2*minBeat - 1, 0, false, false}, {2*minBeat - 1, 1, false, true}, {2*minBeat - 1, 1, false, false},
		{2*minBeat - 1, 1, true, true}, {2*minBeat - 1, 1, false, false},
	} {
		used, m.read, m.runnable = step.used, step.read, step.runnable
		assert.Check(t, pulse.Beats() == step.want, "%+v", step)
	}
}

// A worker that hangs, or has used the time of its request, is given up. One that gets too little CPU time has
// the time again, and is not to blame if that is not enough.
func TestWait(t *testing.T) {
	const timeout = time.Second
	part := func(n time.Duration) func(time.Duration) time.Duration {
		return func(age time.Duration) time.Duration { return age / n }
	}
	half := func(age time.Duration) time.Duration { return min(age, timeout/2) }
	const late = timeout * 11 / 2 // when it answers only with patience
	for name, c := range map[string]struct {
		worker  madeUp
		want    error
		periods int
	}{
		"answers":                      {madeUp{answerAt: timeout / 2}, nil, 1},
		"hangs":                        {madeUp{}, ErrTimeout, 1},
		"hangs with some CPU time":     {madeUp{cpu: part(30)}, ErrTimeout, 1},
		"works, then hangs":            {madeUp{cpu: half}, ErrTimeout, 2},
		"works":                        {madeUp{cpu: part(1), runnable: true}, ErrTimeout, 1},
		"works on half a CPU":          {madeUp{cpu: part(2), runnable: true}, ErrTimeout, 2},
		"gets little CPU, answers":     {madeUp{cpu: part(10), answerAt: late * 4 / 5}, nil, 5},
		"gets no CPU, answers":         {madeUp{runnable: true, answerAt: late * 4 / 5}, nil, 5},
		"gets little CPU to the end":   {madeUp{cpu: part(10), runnable: true, answerAt: late}, ErrStarved, 5},
		"gets no CPU to the end":       {madeUp{runnable: true, answerAt: late}, ErrStarved, 5},
		"is made wait again and again": {madeUp{cpu: part(10), answerAt: late}, ErrTimeout, 5},
		"its agent gets no CPU":        {madeUp{answerAt: timeout * 9 / 10, late: timeout * 3 / 10}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.worker.began = time.Now()
				w := newWait(&c.worker, timeout)
				_, _, err := w.Receive()
				took := time.Since(c.worker.began)
				assert.Check(t, errors.Is(err, c.want), err)
				begun := int((took-time.Nanosecond)/(timeout+lastChance)) + 1
				assert.Check(t, begun == c.periods, "given up, or answered, after %v", took)
			})
		})
	}
}

// A worker starves while it could run and does not, as far as it was looked at; not while it hangs, runs, or has ended.
func TestStarved(t *testing.T) {
	const answerAt = time.Second
	part := func(n time.Duration) func(time.Duration) time.Duration {
		return func(age time.Duration) time.Duration { return age / n }
	}
	for name, c := range map[string]struct {
		worker      madeUp
		least, most time.Duration
		prolonged   time.Duration
	}{
		"gets no CPU":      {madeUp{answerAt: answerAt, runnable: true}, answerAt, answerAt, 0},
		"gets a half":      {madeUp{answerAt: answerAt, runnable: true, cpu: part(2)}, answerAt / 2, answerAt / 2, 0},
		"gets all":         {madeUp{answerAt: answerAt, runnable: true, cpu: part(1)}, 0, 0, 0},
		"hangs":            {madeUp{answerAt: answerAt}, 0, 0, 0},
		"answers at once":  {madeUp{answerAt: firstLook, runnable: true}, 0, 0, 0},
		"waits for us too": {madeUp{answerAt: answerAt, runnable: true}, answerAt / 2, answerAt / 2, answerAt / 2},
		"ends": {madeUp{answerAt: answerAt, runnable: true, cpu: func(age time.Duration) time.Duration {
			if age == answerAt {
				return -time.Hour
			}
			return age
		}}, 0, mostBetweenLooks, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.worker.began = time.Now()
				w := newWait(&c.worker, 2*answerAt)
				w.Prolong(c.prolonged)
				_, _, err := w.Receive()
				assert.NilError(t, err)
				starved := w.Starved()
				assert.Check(t, starved >= c.least && starved <= c.most, "%v", starved)
			})
		})
	}
}

// The time for which a worker waits for the agent is not its own.
func TestWaitProlonged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := newWait(&madeUp{began: began}, time.Second)
		w.Prolong(3 * time.Second)
		_, _, err := w.Receive()
		took := time.Since(began)
		assert.Check(t, errors.Is(err, ErrTimeout) && took == 4*time.Second+lastChance, "%v after %v", err, took)
	})
}

// It is seen of a worker whether it hangs or works.
func TestWatched(t *testing.T) {
	p := start(t)
	p.ask(t, "hello")
	testenv.Poll(t, deadline, "a worker that waits", func() bool { return !p.isRunnable() })
	assert.NilError(t, p.Send([]byte("spin")))
	before := p.cpuTime()
	assert.Check(t, before > 0 && p.reads() > 0, "it has begun without CPU time, or reading")
	testenv.Poll(t, deadline, "a worker that works", func() bool { return p.isRunnable() && p.cpuTime() > before })
}

// A worker is not blamed on a process while it waits for the kernel in bpf(2), or for a CPU; in another system call it
// may be that, whatever other threads do while one reads.
func TestWaitsForKernel(t *testing.T) {
	in := func(number any) thread {
		return thread{"S", fmt.Sprintf("%v 0x2 0xc000 0x20 0x0 0x0 0x0 0x7ffd 0x4a\n", number)}
	}
	monitor, other, ended := thread{"R", "running\n"}, in(unix.SYS_FUTEX), thread{}
	for name, c := range map[string]struct {
		threads []thread
		want    bool
	}{
		"none":                    {nil, false},
		"ended":                   {[]thread{ended}, false},
		"one that waits":          {[]thread{other}, false},
		"one that runs":           {[]thread{other, monitor}, true},
		"bpf":                     {[]thread{other, in(unix.SYS_BPF)}, true},
		"a longer number":         {[]thread{in(fmt.Sprintf("%d0", unix.SYS_BPF))}, false},
		"reads a file":            {[]thread{in(unix.SYS_PREAD64)}, false},
		"reads, the monitor runs": {[]thread{other, monitor, {"D", in(unix.SYS_PREAD64).call}}, false},
		"reads a process":         {[]thread{in(unix.SYS_PROCESS_VM_READV), monitor}, false},
		"has a CPU and reads":     {[]thread{{"R", in(unix.SYS_PREAD64).call}}, true},
	} {
		assert.Check(t, areRunnable(c.threads) == c.want, name)
	}
}

// A worker that has got no CPU is killed, and nobody is to blame. Who made one late is a suspect, for a while.
func TestBlame(t *testing.T) {
	pool := newPool(t)
	owner := Owner{PID: 1, User: "1000"}
	discard := func(why error) error {
		process, _, err := pool.take()
		assert.NilError(t, err)
		err = pool.discard(process, owner, why)
		testenv.Poll(t, deadline, "the end of the worker", func() bool { return pool.Stats().Hung == 0 })
		return err
	}
	err := discard(ErrStarved)
	assert.Check(t, errors.Is(err, ErrUnavailable) && errors.Is(err, ErrStarved), err)
	assert.Check(t, !pool.IsSuspect(owner.User), "a user whose worker got no CPU is a suspect")
	err = discard(ErrTimeout)
	assert.Check(t, errors.Is(err, ErrTimeout) && !errors.Is(err, ErrUnavailable), err)
	assert.Check(t, pool.IsSuspect(owner.User) && !pool.IsSuspect("1001"), "who is late is not the suspect")
	assert.Check(t, pool.counters.TimedOut.Load() == 2 && pool.counters.Ended.Load() == 0)

	synctest.Test(t, func(t *testing.T) {
		b := new(Blame)
		b.Late("1000")
		time.Sleep(suspectTime - time.Nanosecond)
		assert.Check(t, b.IsSuspect("1000"), "no suspect any more")
		time.Sleep(time.Nanosecond)
		assert.Check(t, !b.IsSuspect("1000") && len(b.late) == 0, "a suspect for ever")
		for i := range maxServed {
			b.Late(User(rune(i)))
			b.Served(User(rune(i)))
		}
		b.Late("\x00")
		b.Served("\x00")
		assert.Check(t, len(b.late) == maxServed && len(b.served) == maxServed,
			"all are forgotten for one who is known")
		b.Late("one more")
		b.Served("one more")
		assert.Check(t, len(b.late) == 1 && len(b.served) == 1, "there is no bound")
	})
}

// An error of a worker is what it was, bounded; what else it may say of it is none that is known.
func TestErrorsOfWorker(t *testing.T) {
	e := Errors{Known: []error{ErrHung, io.EOF}, MaxBytes: 6}
	err := e.Decode(e.Encode(fmt.Errorf("reading: %w: %w", io.EOF, unix.ENOENT)))
	assert.Check(t, errors.Is(err, io.EOF) && errors.Is(err, unix.ENOENT) && !errors.Is(err, ErrHung) &&
		err.Error() == "readin", err)
	err = e.Decode(&Failure{Text: "hostile", Is: []int{-1, 2, 0}}) // one more than are known
	assert.Check(t, !errors.Is(err, ErrHung) && !errors.Is(err, io.EOF) && err.Error() == "hostil", err)
	assert.Check(t, e.Encode(nil) == nil && e.Decode(nil) == nil)
}
