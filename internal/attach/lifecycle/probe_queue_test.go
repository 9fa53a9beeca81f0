package lifecycle

import (
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// However often a probe of a process is requested, there is one at a time, and one after the last
// request. Probes that hang hold up a number of others, but not those who request.
func TestProbeQueue(t *testing.T) {
	l := newProbeQueue()
	let := make(chan struct{})
	var under, most, total atomic.Int64
	probe := func(int) {
		if now := under.Add(1); now > most.Load() {
			most.Store(now)
		}
		<-let
		under.Add(-1)
		total.Add(1)
	}
	for range 1000 {
		assert.Assert(t, l.add(1, probe), "refused")
	}
	testenv.Poll(t, deadline, "a probe", func() bool { return under.Load() == 1 })
	l.add(1, probe)
	let <- struct{}{}
	testenv.Poll(t, deadline, "a probe after the last request",
		func() bool { return total.Load() == 1 && under.Load() == 1 })
	let <- struct{}{}
	testenv.Poll(t, deadline, "nothing to be left", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pending) == 0
	})
	if total.Load() != 2 || most.Load() != 1 {
		t.Errorf("%d probes, up to %d at a time", total.Load(), most.Load())
	}

	for pid := range maxPendingProbes {
		assert.Assert(t, l.add(pid, probe), "process %d refused", pid)
	}
	assert.Check(t, !l.add(maxPendingProbes, probe), "there is no end")
	testenv.Poll(t, deadline, "the most probes at a time", func() bool { return under.Load() == maxProbes })
	ended := make(chan struct{})
	go func() {
		l.close()
		close(ended)
	}()
	testenv.Poll(t, deadline, "the end to begin", func() bool { return l.ctx.Err() != nil })
	before := total.Load()
	close(let)
	<-ended
	if begun := total.Load() - before; begun != maxProbes || most.Load() != maxProbes {
		t.Errorf("up to %d probes at a time, %d that were not over at the end", most.Load(), begun)
	}
	before = total.Load()
	assert.Check(t, l.add(1, probe) && total.Load() == before, "a probe after the end")
}
