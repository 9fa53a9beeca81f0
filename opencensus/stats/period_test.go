package stats

import (
	"math"
	"testing"
	"time"
)

func TestPeriod(t *testing.T) {
	s := New(Options{})
	if s.Period() != 10*time.Second {
		t.Errorf("%v before any message", s.Period())
	}
	for _, test := range []struct {
		seconds float64
		want    time.Duration
		changed bool
		loss    Loss
	}{
		{10, 10 * time.Second, false, NumLosses},
		{2.5, 2500 * time.Millisecond, true, NumLosses},
		{2.5, 2500 * time.Millisecond, false, NumLosses},
		{math.NaN(), 2500 * time.Millisecond, false, PeriodInvalid},
		{math.Inf(1), 2500 * time.Millisecond, false, PeriodInvalid},
		{math.Inf(-1), 2500 * time.Millisecond, false, PeriodInvalid},
		{0, 2500 * time.Millisecond, false, PeriodInvalid},
		{-1, 2500 * time.Millisecond, false, PeriodInvalid},
		{1e-300, time.Second, true, PeriodClamped},
		{0.999, time.Second, false, PeriodClamped},
		{1, time.Second, false, NumLosses},
		{3600, time.Hour, true, NumLosses},
		{1e308, time.Hour, false, PeriodClamped},
	} {
		before := s.Counts()
		update(s, 0, func(u *Update) { u.SetReportingPeriod(test.seconds) })
		changed := false
		select {
		case <-s.PeriodChanged():
			changed = true
		default:
		}
		after := s.Counts()
		if test.loss < NumLosses {
			before.Lost[test.loss]++
		}
		if s.Period() != test.want || changed != test.changed || before != after {
			t.Errorf("%v: %v, changed: %v, lost %v", test.seconds, s.Period(), changed, after.Lost)
		}
	}
}

// The period that every request repeats does not put off exports.
func TestPeriodRepeated(t *testing.T) {
	s := New(Options{})
	feed(t, s, "41-reporting-period.bin")
	<-s.PeriodChanged()
	for range 1000 {
		feed(t, s, "41-reporting-period.bin")
		feed(t, s, "41-reporting-period-32bit-header.bin") // the same
	}
	select {
	case <-s.PeriodChanged():
		t.Error("changed")
	default:
	}
	// Two that alternate never block, and what is seen is the last one.
	for range 1000 {
		update(s, 0, func(u *Update) { u.SetReportingPeriod(1); u.SetReportingPeriod(2) })
	}
	<-s.PeriodChanged()
	if s.Period() != 2*time.Second {
		t.Errorf("period %v", s.Period())
	}
}
