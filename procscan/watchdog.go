package procscan

import (
	"errors"
	"sync"
	"time"
)

const (
	// lookTimeout is how long a look at one process may take. The largest maps take the kernel a
	// few hundred ms to write; a process that keeps its memory map locked takes as long as it
	// likes.
	lookTimeout = 2 * time.Second

	// maxStuck is how many looks may be left behind, each with a thread and a buffer of 32 KiB.
	// Those that are under way when it is reached may still be added.
	maxStuck = 256
)

var errManyStuck = errors.New("too many processes make us hang")

// watchdog keeps a look that hangs from holding up anything else. Looks are taken on a goroutine
// beside the caller's; when one takes longer than timeout, the goroutine is left behind with it,
// and the process is not looked at again until it returns. It is safe for concurrent use.
type watchdog struct {
	timeout time.Duration

	mu    sync.Mutex
	left  int         // looks that were left behind and have not returned
	stuck map[int]int // how many of them there are, by pid
}

func newWatchdog(timeout time.Duration) *watchdog {
	return &watchdog{timeout: timeout, stuck: make(map[int]int)}
}

// round is one goroutine's way along a list of processes. The watchdog's mutex guards it.
type round struct {
	at    int       // the process that is being looked at
	since time.Time // when that began; zero between looks
	left  bool      // behind: nobody waits for a result any more
}

type lookResult struct {
	looked int // at how many processes
	found  Found
	err    error
}

// look looks at processes one after the other, up to the first of which there is something to
// tell, or the last. It returns at how many it has looked and what the last look returned: what
// look did, ErrStuck, or errManyStuck. There must be at least one.
//
// One goroutine, and one timer, serve for the whole way: most processes of a host tell nothing,
// and to look at one takes less time than to start a thread for it.
func (w *watchdog) look(pids []int, look func(pid int) (Found, error)) lookResult {
	r := new(round)
	result := make(chan lookResult, 1) // so that the goroutine never waits
	go func() {
		for i, pid := range pids {
			var found Found
			err := w.begin(r, i, pid)
			if err == nil {
				found, err = look(pid)
				if !w.end(r, pid) {
					return
				}
			} else {
				found.PID = pid
			}
			if i == len(pids)-1 || !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrGone) {
				result <- lookResult{i + 1, found, err}
				return
			}
		}
	}()
	timer := time.NewTimer(w.timeout)
	defer timer.Stop()
	for {
		select {
		case done := <-result:
			return done
		case <-timer.C:
			at, wait := w.leave(r, pids)
			if wait == 0 {
				return lookResult{at + 1, Found{ProcessID: ProcessID{PID: pids[at]}}, ErrStuck}
			}
			timer.Reset(wait)
		}
	}
}

// begin refuses a process that hangs already.
func (w *watchdog) begin(r *round, at, pid int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck[pid] > 0 {
		return ErrStuck
	}
	if w.left >= maxStuck {
		return errManyStuck
	}
	r.at, r.since = at, time.Now()
	return nil
}

// end reports whether the look has returned in time.
func (w *watchdog) end(r *round, pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.since = time.Time{}
	if r.left {
		w.left--
		if w.stuck[pid]--; w.stuck[pid] == 0 {
			delete(w.stuck, pid)
		}
	}
	return !r.left
}

// leave leaves a round behind whose look hangs: then it answers which that is, and 0. Otherwise it
// answers how long to wait before it is asked again.
func (w *watchdog) leave(r *round, pids []int) (at int, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.since.IsZero() {
		return r.at, w.timeout
	}
	if wait = w.timeout - time.Since(r.since); wait > 0 {
		return r.at, wait
	}
	r.left = true
	w.left++
	w.stuck[pids[r.at]]++
	return r.at, 0
}
