package sampling

import (
	"slices"
	"sync"
	"time"

	"correlator/bpf"
)

// An instant is now, by the clock of Go and by that of samples, with what is needed to say when samples were taken.
type instant struct {
	bpf.Instant
	suspensions []suspension // the earliest first
}

// A suspension of the machine, in which CLOCK_MONOTONIC stands still, and the clock that people read does not.
type suspension struct {
	before bpf.Instant // the last one that was read before
	until  uint64      // CLOCK_MONOTONIC in ns: what was taken later was taken after the suspension
}

// at turns a sample's CLOCK_MONOTONIC in ns into a time. Where the clock was set since, the time is by the clock as it
// is set now.
func (i instant) at(ns uint64) time.Time {
	for _, s := range i.suspensions {
		if ns <= s.until {
			return timeOf(s.before, ns)
		}
	}
	return timeOf(i.Instant, ns)
}

// timeOf is also right for what was taken later than the instant.
func timeOf(i bpf.Instant, ns uint64) time.Time { return i.Add(-time.Duration(i.MonotonicNs - ns)) }

// interval returns the interval that a sample was counted in, which was drained at the instant, and before that at
// another. It is not longer than the machine ran, and begins exactly where that of the other ended.
func (i instant) interval(drained bpf.Instant, sampled uint64) (start, end time.Time) {
	from := drained.MonotonicNs
	for _, s := range i.suspensions {
		if sampled <= s.until {
			return i.at(from), i.at(min(i.MonotonicNs, s.until))
		}
		from = max(from, s.until+1)
	}
	if from == drained.MonotonicNs {
		return i.Add(drained.Sub(i.Time)), i.Time // by Go's clock, which nobody sets
	}
	return i.at(from), i.Time
}

// maxSuspensions is how many are remembered. What is older than those is said to be from before the first of them.
const maxSuspensions = 16

// minSuspension is longer than reading the clocks takes, unless we get no CPU each time.
const minSuspension = 100 * time.Millisecond

// clock tells the time. Its methods are safe for concurrent use.
type clock struct {
	read     func() bpf.Instant
	interval time.Duration // in which now is called at least, while we get CPU time

	mu          sync.Mutex
	last        bpf.Instant // that was read
	suspensions []suspension
}

func newClock(interval time.Duration) *clock {
	return &clock{read: bpf.ReadInstant, interval: interval, last: bpf.ReadInstant()}
}

// now returns the instant at which it is called.
func (c *clock) now() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.read()
	asleep := func(i bpf.Instant) time.Duration { return time.Duration(i.BoottimeNs - i.MonotonicNs) }
	if asleep(now)-asleep(c.last) >= minSuspension {
		// Processes stood still before the machine did, until after. So had we, else we would have been called.
		until := min(c.last.MonotonicNs+uint64(c.interval), now.MonotonicNs)
		oldest := max(0, len(c.suspensions)+1-maxSuspensions)
		c.suspensions = append(slices.Clone(c.suspensions[oldest:]), suspension{c.last, until})
	}
	c.last = now
	return instant{now, c.suspensions}
}
