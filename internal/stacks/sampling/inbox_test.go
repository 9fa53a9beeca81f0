package sampling

import (
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

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
	n, _ := q.add(samples(2*MaxPending), now)
	assert.Check(t, n == MaxPending, "%d added, want %d", n, MaxPending)
	n, _ = q.add(samples(1), now)
	assert.Check(t, n == 0, "%d added to a full inbox", n)
	<-q.ready
	taken := q.take()
	n = len(taken)
	assert.Check(t, n == MaxPending, "%d taken", n)
	n, _ = q.add(samples(1), now)
	assert.Check(t, n == 0, "%d added while as many as there is room for may be given back", n)
	<-q.ready
	q.giveBack(taken[:2])
	if n, _ := q.add(samples(3), now); n != 3 || q.len() != 5 || len(q.ready) != 1 {
		t.Errorf("%d added after that, want 3; %d wait, want 5", n, q.len())
	}
	n, late := q.add(samples(MaxPending), now.Add(2*time.Minute))
	assert.Check(t, n == MaxPending && len(late) == 5, "%d added when %d were late, want all and 5", n, len(late))
	// Those that are late go once they are more than half of all, and no others.
	q = newInbox(new(atomic.Bool), time.Minute)
	q.add(samples(2), now)
	now = now.Add(time.Minute)
	_, late = q.add(samples(2), now)
	assert.Check(t, len(late) == 0, "%d are late that are as old as may be", len(late))
	_, late = q.add(samples(1), now.Add(1))
	assert.Check(t, len(late) == 0 && q.len() == 5, "%d went that were half, %d wait", len(late), q.len())
	q = newInbox(new(atomic.Bool), time.Minute)
	q.add(samples(2), now)
	now = now.Add(time.Minute)
	q.add(samples(1), now)
	_, late = q.add(samples(3), now.Add(1))
	assert.Check(t, len(late) == 2 && q.len() == 4, "%d went that were more than half, %d wait", len(late), q.len())
	q = newInbox(new(atomic.Bool), 0)
	q.add(samples(3), now)
	n, late = q.add(samples(1), now.Add(time.Hour))
	assert.Check(t, n == 1 && len(late) == 0, "%d added when %d were late without a limit", n, len(late))
}

// What no APM agent takes is not late when that is that one would not take it any more.
func TestLateForAgents(t *testing.T) {
	now := time.Now()
	traced := profile.Sample{At: now, TraceID: [16]byte{1}, TransactionID: [8]byte{1}}
	exported, waited := traced, traced
	exported.Context, waited.Wait = profile.OTelContext, new(profile.Wait)
	q := newInbox(new(atomic.Bool), 300*time.Millisecond)
	for what, tt := range map[string]struct {
		sample pendingSample
		age    time.Duration
	}{
		"for an agent":      {pendingSample{sample: traced}, q.maxAge},
		"context not read":  {pendingSample{sample: profile.Sample{At: now}, needsContext: true}, q.maxAge},
		"of OpenTelemetry":  {pendingSample{sample: exported}, exportAge},
		"without a context": {pendingSample{sample: profile.Sample{At: now}}, exportAge},
		"a wait":            {pendingSample{sample: waited}, exportAge},
	} {
		p := &tt.sample
		assert.Check(t, !q.isLate(p, now.Add(tt.age)) && q.isLate(p, now.Add(tt.age+1)), "late: %s", what)
		named := now.Add(tt.age * 2 / 3)
		assert.Check(t, !q.isLast(p, named.Add(-1)) && q.isLast(p, named), "named: %s", what)
	}
	slow := newInbox(new(atomic.Bool), time.Minute)
	p := &pendingSample{sample: exported}
	assert.Check(t, !slow.isLate(p, now.Add(time.Minute)) && slow.isLate(p, now.Add(time.Minute+1)))
}

// Waits have a part of the room, and are refused first, whatever order they come in.
func TestWaitsInInbox(t *testing.T) {
	now := time.Now()
	mixed := func(samples, waits int) (all []pendingSample) {
		for range waits {
			all = append(all, pendingSample{sample: profile.Sample{At: now, Count: 1, Wait: new(profile.Wait)}})
		}
		for range samples {
			all = append(all, pendingSample{sample: profile.Sample{At: now, Count: 1}})
		}
		return all
	}
	const most = MaxPending / partOfWaits
	q := newInbox(new(atomic.Bool), time.Minute)
	for _, c := range []struct{ samples, waits, added int }{
		{2, most - 1, most + 1}, {3, 3, 4}, {MaxPending - most - 5 - 1, 1, MaxPending - most - 5 - 1},
		{3, 0, 1}, {0, 1, 0},
	} {
		pending := mixed(c.samples, c.waits)
		n, _ := q.add(pending, now)
		assert.Check(t, n == c.added, "%d of %+v added", n, c)
		for _, refused := range pending[n:] {
			assert.Check(t, c.samples >= n-most || refused.sample.Wait != nil, "a sample is refused, and a wait is not")
		}
	}
	taken := q.take()
	assert.Check(t, len(taken) == MaxPending && waitsIn(taken) == most, "%d, %d waits", len(taken), waitsIn(taken))
	n, _ := q.add(mixed(0, 1), now)
	assert.Check(t, n == 0, "%d waits added that may be given back", n)
	q.giveBack(nil)
	n, _ = q.add(mixed(0, 2*most), now)
	assert.Check(t, n == most, "%d waits added to an empty inbox", n)
	_, late := q.add(mixed(1, most), now.Add(2*time.Minute))
	assert.Check(t, len(late) == most && q.waiting == most, "%d are late, %d waits", len(late), q.waiting)
}
