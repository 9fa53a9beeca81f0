package naming

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

// startExec starts a program, and returns what has it execute another one.
func startExec(t *testing.T) (*exec.Cmd, func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `echo x; read line; exec sh -c 'echo x; read line'`)
	stdin, stdout := testenv.Start(t, cmd)
	started := func() { // it has written its line
		t.Helper()
		_, err := stdout.Read(make([]byte, 2))
		assert.NilError(t, err)
	}
	started()
	return cmd, func() {
		t.Helper()
		_, err := stdin.Write([]byte("\n"))
		assert.NilError(t, err)
		started()
	}
}

func imageOf(t *testing.T, r *profile.Resource) procscan.Image {
	t.Helper()
	handle, err := procscan.OpenProcess("/proc", r.Process)
	assert.NilError(t, err)
	defer handle.Close()
	image, err := handle.Image()
	assert.NilError(t, err)
	return image
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	assert.Check(t, os.Remove(path))
}

// simulate has processes wait for names all the time, and serves them: each request takes some CPU
// time. It returns how much CPU time each owner has had, and how long it has waited at most.
func (e *emitted) simulate(spent map[*process]time.Duration, hanging map[*process]bool, long time.Duration) (
	had, waited map[string]time.Duration, most int) {
	type request struct {
		*process
		until time.Time
	}
	had, waited = make(map[string]time.Duration), make(map[string]time.Duration)
	last := make(map[string]time.Time)
	var running []request
	begin := time.Now()
	for now := begin; now.Sub(begin) < long; now = now.Add(20 * time.Millisecond) {
		for i := 0; i < len(running); {
			r := running[i]
			if now.Before(r.until) {
				i++
				continue
			}
			running[i] = running[len(running)-1]
			running = running[:len(running)-1]
			if hanging[r.process] {
				e.failed(r.process, worker.ErrTimeout, now)
				e.end(r.process, now, 0, spent[r.process])
			} else {
				e.end(r.process, now, spent[r.process], 0)
				had[r.resource.Owner] += spent[r.process]
			}
		}
		for p := range spent {
			p.look = true
			e.Namer.wait(p)
		}
		for e.shares.asking < maxAsking {
			p, _ := e.due(now)
			if p == nil {
				break
			}
			e.begin(p, now)
			running = append(running, request{p, now.Add(spent[p])})
			if since := last[p.resource.Owner]; !since.IsZero() {
				waited[p.resource.Owner] = max(waited[p.resource.Owner], now.Sub(since))
			}
			last[p.resource.Owner] = now
			most = max(most, e.shares.suspects)
		}
	}
	return had, waited, most
}

// It is the turn of the owner who was not served for the longest time, and of that one's process of
// which the same is true; of none that has to wait longer.
func TestTurns(t *testing.T) {
	e := silent(t)
	now := time.Now()
	var all []*process
	for i := range 6 {
		p := e.process(&profile.Resource{Owner: fmt.Sprint(i / 2), PID: i})
		p.owner.turn.served = now.Add(-[]time.Duration{2, 0, 1}[i/2] * time.Minute)
		p.served = now.Add(-time.Duration(i) * time.Second)
		e.Namer.wait(p)
		all = append(all, p)
	}
	all[5].next = now.Add(time.Millisecond)
	for _, want := range []int{1, 4, 3} {
		p, _ := e.due(now)
		assert.Assert(t, p != nil && p.resource.PID == want, "it is the turn of %v, want process %d", p, want)
		e.begin(p, now)
	}
	p, _ := e.due(now)
	assert.Check(t, p == nil, "%v is a second process of its owner", p)
	all[4].owner.turn.asking = false
	delete(all[4].owner.waiting, all[4]) // nothing more is wanted of it
	p, soonest := e.due(now)
	assert.Check(t, p == nil && soonest == time.Millisecond, "%v has to wait still; the next one %v", p, soonest)
}

// However many processes others have, and however long these take, an owner has its share; and all
// together take no more CPU time than they may.
func TestShares(t *testing.T) {
	const long = 4 * time.Minute
	e := silent(t)
	spent := make(map[*process]time.Duration)
	for i := range 300 {
		p := e.process(&profile.Resource{Owner: fmt.Sprint("mallory ", i%3), PID: i})
		spent[p] = 2 * time.Second
	}
	shop := e.process(&profile.Resource{Owner: "shop"})
	spent[shop] = 50 * time.Millisecond
	had, waited, _ := e.simulate(spent, nil, long)
	sum := time.Duration(0)
	for owner, cpu := range had {
		sum += cpu
		assert.Check(t, cpu <= long/ownerPace, "%s has had %v", owner, cpu)
	}
	assert.Check(t, sum <= long/totalPace+4*2*time.Second, "all have had %v", sum)
	// 50 ms for each of four, of a fifth of the time; and four requests
	assert.Check(t, waited["shop"] <= 8*time.Second, "the victim has waited for %v", waited["shop"])
	// Alone, it has as much as one process may.
	e = silent(t)
	alone := e.process(&profile.Resource{Owner: "shop"})
	had, _, _ = e.simulate(map[*process]time.Duration{alone: 100 * time.Millisecond}, nil, long)
	cpu := had["shop"]
	assert.Check(t, cpu <= long/pace && cpu >= long/pace/2, "one process has had %v", cpu)
}

// Whoever makes workers hang pays for the time that this takes, and half of the workers are left
// for others.
func TestWhoHangsPays(t *testing.T) {
	const long = 4 * time.Minute
	e := silent(t)
	spent, hanging := make(map[*process]time.Duration), make(map[*process]bool)
	for i := range 200 {
		p := e.process(&profile.Resource{Owner: fmt.Sprint("mallory ", i%20), PID: i})
		spent[p], hanging[p] = 3*time.Second, true
	}
	shop := e.process(&profile.Resource{Owner: "shop"})
	spent[shop] = 50 * time.Millisecond
	had, waited, suspects := e.simulate(spent, hanging, long)
	assert.Check(t, suspects == maxSuspects, "%d workers are asked by suspects", suspects)
	// At first nobody is a suspect: twenty owners by four workers, each for three seconds.
	assert.Check(t, waited["shop"] <= 20*time.Second && had["shop"] >= time.Second,
		"the victim has had %v, and waited for %v", had["shop"], waited["shop"])
	n := e.failures(failedTimeout)
	assert.Check(t, n <= 20*uint64(long/((1+hangPace)*3*time.Second)+1), "%d workers were killed", n)
}

// What has failed is counted by its reason, and asked for again, later each time.
func TestFailures(t *testing.T) {
	for _, test := range []struct {
		err     error
		why     failure
		reason  reason
		suspect bool
	}{
		{worker.ErrTimeout, failedTimeout, unnamedTimeout, true},
		{worker.ErrHung, failedRefused, unnamedFailed, false},
		{worker.ErrBusy, failedRefused, unnamedFailed, false},
		{worker.ErrUnavailable, failedWorker, unnamedFailed, true},
		{fmt.Errorf("%w: %w", worker.ErrUnavailable, worker.ErrStarved), failedWorker, unnamedFailed, false},
		{errNothing, failedWorker, unnamedFailed, true},
		{errors.New("an answer that makes no sense"), failedWorker, unnamedFailed, true},
	} {
		e := silent(t)
		r := &profile.Resource{}
		e.Sampled(sampleOf(r, profile.Frame{Address: 1}))
		p := e.processes[r]
		var pause time.Duration
		now := time.Now()
		for range 10 {
			e.begin(p, now)
			e.take(p)
			e.failed(p, test.err, now)
			e.end(p, now, 0, time.Second)
			assert.Assert(t, len(p.wanted) == 1 && len(p.taken) == 0,
				"%v: %d addresses are wanted", test.err, len(p.wanted))
			_, waits := p.owner.waiting[p]
			assert.Assert(t, waits, "%v: it is not asked again", test.err)
			if charged := p.owner.turn.next.Sub(now); charged != hangPace*time.Second {
				t.Errorf("%v: the next request of its owner may begin in %v", test.err, charged)
			}
			next := p.next.Sub(now)
			assert.Check(t, next >= pause && next <= pauses.Max,
				"%v: it is asked again in %v, after %v", test.err, next, pause)
			pause = next
		}
		if pause != pauses.Max || e.failures(test.why) != 10 || p.owner.turn.isSuspect(now) != test.suspect {
			t.Errorf("%v: pause %v, %d failures, suspect: %v", test.err, pause, e.failures(test.why),
				p.owner.turn.isSuspect(now))
		}
		// What arrives during the pause does not wait, and is asked for after it.
		e.Sampled(sampleOf(r, profile.Frame{Address: 2}))
		if e.unnamed(test.reason) != 1 || len(p.wanted) != 2 {
			t.Errorf("%v: %d samples, %d addresses wanted", test.err, e.unnamed(test.reason), len(p.wanted))
		}
		// A process that is left out stays so while no samples come.
		p.used = now.Add(-2 * idleTime)
		e.processes[r].held = nil
		e.forget(now)
		assert.Check(t, e.processes[r] != nil && p.pause == pauses.Max, "%v: that it failed was forgotten", test.err)
		e.forget(now.Add(2 * pauses.Max))
		assert.Check(t, e.processes[r] == nil, "%v: it was not forgotten", test.err)
	}
}

// A file that cannot be read is tried again, later each time. Others of the process are not held
// up.
func TestFailuresOfFiles(t *testing.T) {
	for failure, why := range failuresOf {
		if why == numFailures {
			continue
		}
		e := silent(t)
		r := &profile.Resource{}
		bad := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: "/bad"}
		good := &profile.File{ID: profile.FileID{2}, Kind: profile.NativeFrame, Path: "/good"}
		stack := sampleOf(r, profile.Frame{File: bad, Address: 1}, profile.Frame{File: good, Address: 1})
		e.Sampled(stack)
		p := e.processes[r]
		pause, now := time.Duration(0), time.Now()
		for i := range 10 {
			e.begin(p, now)
			e.take(p)
			answer := &symbolizer.LiveNames{Files: map[profile.FileID]symbolizer.LiveFile{
				bad.ID:  {Failure: symbolizer.Failure(failure)},
				good.ID: {Names: []symbolizer.LiveName{rangeOf(0, 9, "f")}},
			}}
			e.answered(p, answer, false, now)
			e.end(p, now, 0, 0)
			next := p.files[bad.ID].retry.Sub(now)
			if next < pause || next > pauses.Max || e.failures(why) != uint64(i+1) {
				t.Errorf("%v: it is tried again in %v, after %v; %d failures", why, next, pause, e.failures(why))
			}
			pause = next
			if reason, mayCome := e.want(p, stack, now); reason != unnamedFailed || mayCome || len(p.wanted) > 0 {
				t.Errorf("%v: %v, %v before it is tried again", why, reason, mayCome)
			}
			later := profile.Frame{File: good, Address: 100}
			reason, mayCome := e.want(p, sampleOf(r, stack.Stack.Frames[0], later), now)
			assert.Check(t, mayCome, "%v: another file has to wait, too: %v", why, reason)
			e.dropWanted(p)
			now = now.Add(pause)
			_, mayCome = e.want(p, stack, now)
			assert.Check(t, mayCome, "%v: it is not tried again", why)
		}
		assert.Check(t, pause == pauses.Max, "%v: pause %v", why, pause)
	}
}

// A process whose names were all read is asked later and later, half a second after the last time at most, two seconds
// if only patient consumers wait for them, and for what is left of them soon.
func TestRests(t *testing.T) {
	t.Run("patient", func(t *testing.T) { testRests(t, (*Namer).NewPatientConsumer, 2*time.Second) })
	t.Run("not patient", func(t *testing.T) { testRests(t, (*Namer).NewConsumer, time.Second/2) })
}

func testRests(t *testing.T, consumer func(*Namer, func(*profile.Sample)) *Consumer, longest time.Duration) {
	e := silent(t)
	r := &profile.Resource{}
	file := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: "/file"}
	now := time.Now()
	c := consumer(e.Namer, func(*profile.Sample) {})
	ask := func(left bool) (rest time.Duration) {
		t.Helper()
		sample := sampleOf(r, profile.Frame{File: file, Address: 1})
		of := e.process(r)
		of.next, of.owner.turn.next = time.Time{}, time.Time{} // which are later than the clock
		reason, held := e.hold(c, sample)
		assert.Check(t, held, "%v", reason)
		p := e.processes[r]
		e.begin(p, now)
		e.take(p)
		if left {
			e.want(p, sampleOf(r, profile.Frame{File: file, Address: 2}), now)
		}
		e.end(p, now, 0, 0)
		e.dropWanted(p)
		rest = p.next.Sub(now)
		now = p.next
		return rest
	}
	last := time.Duration(0)
	for range 10 {
		rest := ask(false)
		assert.Check(t, rest >= max(last, shortest) && rest <= longest, "%v, after %v", rest, last)
		last = rest
	}
	assert.Check(t, last > longest/2 && ask(true) == shortest && ask(false) > shortest, "%v", last)
}

// A worker that answers less than it was asked for is asked again for the rest; one that answers
// nothing has failed.
func TestAnswersThatDoNotFit(t *testing.T) {
	e := silent(t)
	r := &profile.Resource{}
	e.Sampled(sampleOf(r, profile.Frame{Address: 0x1010}, profile.Frame{Address: 0x2010}))
	p := e.processes[r]
	e.answer(p, 1, rangeOf(0x1000, 0x1020, "one"))
	_, waits := p.owner.waiting[p]
	assert.Check(t, len(p.wanted) == 1 && waits, "%d addresses are wanted", len(p.wanted))
	refused := &symbolizer.LiveNames{Code: symbolizer.LiveFile{Failure: symbolizer.PerfMapRefused}}
	assert.Check(t, isEmpty(&symbolizer.LiveNames{}) && !isEmpty(refused), "isEmpty is wrong")
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	e.counted()
}

// The kernel's names are read again when they could not be.
func TestKernelFailures(t *testing.T) {
	e := silent(t)
	e.procRoot = t.TempDir()
	e.symbols = symbolizer.NewKernel(e.procRoot, e.procRoot)
	vmlinux := &profile.File{ID: profile.FileID{1}, Kind: profile.KernelFrame, Path: symbolizer.VMLinuxPath}
	frames := []profile.Frame{{File: vmlinux, Address: 64}, {Address: symbolizer.KernelSpace + 5}}
	r := &profile.Resource{}
	e.Sampled(sampleOf(r, frames...))
	e.askKernel()
	if n := e.failures(failedKernel); n != 2 || len(e.kernel.wanted) > 0 {
		t.Errorf("%d failures, %d addresses wanted", n, len(e.kernel.wanted))
	}
	for _, f := range frames {
		assert.Check(t, e.kernel.files[f.FileID()].find(f.Address) == nil,
			"what could not be read is known to have no name")
	}
	e.Sampled(sampleOf(r, frames...))
	if len(e.kernel.wanted) > 0 || e.unnamed(unnamedFailed) != 2 {
		t.Errorf("%d addresses are wanted before it is time; %d samples without names", len(e.kernel.wanted),
			e.unnamed(unnamedFailed))
	}
}
