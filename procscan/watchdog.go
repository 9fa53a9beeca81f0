package procscan

import (
	"errors"
	"sync"
	"time"
)

const (
	// probeTimeout is how long a probe of one process may take. The largest maps take the kernel a
	// few hundred ms to format; a process that keeps its memory map locked takes as long as it
	// likes.
	probeTimeout = 2 * time.Second

	// A sweep waits that long for each process after maxPatience that hung: as many may hang as there
	// are, and others come after them. It is more than reading 65,530 mappings takes.
	hurriedTimeout = 100 * time.Millisecond
	maxPatience    = 4

	// maxStuck is how many probes may be abandoned at a time, each with a thread and a buffer of 32
	// KiB, and maxStuckOfUser how many of them because of processes of one user: further ones of that
	// user are not probed. Those under way when it is reached may still be added.
	maxStuck       = 256
	maxStuckOfUser = 32
)

var errManyStuck = errors.New("too many probes hang")

// watchdog keeps a probe that hangs from delaying anything else. Probes run on a goroutine of their
// own; one that takes longer than timeout is abandoned with its goroutine, and the process is not
// probed again until it returns. It is safe for concurrent use.
type watchdog struct {
	timeout time.Duration
	hurried time.Duration        // see hurriedTimeout
	user    func(pid int) uint32 // returns whose process it is, without blocking

	mu        sync.Mutex
	abandoned int            // abandoned probes that have not returned
	stuck     map[int]int    // how many of them, by pid
	stuckOf   map[uint32]int // how many of them, by user
}

func newWatchdog(timeout time.Duration, user func(pid int) uint32) *watchdog {
	return &watchdog{timeout: timeout, hurried: hurriedTimeout, user: user, stuck: make(map[int]int),
		stuckOf: make(map[uint32]int)}
}

// round is one goroutine's progress along a list of processes. The watchdog's mutex guards it.
type round struct {
	at        int       // index of the process that is being probed
	since     time.Time // when that began; zero between probes
	abandoned bool      // no caller waits for the result any more
	user      uint32    // then: to whom that is charged
}

type probeResult struct {
	probed int // how many processes were probed
	found  Found
	err    error
}

// run probes processes one after the other, up to the first with a result other than ErrNotFound
// and ErrGone, or the last. It returns how many it has probed and the result of the last one: that
// of probe, ErrStuck, or errManyStuck. There must be at least one.
//
// One goroutine and one timer serve the whole list: most processes of a host have no result, and
// probing one takes less time than starting a thread for it.
func (w *watchdog) run(pids []int, probe func(pid int) (Found, error)) probeResult {
	return w.runWithin(w.timeout, pids, probe)
}

// runWithin is run with another timeout.
func (w *watchdog) runWithin(timeout time.Duration, pids []int, probe func(pid int) (Found, error)) probeResult {
	r := new(round)
	result := make(chan probeResult, 1) // so that the goroutine never waits
	go func() {
		for i, pid := range pids {
			var found Found
			err := w.begin(r, i, pid)
			if err == nil {
				found, err = probe(pid)
				if !w.end(r, pid) {
					return
				}
			} else {
				found.PID = pid
			}
			if i == len(pids)-1 || !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrGone) {
				result <- probeResult{i + 1, found, err}
				return
			}
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case done := <-result:
			return done
		case <-timer.C:
			at, wait := w.abandon(r, pids, timeout)
			if wait == 0 {
				return probeResult{at + 1, Found{ProcessID: ProcessID{PID: pids[at]}}, ErrStuck}
			}
			timer.Reset(wait)
		}
	}
}

// begin refuses a process whose earlier probe still hangs, or too many of its user.
func (w *watchdog) begin(r *round, at, pid int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck[pid] > 0 || w.abandoned >= maxStuckOfUser && w.stuckOf[w.user(pid)] >= maxStuckOfUser {
		return ErrStuck
	}
	if w.abandoned >= maxStuck {
		return errManyStuck
	}
	r.at, r.since = at, time.Now()
	return nil
}

// end reports whether the probe has returned in time.
func (w *watchdog) end(r *round, pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.since = time.Time{}
	if r.abandoned {
		w.abandoned--
		release(w.stuck, pid)
		release(w.stuckOf, r.user)
	}
	return !r.abandoned
}

func release[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// abandon abandons a round whose probe hangs, and returns the index of its process and 0. Otherwise
// it returns how long to wait before the next call.
func (w *watchdog) abandon(r *round, pids []int, timeout time.Duration) (at int, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.since.IsZero() {
		return r.at, timeout
	}
	if wait = timeout - time.Since(r.since); wait > 0 {
		return r.at, wait
	}
	pid := pids[r.at]
	r.abandoned, r.user = true, w.user(pid)
	w.abandoned++
	w.stuck[pid]++
	w.stuckOf[r.user]++
	return r.at, 0
}
