package stats

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// A user has one conflict a minute reported, whatever that user does, and others have theirs.
func TestConflictsOfUser(t *testing.T) {
	s := New(Options{})
	cycles := func(uid uint32, after time.Duration, times int) (n int) {
		for i := range times {
			all := s.Update(moment.Add(after), func(u *Update) {
				u.SetUser(uid)
				u.UnregisterViews([]string{"v"})
				u.registerView(viewOf("v", wire.Count))
				for j := range 20 {
					u.registerView(viewOf("v", wire.Count, fmt.Sprint(i, j)))
				}
			})
			for _, c := range all {
				n++
				assert.Check(t, c.UID == uid && c.View == "v", "%+v", c)
			}
		}
		return n
	}
	for i, after := range []time.Duration{0, conflictInterval, conflictInterval, 2*conflictInterval - 1,
		2 * conflictInterval} {
		want := 1
		if i == 2 || i == 3 {
			want = 0
		}
		n := cycles(1, after, 100)
		assert.Check(t, n == want, "%d reports after %v", n, after)
	}
	total := 1 // that of user 1
	for uid := range uint32(3 * maxConflicts) {
		total += cycles(100+uid, 2*conflictInterval, 3)
	}
	assert.Check(t, total == maxConflicts, "%d reports of many users in one interval", total)
}

// The same conflict is reported once, and of one view not many.
func TestConflictsOfView(t *testing.T) {
	s := New(Options{})
	n := 0
	for i := range 5 * maxConflictsKnown {
		n += len(s.Update(moment.Add(time.Duration(i)*conflictInterval), func(u *Update) {
			u.registerView(viewOf("v", wire.Count))
			u.registerView(viewOf("v", wire.Count, fmt.Sprint(i/3)))
		}))
	}
	assert.Check(t, n == maxConflictsKnown, "%d reports", n)
}

// A definition of any size is described in few bytes, without making more of them first.
func TestDescription(t *testing.T) {
	keys := make([]string, maxTagKeys)
	for i := range keys {
		keys[i] = strings.Repeat("\x01é", maxName/3)
	}
	boundaries := make([]float64, defaultMaxBoundaries)
	for i := range boundaries {
		boundaries[i] = float64(i) / 3
	}
	for _, d := range []definition{
		{measure: "m", aggregation: wire.Distribution, boundaries: boundaries},
		{measure: strings.Repeat("\x02", maxName), aggregation: wire.Distribution, keys: keys, boundaries: boundaries},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text := d.String()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; len(text) > describedBytes+3 || n > 16<<10 {
			t.Errorf("%d bytes, %d allocated: %s", len(text), n, text)
		}
	}
	d := definition{measure: "m", aggregation: wire.Distribution, keys: []string{"a", "b"},
		boundaries: []float64{-1, 2.5}}
	if got, want := d.String(), `distribution of "m" by ["a" "b"] in 3 buckets: [-1 2.5]`; got != want {
		t.Errorf("got %s", got)
	}
}
