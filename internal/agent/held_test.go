package agent

import (
	"testing"

	"correlator/internal/sampling"
)

// What does not fit is refused, and no more: else a program whose first samples are too many would never
// be looked at.
func TestHeldQueue(t *testing.T) {
	q := newHeldQueue()
	if n := q.add(make([]sampling.Held, 2*maxHeld)); n != maxHeld {
		t.Errorf("%d held, want %d", n, maxHeld)
	}
	if n := q.add(make([]sampling.Held, 1)); n != 0 {
		t.Errorf("%d held in a full queue", n)
	}
	<-q.ready
	if n := len(q.take()); n != maxHeld {
		t.Errorf("%d taken", n)
	}
	if n := q.add(make([]sampling.Held, 3)); n != 3 || len(q.ready) != 1 {
		t.Errorf("%d held after that, want 3", n)
	}
}
