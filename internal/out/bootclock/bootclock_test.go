package bootclock

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/clocks"
)

// What was kept is as long ago as it was, also when the clock was set; the time that it has then is by the clock as it
// is set. Of a suspension both know.
func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*clocks.Clocks)
		ago, day  time.Duration // how long ago the first time is, and how much later it is told to be than it was
	}{
		"nothing":   {func(*clocks.Clocks) {}, 0, 0},
		"forward":   {func(m *clocks.Clocks) { m.Set(time.Hour) }, 0, time.Hour},
		"back":      {func(m *clocks.Clocks) { m.Set(-time.Hour) }, 0, -time.Hour},
		"suspended": {func(m *clocks.Clocks) { m.Suspend(time.Hour) }, time.Hour, 0},
		"suspended, and set": {func(m *clocks.Clocks) { m.Suspend(time.Hour); m.Pass(time.Second); m.Set(time.Minute) },
			time.Hour + time.Second, time.Minute},
	} {
		m := clocks.New()
		clock := New(m.Instant)
		m.Pass(time.Second)
		first := m.Now()
		kept := clock.Ns(first)
		c.meanwhile(m)
		clock.Look(m.Now())
		late := clock.Ns(first)
		m.Pass(time.Second)
		clock.Look(m.Now())
		now := m.Now()
		ago := time.Duration(clock.Ns(now) - kept)
		assert.Check(t, ago == c.ago+time.Second, "%s: %v ago", name, ago)
		assert.Check(t, late == kept, "%s: kept late: %v later", name, time.Duration(late-kept))
		at := clock.Time(kept).Sub(first.Round(0))
		assert.Check(t, at == c.day, "%s: told to be %v later than it was", name, at)
		assert.Check(t, clock.Time(clock.Ns(now)).Equal(now.Round(0)), "%s: now is %v, not %v", name,
			clock.Time(clock.Ns(now)), now)
	}
}

// Two clocks are not read at once: what lies between is not taken for a step.
func TestReadLate(t *testing.T) {
	m := clocks.New()
	clock := New(m.Instant)
	late := clocks.New()
	*late = *m
	late.Set(time.Second)
	clock.Look(late.Now())
	assert.Check(t, clock.Behind() == 0, "%d ns", clock.Behind())
}
