package agent

import (
	"sync/atomic"
	"testing"

	"correlator/internal/testenv"
)

// However often a process is asked for, it is looked at once at a time, and once after it was asked for
// last. Looks that hang hold up a number of others, but not those who ask.
func TestLooks(t *testing.T) {
	l := newLooks()
	let := make(chan struct{})
	var under, most, total atomic.Int64
	look := func(int) {
		if now := under.Add(1); now > most.Load() {
			most.Store(now)
		}
		<-let
		under.Add(-1)
		total.Add(1)
	}
	for range 1000 {
		if !l.add(1, look) {
			t.Fatal("refused")
		}
	}
	testenv.Poll(t, deadline, "a look", func() bool { return under.Load() == 1 })
	l.add(1, look)
	let <- struct{}{}
	testenv.Poll(t, deadline, "a look after the last word", func() bool { return total.Load() == 1 && under.Load() == 1 })
	let <- struct{}{}
	testenv.Poll(t, deadline, "nothing to be left", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pending) == 0
	})
	if total.Load() != 2 || most.Load() != 1 {
		t.Errorf("%d looks, up to %d at a time", total.Load(), most.Load())
	}

	for pid := range maxPendingLooks {
		if !l.add(pid, look) {
			t.Fatalf("process %d refused", pid)
		}
	}
	if l.add(maxPendingLooks, look) {
		t.Error("there is no end")
	}
	testenv.Poll(t, deadline, "the most looks at a time", func() bool { return under.Load() == maxLooks })
	ended := make(chan struct{})
	go func() {
		l.close()
		close(ended)
	}()
	testenv.Poll(t, deadline, "the end to begin", l.ended)
	before := total.Load()
	close(let)
	<-ended
	if begun := total.Load() - before; begun != maxLooks || most.Load() != maxLooks {
		t.Errorf("up to %d looks at a time, %d that were not over at the end", most.Load(), begun)
	}
	before = total.Load()
	if !l.add(1, look) || total.Load() != before {
		t.Error("a look after the end")
	}
}
