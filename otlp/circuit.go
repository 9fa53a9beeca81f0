package otlp

import "time"

const (
	minBackoff = time.Second      // the first wait
	maxBackoff = 30 * time.Second // limit of the doubling: a recovery is noticed within half a minute

	// minThrottle is the shortest wait that a receiver can ask for, lest a RetryInfo of nothing
	// makes a request of every round trip.
	minThrottle = 100 * time.Millisecond
	// throttleJitter is by how much a throttled client waits longer than asked at most, as a
	// fraction of the delay, so that clients that were throttled together do not return together.
	throttleJitter = 0.2
)

// circuitState is what a circuit allows.
type circuitState uint8

const (
	circuitOpen    circuitState = iota // as many requests as allowed
	circuitWaiting                     // none until a time
	circuitProbing                     // one, which is in flight
)

// circuit decides when a request to a destination may start. A retryable error starts a wait, after
// which one request goes out as a probe; its success lets requests through again, at first one at a
// time. It has no clock: methods are passed the time.
type circuit struct {
	concurrency int
	random      func() float64 // in [0,1)

	state circuitState

	// round is incremented by each wait. A request of an earlier round has no news when it ends:
	// its failure does not start a wait, and its success does not end one.
	round    int
	inFlight int // requests of all rounds
	current  int // requests of this round

	allowed int // requests of this round at a time
	climbed int // successes since allowed was raised

	interval  time.Duration // upper end of the next backoff
	until     time.Time     // end of the backoff
	throttled time.Time     // the latest end that the receiver asked for
}

// attempt is the permission to send one request; it is returned to the circuit with the result.
type attempt struct {
	round int
	probe bool
}

func newCircuit(concurrency int, random func() float64) circuit {
	return circuit{concurrency: concurrency, random: random, allowed: concurrency, interval: minBackoff}
}

// ready reports whether a request may start now.
func (c *circuit) ready(now time.Time) bool {
	switch c.state {
	case circuitOpen:
		return c.current < c.allowed && c.inFlight < c.concurrency
	case circuitWaiting:
		return !now.Before(c.end())
	default:
		return false
	}
}

// end returns the end of the wait.
func (c *circuit) end() time.Time {
	if c.throttled.After(c.until) {
		return c.throttled
	}
	return c.until
}

// begin starts an attempt. The circuit must be ready.
func (c *circuit) begin() attempt {
	a := attempt{round: c.round, probe: c.state == circuitWaiting}
	if a.probe {
		c.state = circuitProbing
	}
	c.inFlight++
	c.current++
	return a
}

// succeeded ends an attempt whose request the receiver accepted.
func (c *circuit) succeeded(a attempt, now time.Time) {
	if !c.leave(a) {
		return
	}
	c.interval = minBackoff
	if a.probe {
		c.reopen(now)
		return
	}
	// When as many as are allowed have succeeded, allow twice as many.
	if c.climbed++; c.climbed >= c.allowed {
		c.allowed, c.climbed = min(2*c.allowed, c.concurrency), 0
	}
}

// refused ends an attempt whose request the receiver answered and does not want. The receiver is
// there, so a probe ends the wait; it has not accepted anything, so backoff and concurrency stay as
// they are.
func (c *circuit) refused(a attempt, now time.Time) {
	if c.leave(a) && a.probe {
		c.reopen(now)
	}
}

// cancelled ends an attempt that we gave up ourselves.
func (c *circuit) cancelled(a attempt) { c.leave(a) }

// failed ends an attempt whose request is to be sent again, after delay if the receiver asked for
// one (0: it did not). What the receiver asks for replaces the backoff. failed returns by how much
// the receiver has extended the wait.
func (c *circuit) failed(a attempt, now time.Time, delay time.Duration) (longer time.Duration) {
	current := c.leave(a)
	if delay > 0 {
		delay = max(delay, minThrottle)
		end := now.Add(delay + time.Duration(throttleJitter*c.random()*float64(delay)))
		if end.After(c.throttled) {
			longer = end.Sub(now)
			if c.throttled.After(now) {
				longer = end.Sub(c.throttled)
			}
			c.throttled = end
		}
	}
	switch {
	case delay > 0 && (current || c.state == circuitOpen):
		c.wait(now)
	case delay > 0 && c.state == circuitWaiting:
		c.until = now
	case current:
		half := c.interval / 2
		c.wait(now.Add(half + time.Duration(c.random()*float64(half))))
		c.interval = min(2*c.interval, maxBackoff)
	}
	return longer
}

// interrupt ends a backoff. It returns false, and does nothing, if the receiver asked for the wait.
func (c *circuit) interrupt(now time.Time) bool {
	if c.throttled.After(now) {
		return false
	}
	c.until = now
	return true
}

// leave ends an attempt and reports whether it belongs to this round.
func (c *circuit) leave(a attempt) bool {
	c.inFlight--
	if a.round != c.round {
		return false
	}
	c.current--
	return true
}

// wait lets no request through until a time, or until the receiver's time if that is later.
func (c *circuit) wait(until time.Time) {
	c.state, c.until = circuitWaiting, until
	c.round++
	c.current = 0
}

// reopen lets one request at a time through, unless an older request was throttled meanwhile.
func (c *circuit) reopen(now time.Time) {
	c.state, c.allowed, c.climbed = circuitOpen, 1, 0
	if c.throttled.After(now) {
		c.wait(now)
	}
}
