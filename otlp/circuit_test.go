package otlp

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// always is a random source that always returns v.
func always(v float64) func() float64 { return func() float64 { return v } }

// mustBegin begins an attempt that the circuit must allow.
func (c *circuit) mustBegin(t *testing.T, now time.Time) attempt {
	t.Helper()
	if !c.ready(now) {
		t.Fatalf("circuit is not ready, in state %d until %v", c.state, c.end())
	}
	return c.begin()
}

// wantWait fails unless the circuit waits for so long, or, if that is 0, for a request in flight.
func (c *circuit) wantWait(t *testing.T, now time.Time, want time.Duration) {
	t.Helper()
	wait := time.Duration(0)
	if c.state == circuitWaiting {
		wait = c.end().Sub(now)
	}
	ready := c.ready(now)
	assert.Assert(t, !ready && wait == want, "ready: %t, wait %v, want %v", ready, wait, want)
}

// The backoff is drawn evenly between half of an interval and all of it; intervals double up to 30
// s.
func TestCircuitBackoff(t *testing.T) {
	for _, tc := range []struct {
		random float64
		want   []float64 // seconds
	}{
		{0, []float64{0.5, 1, 2, 4, 8, 15, 15}},
		{0.5, []float64{0.75, 1.5, 3, 6, 12, 22.5, 22.5}},
		{1, []float64{1, 2, 4, 8, 16, 30, 30}},
	} {
		seconds := func(i int) time.Duration { return time.Duration(tc.want[i] * float64(time.Second)) }
		c, now := newCircuit(4, always(tc.random)), epoch
		for i := range tc.want {
			want := seconds(i)
			c.failed(c.mustBegin(t, now), now, 0)
			c.wantWait(t, now, want)
			now = now.Add(want)
		}
		// A success resets it.
		c.succeeded(c.mustBegin(t, now), now)
		c.failed(c.mustBegin(t, now), now, 0)
		c.wantWait(t, now, seconds(0))
	}
}

// A RetryInfo replaces the backoff: up to 20 % more, never less, however long the backoff has
// grown.
func TestCircuitThrottle(t *testing.T) {
	for _, tc := range []struct {
		random      float64
		delay, want time.Duration
	}{
		{0, 10 * time.Second, 10 * time.Second},
		{1, 10 * time.Second, 12 * time.Second},
		{0.5, 10 * time.Second, 11 * time.Second},
		{1, 250 * time.Millisecond, 300 * time.Millisecond},
		{0, 250 * time.Millisecond, 250 * time.Millisecond},
		{0, time.Nanosecond, 100 * time.Millisecond},
		{0, 0, 8 * time.Second},
		{1, maxDelay, 12 * time.Minute},
	} {
		c, now := newCircuit(4, always(0)), epoch
		for range 4 { // the backoff is 8 s now
			c.failed(c.mustBegin(t, now), now, 0)
			now = c.end()
		}
		c.random = always(tc.random)
		c.failed(c.mustBegin(t, now), now, tc.delay)
		c.wantWait(t, now, tc.want)
	}
}

// A RetryInfo that comes during a backoff replaces it, too.
func TestCircuitThrottleDuringBackoff(t *testing.T) {
	c := newCircuit(2, always(1))
	first, second := c.mustBegin(t, epoch), c.mustBegin(t, epoch)
	c.failed(first, epoch, 0)
	c.wantWait(t, epoch, time.Second)
	c.failed(second, epoch, 500*time.Millisecond)
	c.wantWait(t, epoch, 600*time.Millisecond)
}

// Requests that were in flight when the wait began do not extend it, unless the receiver asks for
// that: then the latest end counts.
func TestCircuitStragglers(t *testing.T) {
	c := newCircuit(8, always(0))
	var attempts []attempt
	for range 8 {
		attempts = append(attempts, c.mustBegin(t, epoch))
	}
	c.wantWait(t, epoch, 0) // all are out
	at := func(d time.Duration) time.Time { return epoch.Add(d) }

	longer := c.failed(attempts[0], epoch, 2*time.Second)
	assert.Check(t, longer == 2*time.Second, "first wait is longer by %v", longer)
	c.failed(attempts[1], at(100*time.Millisecond), 0)
	c.wantWait(t, at(100*time.Millisecond), 1900*time.Millisecond)
	longer = c.failed(attempts[2], at(200*time.Millisecond), time.Second)
	assert.Check(t, longer == 0, "an earlier end made the wait longer by %v", longer)
	c.wantWait(t, at(200*time.Millisecond), 1800*time.Millisecond)
	longer = c.failed(attempts[3], at(time.Second), 3*time.Second)
	assert.Check(t, longer == 2*time.Second, "a later end made the wait longer by %v, want 2s", longer)
	c.wantWait(t, at(time.Second), 3*time.Second)

	// An old success neither ends the wait nor resets the backoff.
	c.succeeded(attempts[4], at(time.Second))
	c.wantWait(t, at(time.Second), 3*time.Second)

	// A RetryInfo for an old request while the probe is in flight counts when the probe succeeds.
	probe := c.mustBegin(t, at(4*time.Second))
	c.wantWait(t, at(4*time.Second), 0)
	c.failed(attempts[5], at(4*time.Second), 5*time.Second)
	c.wantWait(t, at(4*time.Second), 0)
	c.succeeded(probe, at(5*time.Second))
	c.wantWait(t, at(5*time.Second), 4*time.Second)

	// An old failure after the recovery is ignored unless it has a RetryInfo.
	c.succeeded(c.mustBegin(t, at(9*time.Second)), at(9*time.Second))
	c.failed(attempts[6], at(9*time.Second), 0)
	assert.Check(t, c.state == circuitOpen, "an old failure began a wait")
	c.failed(attempts[7], at(9*time.Second), time.Second)
	c.wantWait(t, at(9*time.Second), time.Second)
	assert.Check(t, c.inFlight == 0 && c.current == 0,
		"%d in flight, %d of this round, at the end", c.inFlight, c.current)
}

// After a recovery the concurrency is 1, 2, 4 … N.
func TestCircuitRamp(t *testing.T) {
	c, now := newCircuit(7, always(0)), epoch
	c.failed(c.mustBegin(t, now), now, 0)
	now = now.Add(time.Second)
	c.succeeded(c.mustBegin(t, now), now)

	var steps []int
	for range 5 {
		var out []attempt
		for c.ready(now) {
			out = append(out, c.begin())
		}
		steps = append(steps, len(out))
		for _, a := range out {
			c.succeeded(a, now)
		}
	}
	want := []int{1, 2, 4, 7, 7}
	assert.Check(t, slices.Equal(steps, want), "concurrency climbs %v, want %v", steps, want)
}

// A definite refusal ends the wait for one request at a time, and does not reset the backoff.
func TestCircuitRefused(t *testing.T) {
	c, now := newCircuit(8, always(1)), epoch
	c.failed(c.mustBegin(t, now), now, 0)
	now = now.Add(time.Second)
	c.refused(c.mustBegin(t, now), now)
	for range 3 {
		one := c.mustBegin(t, now)
		c.wantWait(t, now, 0)
		c.refused(one, now)
	}
	c.failed(c.mustBegin(t, now), now, 0)
	c.wantWait(t, now, 2*time.Second)
}

// Requests that hang since before an outage count in the limit of requests in flight.
func TestCircuitCountsAllInFlight(t *testing.T) {
	c, now := newCircuit(2, always(0)), epoch
	old := []attempt{c.mustBegin(t, now), c.mustBegin(t, now)}
	c.failed(old[0], now, 0)
	now = now.Add(time.Second)
	c.succeeded(c.mustBegin(t, now), now)
	c.succeeded(c.mustBegin(t, now), now) // 2 are allowed now
	c.mustBegin(t, now)
	c.wantWait(t, now, 0)
	c.failed(old[1], now, 0)
	c.mustBegin(t, now)
}
