package otlp

import (
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// always is a random source that gives one number.
func always(v float64) func() float64 { return func() float64 { return v } }

// attempt begins a request that the gate must allow.
func (g *circuit) attempt(t *testing.T, now time.Time) attempt {
	t.Helper()
	if ok, wait := g.ready(now); !ok {
		t.Fatalf("gate is not ready, for %v", wait)
	}
	return g.begin()
}

func (g *circuit) wantWait(t *testing.T, now time.Time, want time.Duration) {
	t.Helper()
	if ok, wait := g.ready(now); ok || wait != want {
		t.Fatalf("ready: %t, wait %v, want %v", ok, wait, want)
	}
}

// The backoff is drawn evenly between half of an interval and all of it; intervals double up to 30 s.
func TestGateBackoff(t *testing.T) {
	for _, c := range []struct {
		random float64
		want   []float64 // seconds
	}{
		{0, []float64{0.5, 1, 2, 4, 8, 15, 15}},
		{0.5, []float64{0.75, 1.5, 3, 6, 12, 22.5, 22.5}},
		{1, []float64{1, 2, 4, 8, 16, 30, 30}},
	} {
		seconds := func(i int) time.Duration { return time.Duration(c.want[i] * float64(time.Second)) }
		g, now := newCircuit(4, always(c.random)), epoch
		for i := range c.want {
			want := seconds(i)
			g.failed(g.attempt(t, now), now, 0)
			g.wantWait(t, now, want)
			now = now.Add(want)
		}
		// A success resets it.
		g.succeeded(g.attempt(t, now), now)
		g.failed(g.attempt(t, now), now, 0)
		g.wantWait(t, now, seconds(0))
	}
}

// A RetryInfo is a lower bound: up to 20 % more, never less, and never less than the backoff.
func TestGateThrottle(t *testing.T) {
	for _, c := range []struct {
		random      float64
		delay, want time.Duration
	}{
		{0, 10 * time.Second, 10 * time.Second},
		{1, 10 * time.Second, 12 * time.Second},
		{0.5, 10 * time.Second, 11 * time.Second},
		{1, 100 * time.Millisecond, time.Second},
		{0, 100 * time.Millisecond, 500 * time.Millisecond},
		{0, 0, 500 * time.Millisecond},
		{1, maxDelay, 12 * time.Minute},
	} {
		g := newCircuit(4, always(c.random))
		g.failed(g.attempt(t, epoch), epoch, c.delay)
		g.wantWait(t, epoch, c.want)
	}
}

// Requests that were in flight when the gate closed do not make the wait longer, unless the receiver says so:
// then the latest end counts.
func TestGateStragglers(t *testing.T) {
	g := newCircuit(8, always(0))
	var tickets []attempt
	for range 8 {
		tickets = append(tickets, g.attempt(t, epoch))
	}
	g.wantWait(t, epoch, 0) // all are out
	at := func(d time.Duration) time.Time { return epoch.Add(d) }

	if longer := g.failed(tickets[0], epoch, 2*time.Second); longer != 2*time.Second {
		t.Errorf("first wait is longer by %v", longer)
	}
	g.failed(tickets[1], at(100*time.Millisecond), 0)
	g.wantWait(t, at(100*time.Millisecond), 1900*time.Millisecond)
	if longer := g.failed(tickets[2], at(200*time.Millisecond), time.Second); longer != 0 {
		t.Errorf("an earlier end made the wait longer by %v", longer)
	}
	g.wantWait(t, at(200*time.Millisecond), 1800*time.Millisecond)
	if longer := g.failed(tickets[3], at(time.Second), 3*time.Second); longer != 2*time.Second {
		t.Errorf("a later end made the wait longer by %v, want 2s", longer)
	}
	g.wantWait(t, at(time.Second), 3*time.Second)

	// An old success neither opens the gate nor resets the backoff.
	g.succeeded(tickets[4], at(time.Second))
	g.wantWait(t, at(time.Second), 3*time.Second)

	// While the probe is out, an old request that asks for time is listened to when the probe succeeds.
	probe := g.attempt(t, at(4*time.Second))
	g.wantWait(t, at(4*time.Second), 0)
	g.failed(tickets[5], at(4*time.Second), 5*time.Second)
	g.wantWait(t, at(4*time.Second), 0)
	g.succeeded(probe, at(5*time.Second))
	g.wantWait(t, at(5*time.Second), 4*time.Second)

	// An old failure after the recovery is no news; one that asks for time is.
	g.succeeded(g.attempt(t, at(9*time.Second)), at(9*time.Second))
	g.failed(tickets[6], at(9*time.Second), 0)
	if g.state != circuitOpen {
		t.Error("an old failure closed the gate")
	}
	g.failed(tickets[7], at(9*time.Second), time.Second)
	g.wantWait(t, at(9*time.Second), time.Second)
	if g.inFlight != 0 || g.current != 0 {
		t.Errorf("%d in flight, %d of this round, at the end", g.inFlight, g.current)
	}
}

// After a recovery the concurrency is 1, 2, 4 … N.
func TestGateRamp(t *testing.T) {
	g, now := newCircuit(7, always(0)), epoch
	g.failed(g.attempt(t, now), now, 0)
	now = now.Add(time.Second)
	g.succeeded(g.attempt(t, now), now)

	var steps []int
	for range 5 {
		var out []attempt
		for ok, _ := g.ready(now); ok; ok, _ = g.ready(now) {
			out = append(out, g.begin())
		}
		steps = append(steps, len(out))
		for _, ticket := range out {
			g.succeeded(ticket, now)
		}
	}
	if want := []int{1, 2, 4, 7, 7}; !slices.Equal(steps, want) {
		t.Errorf("concurrency climbs %v, want %v", steps, want)
	}
}

// A definite no opens the gate for one at a time, and does not reset the backoff.
func TestGateRefused(t *testing.T) {
	g, now := newCircuit(8, always(1)), epoch
	g.failed(g.attempt(t, now), now, 0)
	now = now.Add(time.Second)
	g.refused(g.attempt(t, now), now)
	for range 3 {
		one := g.attempt(t, now)
		g.wantWait(t, now, 0)
		g.refused(one, now)
	}
	g.failed(g.attempt(t, now), now, 0)
	g.wantWait(t, now, 2*time.Second)
}

// Requests that hang since before an outage are not forgotten in the limit of requests in flight.
func TestGateCountsAllInFlight(t *testing.T) {
	g, now := newCircuit(2, always(0)), epoch
	old := []attempt{g.attempt(t, now), g.attempt(t, now)}
	g.failed(old[0], now, 0)
	now = now.Add(time.Second)
	g.succeeded(g.attempt(t, now), now)
	g.succeeded(g.attempt(t, now), now) // 2 are allowed now
	g.attempt(t, now)
	g.wantWait(t, now, 0)
	g.failed(old[1], now, 0)
	g.attempt(t, now)
}
