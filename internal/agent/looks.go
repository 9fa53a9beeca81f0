package agent

import (
	"sync"
	"time"
)

const (
	// maxLooks is how many processes are looked at in the same moment because of live events. Each can
	// make its look hang; when all do, sweeps go on.
	maxLooks = 64
	// maxPendingLooks is how many wait for that, each with a goroutine.
	maxPendingLooks = 4096

	// A process is left alone after a look for lookPause, and for lookShare times as long as the look took,
	// whatever events tell of it meanwhile: one that maps its library in a loop costs 5 % of a CPU, or
	// more only if one look takes longer than 50 ms: the pause is a second at most.
	lookPause = 20 * time.Millisecond
	lookShare = 20
)

// looks are the looks at single processes that events ask for: at most one at a time at each, and one
// after the last event.
type looks struct {
	slots   chan struct{} // has a token for each that is under way
	running sync.WaitGroup

	end chan struct{} // closed by close

	mu      sync.Mutex
	pending map[int]bool // by pid: whether to look again
	closed  bool
}

// rest waits for a while, or until the end.
func (l *looks) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.end:
	}
}

func newLooks() *looks {
	return &looks{slots: make(chan struct{}, maxLooks), end: make(chan struct{}), pending: make(map[int]bool)}
}

// add has look called for a process, on a goroutine. It answers false when there are too many.
func (l *looks) add(pid int, look func(pid int)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, pending := l.pending[pid]
	switch {
	case l.closed:
		return true
	case !pending && len(l.pending) >= maxPendingLooks:
		return false
	}
	l.pending[pid] = true
	if !pending {
		l.running.Go(func() {
			for l.next(pid) {
				select {
				case l.slots <- struct{}{}:
				case <-l.end:
					continue
				}
				if l.ended() {
					<-l.slots
					continue
				}
				began := time.Now()
				look(pid)
				took := time.Since(began)
				<-l.slots
				l.rest(max(lookPause, min(lookShare*took, time.Second)))
			}
		})
	}
	return true
}

// next says whether to look at a process again; if not, it is forgotten.
func (l *looks) next(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.pending[pid] && !l.closed
	l.pending[pid] = false
	if !again {
		delete(l.pending, pid)
	}
	return again
}

func (l *looks) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close waits for looks that are under way. None begins any more.
func (l *looks) close() {
	l.mu.Lock()
	l.closed = true
	close(l.end)
	l.mu.Unlock()
	l.running.Wait()
}
