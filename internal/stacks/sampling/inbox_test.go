package sampling

import (
	"sync/atomic"
	"testing"
	"time"

	"correlator/profile"
)

// What does not fit is refused, and no more: else a program whose first samples are too many would
// never be probed.
func TestInbox(t *testing.T) {
	now := time.Now()
	samples := func(n int) []pendingSample {
		all := make([]pendingSample, n)
		for i := range all {
			all[i].sample = profile.Sample{At: now}
		}
		return all
	}
	q := newInbox(new(atomic.Bool), time.Minute)
	if n, _ := q.add(samples(2*MaxPending), now); n != MaxPending {
		t.Errorf("%d added, want %d", n, MaxPending)
	}
	if n, _ := q.add(samples(1), now); n != 0 {
		t.Errorf("%d added to a full inbox", n)
	}
	<-q.ready
	taken := q.take()
	if n := len(taken); n != MaxPending {
		t.Errorf("%d taken", n)
	}
	if n, _ := q.add(samples(1), now); n != 0 {
		t.Errorf("%d added while as many as there is room for may be given back", n)
	}
	<-q.ready
	q.giveBack(taken[:2])
	if n, _ := q.add(samples(3), now); n != 3 || q.len() != 5 || len(q.ready) != 1 {
		t.Errorf("%d added after that, want 3; %d wait, want 5", n, q.len())
	}
	if n, late := q.add(samples(MaxPending), now.Add(2*time.Minute)); n != MaxPending || len(late) != 5 {
		t.Errorf("%d added when %d were late, want all and 5", n, len(late))
	}
	q = newInbox(new(atomic.Bool), 0)
	q.add(samples(3), now)
	if n, late := q.add(samples(1), now.Add(time.Hour)); n != 1 || len(late) != 0 {
		t.Errorf("%d added when %d were late without a limit", n, len(late))
	}
}
