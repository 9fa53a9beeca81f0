package sampling

import (
	"testing"
	"time"
)

// What does not fit is refused, and no more: else a program whose first samples are too many would never
// be looked at.
func TestHeldQueue(t *testing.T) {
	q := NewHeldQueue()
	if n, _ := q.Add(make([]PendingSample, 2*MaxHeld), time.Time{}); n != MaxHeld {
		t.Errorf("%d held, want %d", n, MaxHeld)
	}
	if n, _ := q.Add(make([]PendingSample, 1), time.Time{}); n != 0 {
		t.Errorf("%d held in a full queue", n)
	}
	<-q.Ready()
	if n := len(q.Take()); n != MaxHeld {
		t.Errorf("%d taken", n)
	}
	if n, _ := q.Add(make([]PendingSample, 3), time.Time{}); n != 3 || len(q.Ready()) != 1 {
		t.Errorf("%d held after that, want 3", n)
	}
	if n, late := q.Add(make([]PendingSample, MaxHeld), time.Now()); n != MaxHeld || len(late) != 3 {
		t.Errorf("%d held when %d were late, want all and 3", n, len(late))
	}
}
