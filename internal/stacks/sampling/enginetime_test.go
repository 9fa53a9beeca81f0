package sampling

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// A user whose programs have the engine wait gets a fifth of its time, and only while there are others.
func TestEngineTime(t *testing.T) {
	const took = 5*time.Second + turnTime
	e, start := newEngineTime(), time.Now()
	e.add("slow")
	e.add("slow")
	for range 100 {
		e.charge("slow", took, start)
	}
	if at := e.free("slow", start); !at.IsZero() {
		t.Errorf("a user alone may not use it before %v", at.Sub(start))
	}
	e.add("other")
	if at := e.free("other", start); !at.IsZero() {
		t.Errorf("another user may not use it before %v", at.Sub(start))
	}
	if want := start.Add((maxSpent - userTime) * userShare); !e.free("slow", start).Equal(want) {
		t.Errorf("free at %v, want %v", e.free("slow", start).Sub(start), want.Sub(start))
	}

	e = newEngineTime()
	e.add("slow")
	e.add("other")
	now, used := start, time.Duration(0)
	for now.Sub(start) < time.Hour {
		if at := e.free("slow", now); at.After(now) {
			now = at
			continue
		}
		now = now.Add(took)
		used += took - turnTime
		e.charge("slow", took, now)
	}
	most := time.Hour/userShare + userTime + took
	assert.Check(t, used <= most && used >= time.Hour/userShare-took, "used %v of an hour, want a fifth", used)
	e.remove("other")
	assert.Check(t, e.free("slow", now).IsZero(), "a user alone has to wait")
	// What was spent is not forgotten while a user has no program: it could be had again by a new one.
	e.remove("slow")
	e.add("slow")
	e.add("other")
	e.charge("other", time.Second, now)
	assert.Check(t, len(e.spent) == 2, "%d users have spent time", len(e.spent))
	e.charge("other", time.Second, now.Add(time.Hour))
	assert.Check(t, len(e.spent) == 1, "what was spent an hour ago is kept")
}
