package watch

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

// fired reports whether the waker has fired, and resets it. The kernel fires it before the system
// call that made the record returns.
func fired(t *testing.T, r *perfRing) bool {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.waker), Events: unix.POLLIN}}, 0)
		if err == nil {
			return n == 1
		}
		assert.Assert(t, err == unix.EINTR, err)
	}
}

// The waker fires for any number of records, is paused while the ring is polled, and resumes then.
func TestRingWaker(t *testing.T) {
	testenv.NeedRoot(t)
	f := createLibrary(t)
	onEachCPU(t, func(cpu int) {
		r, err := openPerfRing(cpu, ringBytes)
		assert.NilError(t, err)
		defer r.close()
		poll := func() (again bool) {
			t.Helper()
			again, err := r.poll(func(Event) {})
			assert.NilError(t, err)
			return again
		}
		for range 2 * os.Getpagesize() / mmap2NameOffset { // more than the waker's own ring holds
			mapOnce(t, f)
		}
		fired(t, r)
		mapOnce(t, f)
		assert.Check(t, fired(t, r), "the waker did not fire, though the ring was not polled")

		assert.Check(t, poll(), "a poll that finds records does not ask for another")
		fired(t, r)
		mapOnce(t, f)
		assert.Check(t, !fired(t, r), "the waker fires while the ring is polled")

		for r.wakerPaused { // other processes make mappings, too
			assert.Check(t, poll(), "no poll follows when the waker resumes")
		}
		fired(t, r)
		mapOnce(t, f)
		assert.Check(t, fired(t, r), "the waker did not fire, though the ring is no longer polled")
	})
}

// wakeUps calls epoll_wait a few times, and returns how often it reports the eventfd.
func wakeUps(t *testing.T, w *EventWatcher) (reported int) {
	t.Helper()
	ready := make([]unix.EpollEvent, wakeBatch)
	for range 10 {
		n, err := unix.EpollWait(w.epoll, ready, 0)
		assert.Assert(t, err == nil || err == unix.EINTR, err)
		for _, event := range ready[:max(n, 0)] {
			if event.Fd == int32(w.wake) {
				reported++
			}
		}
	}
	return reported
}

// goroutineIs reports whether a goroutine is in a state, and in a function.
func goroutineIs(state, function string) bool {
	stacks := make([]byte, 1<<20)
	for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		head, calls, _ := strings.Cut(string(stack), "\n")
		if strings.Contains(head, state) && strings.Contains(calls, function) {
			return true
		}
	}
	return false
}

// A wake-up is reported once, although the eventfd is never read and stays readable.
func TestEventsReportedOnce(t *testing.T) {
	w := openWatcher(t, procscan.OnlineCPUs, ringBytes)
	for range 3 {
		w.interrupt()
		n := wakeUps(t, w)
		assert.Check(t, n == 1, "one wake-up was reported %d times", n)
	}
}

// Close wakes Run and waits for it, since it may be about to use a descriptor.
func TestEventsCloseWaits(t *testing.T) {
	w := openWatcher(t, procscan.OnlineCPUs, ringBytes)
	w.running.Lock() // as Run does
	returns := sync.OnceFunc(w.running.Unlock)
	defer returns()
	wakeUps(t, w) // that of opening
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	testenv.Poll(t, child.Timeout, "Close to wait for Run", func() bool {
		select {
		case err := <-closed:
			t.Fatalf("Close does not wait for Run: %v", err)
		default:
		}
		return goroutineIs("[sync.Mutex.Lock", "(*EventWatcher).Close(")
	})
	// fails if epoll is closed
	assert.Check(t, wakeUps(t, w) != 0, "Close does not wake Run")
	returns()
	err := <-closed
	assert.Check(t, err)
}
