package watch

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

func newExitWatcher(t *testing.T) *ExitWatcher {
	t.Helper()
	w, err := NewExitWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func openSleep(t *testing.T) (*child.Process, *procscan.Handle) {
	t.Helper()
	p := child.StartSleep(t)
	h, err := procscan.OpenProcess("/proc", procscan.ProcessID{PID: p.PID, StartTime: child.StartTime(t, p.PID)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return p, h
}

func descriptorOf(t *testing.T, h *procscan.Handle) int {
	t.Helper()
	number := -1
	if err := h.Control(func(fd int) { number = fd }); err != nil {
		t.Fatal(err)
	}
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
	if err := w.Add(h, func() { close(done) }); err != nil {
		t.Fatal(err)
	}
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
		if err := w.Add(all[i].handle, all[i].exits.add); err != nil {
			t.Error(err)
		}
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
		if n := all[i].exits.calls.Load(); n != 1 {
			t.Errorf("exit %d was reported %d times", i, n)
		}
		if w.Remove(all[i].handle) {
			t.Errorf("exit %d was reported, and removed in time", i)
		}
	}
	if n := w.watching(); n != 0 {
		t.Errorf("%d processes are still watched", n)
	}
}

// Either the callback runs or Remove is in time, never both or neither.
func TestExitWatcherRemoveRace(t *testing.T) {
	w := newExitWatcher(t)
	inTime := 0
	for range 200 {
		p, h := openSleep(t)
		var reported exits
		if err := w.Add(h, reported.add); err != nil {
			t.Fatal(err)
		}
		var removed bool
		var group sync.WaitGroup
		group.Go(p.Kill)
		group.Go(func() { removed = w.Remove(h) })
		group.Wait()
		h.Close()
		waitReported(t, w)
		if calls := reported.calls.Load(); (calls == 1) == removed || calls > 1 {
			t.Fatalf("removed %v, reported %d times", removed, calls)
		}
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
	if w.Remove(h) {
		t.Error("removed a handle that was not added")
	}
	if err := w.Add(h, first.add); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(h, second.add); !errors.Is(err, unix.EEXIST) {
		t.Errorf("added twice: %v", err)
	}
	if !w.Remove(h) || w.Remove(h) {
		t.Error("not removed exactly once")
	}
	if err := w.Add(h, second.add); err != nil {
		t.Errorf("added again: %v", err)
	}
	p.Kill()
	testenv.Poll(t, child.Timeout, "the exit", second.reported)
	waitReported(t, w)
	if first.reported() || second.calls.Load() != 1 {
		t.Errorf("reported %d and %d times", first.calls.Load(), second.calls.Load())
	}
	if err := w.Add(h, first.add); err != nil {
		t.Errorf("added after its exit was reported: %v", err)
	}
	testenv.Poll(t, child.Timeout, "the exit once more", first.reported)
}

// Callbacks may use the watcher.
func TestExitWatcherCallback(t *testing.T) {
	w := newExitWatcher(t)
	p1, h1 := openSleep(t)
	p2, h2 := openSleep(t)
	var reported exits
	if err := w.Add(h1, func() {
		if w.Remove(h1) {
			t.Error("removed in time by its own callback")
		}
		if err := w.Add(h2, reported.add); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
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
	if err := w.Add(h, lost.add); err != nil {
		t.Fatal(err)
	}
	_, living := openSleep(t)
	number := descriptorOf(t, h)
	h.Close()
	// The kernel assigns the lowest free number, so sooner or later this one.
	var otherHandle *procscan.Handle
	for otherHandle == nil || descriptorOf(t, otherHandle) < number {
		var err error
		if otherHandle, err = procscan.OpenProcess("/proc", living.Identity()); err != nil {
			t.Fatal(err)
		}
		defer otherHandle.Close()
	}
	if got := descriptorOf(t, otherHandle); got != number {
		t.Fatalf("the descriptor's number is %d, not %d", got, number)
	}
	var reported exits
	if err := w.Add(otherHandle, reported.add); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if !w.Remove(h) {
		t.Error("a closed handle is not removed")
	}
	waitReported(t, w)
	if lost.reported() || reported.reported() {
		t.Errorf("reported: %v of the closed handle, %v of a living process", lost.reported(), reported.reported())
	}
	if err := w.Add(h, lost.add); !errors.Is(err, os.ErrClosed) {
		t.Errorf("adding a closed handle: %v", err)
	}
	if n := w.watching(); n != 1 {
		t.Errorf("%d processes are watched, want the living one", n)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	var closing sync.WaitGroup
	var after exits
	var closed atomic.Bool
	for i, h := range handles {
		if err := w.Add(h, func() {
			if closed.Load() {
				after.add()
			}
		}); err != nil {
			t.Fatal(err)
		}
		closing.Go(func() { processes[i].Cmd.Process.Kill() })
	}
	for range 3 {
		closing.Go(func() {
			w.Close()
			closed.Store(true)
		})
	}
	closing.Wait()
	if after.reported() {
		t.Error("a callback ran after Close")
	}
	if err := w.Add(handles[0], after.add); !errors.Is(err, os.ErrClosed) {
		t.Errorf("adding to a closed watcher: %v", err)
	}
	if w.Remove(handles[0]) {
		t.Error("removed from a closed watcher")
	}
	if n := child.Descriptors(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}
