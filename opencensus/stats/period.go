package stats

import (
	"math"
	"time"
)

// What OpenCensus clients can set the reporting period to, and what it is before that.
const (
	minPeriod     = time.Second
	maxPeriod     = time.Hour
	defaultPeriod = 10 * time.Second
)

// SetReportingPeriod sets the period, of 1 s to an hour, for everything: the last one wins. Clients
// repeat it in every request: the same period as before changes nothing.
func (u *Update) SetReportingPeriod(seconds float64) {
	s := u.s
	if !(seconds > 0) || math.IsInf(seconds, 1) {
		s.counts.Lost[PeriodInvalid]++
		return
	}
	within := min(max(seconds, minPeriod.Seconds()), maxPeriod.Seconds())
	if within != seconds {
		s.counts.Lost[PeriodClamped]++
	}
	period := time.Duration(within * float64(time.Second))
	if period == s.period {
		return
	}
	s.period = period
	select {
	case s.periodChanged <- struct{}{}:
	default: // there is a change already that nobody has seen
	}
}

// Period returns the time from one Encode to the next.
func (s *State) Period() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.period
}

// PeriodChanged returns a channel that has an element after the period has changed. The next export
// is due one new period after the last one, not after the change: clients may change it all the
// time.
func (s *State) PeriodChanged() <-chan struct{} { return s.periodChanged }
