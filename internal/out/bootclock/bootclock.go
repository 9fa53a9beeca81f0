// Package bootclock keeps times of what was sampled so that their order, their distances and how long ago they are do
// not change when the clock is set: as ns of CLOCK_BOOTTIME, which also goes on while the machine is suspended.
package bootclock

import (
	"sync/atomic"
	"time"

	"correlator/bpf"
)

const (
	// minStep is how much the clock must differ to be taken for set: it is read twice to know.
	minStep = time.Millisecond

	// minSuspension is longer than it takes to read two clocks, unless the CPU is taken away each time.
	minSuspension = 100 * time.Millisecond
)

// Clock turns times into ns and back. The ns are counted from such a begin that they are those since 1970 until the
// clock is set. Time and Behind may be called at any time, all else by one goroutine at a time.
type Clock struct {
	epoch  time.Time
	asleep time.Duration // before
	read   func() bpf.Instant

	current, former segment
	behind          atomic.Int64
}

// A segment is a time in which the machine was not suspended, as two clocks were at its end.
type segment struct {
	set    time.Duration // that of people is so much later than Go's, which stands still while the machine is suspended
	asleep time.Duration // since the epoch
}

// New returns a Clock that begins now, with what reads clocks, as bpf.ReadInstant does.
func New(read func() bpf.Instant) *Clock {
	now := read()
	return &Clock{epoch: now.Time, asleep: asleep(now), read: read}
}

func asleep(i bpf.Instant) time.Duration { return time.Duration(i.BoottimeNs - i.MonotonicNs) }

// split returns a time by Go's clock, in ns, and how much later it is by that of people.
func (c *Clock) split(t time.Time) (ns int64, set time.Duration) {
	ns = c.epoch.UnixNano() + int64(t.Sub(c.epoch))
	return ns, time.Duration(t.UnixNano() - ns)
}

// Look takes note of what was done to the clocks until now.
func (c *Clock) Look(now time.Time) {
	if _, set := c.split(now); (set - c.current.set).Abs() < minStep {
		return
	}
	i := c.read() // with care: between readings of two clocks there may be much time
	_, set := c.split(i.Time)
	if (set - c.current.set).Abs() < minStep {
		return
	}
	if slept := asleep(i) - c.asleep; (slept - c.current.asleep).Abs() >= minSuspension {
		c.former, c.current.asleep = c.current, slept
	}
	c.current.set = set
	c.behind.Store(int64(c.current.set - c.current.asleep))
}

// Ns returns what a time is kept as that is not from before the last but one suspension.
func (c *Clock) Ns(t time.Time) int64 {
	ns, set := c.split(t)
	if (set - c.former.set).Abs() < (set - c.current.set).Abs() {
		return ns + int64(c.former.asleep)
	}
	return ns + int64(c.current.asleep)
}

// Time returns the time that is kept as ns, by the clock as it is set now.
func (c *Clock) Time(ns int64) time.Time { return time.Unix(0, ns+c.Behind()) }

// Behind returns what is to be added to ns to have those since 1970.
func (c *Clock) Behind() int64 { return c.behind.Load() }
