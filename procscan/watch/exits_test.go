package watch

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

func newExitWatcher(t *testing.T) *ExitWatcher {
	t.Helper()
	w, err := NewExitWatcher()
	assert.NilError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func openSleep(t *testing.T) (*child.Process, *procscan.Handle) {
	t.Helper()
	p := child.StartSleep(t)
	h, err := procscan.OpenProcess("/proc", procscan.ProcessID{PID: p.PID, StartTime: child.StartTime(t, p.PID)})
	assert.NilError(t, err)
	t.Cleanup(func() { h.Close() })
	return p, h
}

func descriptorOf(t *testing.T, h *procscan.Handle) int {
	t.Helper()
	number := -1
	assert.NilError(t, h.Control(func(fd int) { number = fd }))
	return number
}

// exits counts the calls of a callback. When a later exit is reported, an earlier one would have
// been: the watcher has one goroutine.
type exits struct{ calls atomic.Int64 }

func (e *exits) add()           { e.calls.Add(1) }
func (e *exits) reported() bool { return e.calls.Load() > 0 }

// waitReported waits until the watcher has reported an exit that happens after this call.
func waitReported(t *testing.T, w *ExitWatcher) {
	t.Helper()
	p, h := openSleep(t)
	p.Kill()
	done := make(chan struct{})
	assert.NilError(t, w.Add(h, func() { close(done) }))
	<-done
}

func (w *ExitWatcher) watching() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watches) != len(w.tokens) {
		return -1
	}
	return len(w.watches)
}

// Hundreds of processes exit at once, some while they are added, some before.
func TestExitWatcherMany(t *testing.T) {
	const processes = 300
	w := newExitWatcher(t)
	type watched struct {
		process *child.Process
		handle  *procscan.Handle
		exits   exits
	}
	all := make([]watched, processes)
	for i := range all {
		all[i].process, all[i].handle = openSleep(t)
	}
	add := func(i int) {
		assert.Check(t, w.Add(all[i].handle, all[i].exits.add))
	}
	for i := range processes / 3 {
		add(i)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for i := processes / 3; i < processes*2/3; i++ {
			add(i)
		}
	})
	group.Go(func() {
		for i := range all {
			all[i].process.Cmd.Process.Kill()
		}
	})
	group.Wait()
	for i := processes * 2 / 3; i < processes; i++ {
		if i%2 == 0 {
			all[i].process.Kill() // reaped
		}
		add(i)
	}
	for i := range all {
		testenv.Poll(t, child.Timeout, "the exit", all[i].exits.reported)
	}
	waitReported(t, w)
	for i := range all {
		n := all[i].exits.calls.Load()
		assert.Check(t, n == 1, "exit %d was reported %d times", i, n)
		assert.Check(t, !w.Remove(all[i].handle), "exit %d was reported, and removed in time", i)
	}
	n := w.watching()
	assert.Check(t, n == 0, "%d processes are still watched", n)
}

// Either the callback runs or Remove is in time, never both or neither.
func TestExitWatcherRemoveRace(t *testing.T) {
	w := newExitWatcher(t)
	inTime := 0
	for range 200 {
		p, h := openSleep(t)
		var reported exits
		assert.NilError(t, w.Add(h, reported.add))
		var removed bool
		var group sync.WaitGroup
		group.Go(p.Kill)
		group.Go(func() { removed = w.Remove(h) })
		group.Wait()
		h.Close()
		waitReported(t, w)
		calls := reported.calls.Load()
		assert.Assert(t, (calls == 1) != removed && calls <= 1, "removed %v, reported %d times", removed, calls)
		if removed {
			inTime++
		}
	}
	t.Logf("removed in time: %d of 200", inTime)
}

func TestExitWatcherRemove(t *testing.T) {
	w := newExitWatcher(t)
	p, h := openSleep(t)
	var first, second exits
	assert.Check(t, !w.Remove(h), "removed a handle that was not added")
	assert.NilError(t, w.Add(h, first.add))
	err := w.Add(h, second.add)
	assert.Check(t, errors.Is(err, unix.EEXIST), "added twice: %v", err)
	assert.Check(t, w.Remove(h) && !w.Remove(h), "not removed exactly once")
	assert.Check(t, w.Add(h, second.add), "added again")
	p.Kill()
	testenv.Poll(t, child.Timeout, "the exit", second.reported)
	waitReported(t, w)
	assert.Check(t, !first.reported() && second.calls.Load() == 1,
		"reported %d and %d times", first.calls.Load(), second.calls.Load())
	assert.Check(t, w.Add(h, first.add), "added after its exit was reported")
	testenv.Poll(t, child.Timeout, "the exit once more", first.reported)
}

// Callbacks may use the watcher.
func TestExitWatcherCallback(t *testing.T) {
	w := newExitWatcher(t)
	p1, h1 := openSleep(t)
	p2, h2 := openSleep(t)
	var reported exits
	assert.NilError(t, w.Add(h1, func() {
		assert.Check(t, !w.Remove(h1), "removed in time by its own callback")
		assert.Check(t, w.Add(h2, reported.add))
	}))
	p1.Kill()
	p2.Kill()
	testenv.Poll(t, child.Timeout, "the exit", reported.reported)
}

// The exit of a process whose handle was closed too early is not reported, and affects no other
// process, even one whose descriptor has the same number.
func TestExitWatcherClosedHandle(t *testing.T) {
	w := newExitWatcher(t)
	p, h := openSleep(t)
	var lost exits
	assert.NilError(t, w.Add(h, lost.add))
	_, living := openSleep(t)
	number := descriptorOf(t, h)
	h.Close()
	// The kernel assigns the lowest free number, so sooner or later this one.
	var otherHandle *procscan.Handle
	for otherHandle == nil || descriptorOf(t, otherHandle) < number {
		var err error
		otherHandle, err = procscan.OpenProcess("/proc", living.Identity())
		assert.NilError(t, err)
		defer otherHandle.Close()
	}
	got := descriptorOf(t, otherHandle)
	assert.Assert(t, got == number, "the descriptor's number is %d, not %d", got, number)
	var reported exits
	assert.NilError(t, w.Add(otherHandle, reported.add))
	p.Kill()
	assert.Check(t, w.Remove(h), "a closed handle is not removed")
	waitReported(t, w)
	assert.Check(t, !lost.reported() && !reported.reported(),
		"reported: %v of the closed handle, %v of a living process", lost.reported(), reported.reported())
	err := w.Add(h, lost.add)
	assert.Check(t, errors.Is(err, os.ErrClosed), "adding a closed handle: %v", err)
	n := w.watching()
	assert.Check(t, n == 1, "%d processes are watched, want the living one", n)
}

func TestExitWatcherClose(t *testing.T) {
	var processes []*child.Process
	var handles []*procscan.Handle
	for range 50 {
		p, h := openSleep(t)
		processes, handles = append(processes, p), append(handles, h)
	}
	before := child.Descriptors(t)
	w, err := NewExitWatcher()
	assert.NilError(t, err)
	var closing sync.WaitGroup
	var after exits
	var closed atomic.Bool
	for i, h := range handles {
		assert.NilError(t, w.Add(h, func() {
			if closed.Load() {
				after.add()
			}
		}))
		closing.Go(func() { processes[i].Cmd.Process.Kill() })
	}
	for range 3 {
		closing.Go(func() {
			w.Close()
			closed.Store(true)
		})
	}
	closing.Wait()
	assert.Check(t, !after.reported(), "a callback ran after Close")
	err = w.Add(handles[0], after.add)
	assert.Check(t, errors.Is(err, os.ErrClosed), "adding to a closed watcher: %v", err)
	assert.Check(t, !w.Remove(handles[0]), "removed from a closed watcher")
	n := child.Descriptors(t)
	assert.Check(t, n == before, "%d descriptors before, %d after", before, n)
}
