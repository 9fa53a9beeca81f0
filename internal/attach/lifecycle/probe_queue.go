package lifecycle

import (
	"sync"
	"time"
)

const (
	// maxProbes is how many processes are probed at the same time because of live events. Each can
	// make its probe hang; when all do, sweeps go on.
	maxProbes = 64
	// maxPendingProbes is how many wait for that, each with a goroutine.
	maxPendingProbes = 4096

	// A process is left alone after a probe for probePause, and for probeShare times as long as the
	// probe took, whatever events report of it meanwhile: one that maps its library in a loop costs
	// 5 % of a CPU, or more only if one probe takes longer than 50 ms: the pause is a second at
	// most.
	probePause = 20 * time.Millisecond
	probeShare = 20
)

// probeQueue runs the probes of single processes that live events ask for: at most one at a time of
// each, and one after the last event.
type probeQueue struct {
	slots   chan struct{} // has a token for each probe that is under way
	running sync.WaitGroup

	end chan struct{} // closed by close

	mu      sync.Mutex
	pending map[int]bool // by pid: whether to probe again
	closed  bool
}

func newProbeQueue() *probeQueue {
	return &probeQueue{slots: make(chan struct{}, maxProbes), end: make(chan struct{}), pending: make(map[int]bool)}
}

// pause waits for a while, or until the end.
func (q *probeQueue) pause(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.end:
	}
}

// add has probe called for a process, on a goroutine. It returns false when there are too many.
func (q *probeQueue) add(pid int, probe func(pid int)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, pending := q.pending[pid]
	switch {
	case q.closed:
		return true
	case !pending && len(q.pending) >= maxPendingProbes:
		return false
	}
	q.pending[pid] = true
	if !pending {
		q.running.Go(func() {
			for q.next(pid) {
				select {
				case q.slots <- struct{}{}:
				case <-q.end:
					continue
				}
				if q.ended() {
					<-q.slots
					continue
				}
				began := time.Now()
				probe(pid)
				took := time.Since(began)
				<-q.slots
				q.pause(max(probePause, min(probeShare*took, time.Second)))
			}
		})
	}
	return true
}

// next reports whether to probe a process again; if not, it is forgotten.
func (q *probeQueue) next(pid int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := q.pending[pid] && !q.closed
	q.pending[pid] = false
	if !again {
		delete(q.pending, pid)
	}
	return again
}

func (q *probeQueue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// close waits for probes that are under way. None begins any more.
func (q *probeQueue) close() {
	q.mu.Lock()
	q.closed = true
	close(q.end)
	q.mu.Unlock()
	q.running.Wait()
}
