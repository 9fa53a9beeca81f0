package agent

import (
	"testing"
	"time"

	"correlator/internal/sampling"
)

// What does not fit is refused, and no more: else a program whose first samples are too many would never
// be looked at.
func TestHeldQueue(t *testing.T) {
	q := newHeldQueue()
	if n, _ := q.add(make([]sampling.Held, 2*maxHeld), time.Time{}); n != maxHeld {
		t.Errorf("%d held, want %d", n, maxHeld)
	}
	if n, _ := q.add(make([]sampling.Held, 1), time.Time{}); n != 0 {
		t.Errorf("%d held in a full queue", n)
	}
	<-q.ready
	if n := len(q.take()); n != maxHeld {
		t.Errorf("%d taken", n)
	}
	if n, _ := q.add(make([]sampling.Held, 3), time.Time{}); n != 3 || len(q.ready) != 1 {
		t.Errorf("%d held after that, want 3", n)
	}
	if n, late := q.add(make([]sampling.Held, maxHeld), time.Now()); n != maxHeld || len(late) != 3 {
		t.Errorf("%d held when %d were late, want all and 3", n, len(late))
	}
}
