package lifecycle

import (
	"context"
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
	ctx     context.Context // ends with end
	end     context.CancelFunc

	mu      sync.Mutex
	pending map[int]bool // by pid: whether to probe again
}

func newProbeQueue() *probeQueue {
	q := &probeQueue{slots: make(chan struct{}, maxProbes), pending: make(map[int]bool)}
	q.ctx, q.end = context.WithCancel(context.Background())
	return q
}

// add has probe called for a process, on a goroutine. It returns false when there are too many.
func (q *probeQueue) add(pid int, probe func(pid int)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, pending := q.pending[pid]
	switch {
	case q.ctx.Err() != nil:
		return true
	case !pending && len(q.pending) >= maxPendingProbes:
		return false
	}
	q.pending[pid] = true
	if !pending {
		q.running.Go(func() {
			for q.next(pid) {
				q.run(pid, probe)
			}
		})
	}
	return true
}

// run probes a process when there is a slot for it, and waits for the pause after that.
func (q *probeQueue) run(pid int, probe func(pid int)) {
	select {
	case q.slots <- struct{}{}:
	case <-q.ctx.Done():
	}
	if q.ctx.Err() != nil {
		return
	}
	began := time.Now()
	probe(pid)
	took := time.Since(began)
	<-q.slots
	select {
	case <-time.After(max(probePause, min(probeShare*took, time.Second))):
	case <-q.ctx.Done():
	}
}

// next reports whether to probe a process again; if not, it is forgotten.
func (q *probeQueue) next(pid int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := q.pending[pid] && q.ctx.Err() == nil
	q.pending[pid] = false
	if !again {
		delete(q.pending, pid)
	}
	return again
}

// close waits for probes that are under way. None begins any more.
func (q *probeQueue) close() {
	q.mu.Lock()
	q.end()
	q.mu.Unlock()
	q.running.Wait()
}
