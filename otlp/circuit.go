package otlp

import "time"

const (
	minBackoff = time.Second      // the first wait
	maxBackoff = 30 * time.Second // doubling ends here: a recovery is noticed within half a minute

	// throttleJitter is how much longer than asked a throttled client waits at most, as a part of the
	// delay, so that clients that were told the same do not all come back at once.
	throttleJitter = 0.2
)

// circuitState is what a destination's gate allows.
type circuitState uint8

const (
	circuitOpen    circuitState = iota // as many requests as allowed
	circuitWaiting                     // none until a time
	circuitProbing                     // one, and it is out
)

// gate decides when a request to a destination may start. It knows no clock: every method is told the
// time. A retryable error closes it for a wait, then one request goes out as a probe; its success opens
// the gate, with one request at a time first.
type circuit struct {
	concurrency int
	random      func() float64 // in [0,1)

	state circuitState

	// round grows each time the gate closes. A request that began in an earlier round says nothing new
	// when it ends: neither does its failure close the gate again, nor does its success open it.
	round    int
	inFlight int // requests of all rounds
	current  int // of this one

	allowed int // requests of this round at a time
	climbed int // successes since allowed was raised

	interval  time.Duration // upper end of the next backoff
	until     time.Time     // end of the backoff
	throttled time.Time     // the latest end that the receiver asked for
}

// ticket is the right to one attempt; it goes back to the gate with what became of it.
type attempt struct {
	round int
	probe bool
}

func newCircuit(concurrency int, random func() float64) circuit {
	return circuit{concurrency: concurrency, random: random, allowed: concurrency, interval: minBackoff}
}

// ready says if a request may start now. If not, it may after wait; 0 means when a request in flight ends.
func (g *circuit) ready(now time.Time) (ok bool, wait time.Duration) {
	switch g.state {
	case circuitOpen:
		return g.current < g.allowed && g.inFlight < g.concurrency, 0
	case circuitWaiting:
		wait = g.end().Sub(now)
		return wait <= 0, max(wait, 0)
	default:
		return false, 0
	}
}

// end is when the wait ends.
func (g *circuit) end() time.Time {
	if g.throttled.After(g.until) {
		return g.throttled
	}
	return g.until
}

// begin takes the right to one attempt. The gate must be ready.
func (g *circuit) begin() attempt {
	t := attempt{round: g.round, probe: g.state == circuitWaiting}
	if t.probe {
		g.state = circuitProbing
	}
	g.inFlight++
	g.current++
	return t
}

// succeeded: the receiver took the request.
func (g *circuit) succeeded(t attempt, now time.Time) {
	if !g.leave(t) {
		return
	}
	g.interval = minBackoff
	if t.probe {
		g.reopen(now)
		return
	}
	// Once as many succeeded as are allowed, twice as many are.
	if g.climbed++; g.climbed >= g.allowed {
		g.allowed, g.climbed = min(2*g.allowed, g.concurrency), 0
	}
}

// refused: the receiver answered and does not want this request. It is there, so a probe opens the gate;
// that it takes anything was not seen, so backoff and concurrency stay as they are.
func (g *circuit) refused(t attempt, now time.Time) {
	if g.leave(t) && t.probe {
		g.reopen(now)
	}
}

// cancelled: the attempt was given up by ourselves.
func (g *circuit) cancelled(t attempt) { g.leave(t) }

// failed: the request is to be sent again, after delay if the receiver said so (0: it did not). The result
// is by how much that made the wait longer.
func (g *circuit) failed(t attempt, now time.Time, delay time.Duration) (longer time.Duration) {
	news := g.leave(t)
	if delay > 0 {
		end := now.Add(delay + time.Duration(throttleJitter*g.random()*float64(delay)))
		if end.After(g.throttled) {
			longer = end.Sub(now)
			if g.throttled.After(now) {
				longer = end.Sub(g.throttled)
			}
			g.throttled = end
		}
	}
	switch {
	case news:
		half := g.interval / 2
		g.close(now.Add(half + time.Duration(g.random()*float64(half))))
		g.interval = min(2*g.interval, maxBackoff)
	case g.state == circuitOpen && g.throttled.After(now):
		// An old request, but the receiver asks for time now.
		g.close(now)
	}
	return longer
}

// interrupt ends a backoff. It does not end a wait that the receiver asked for; then it says false.
func (g *circuit) interrupt(now time.Time) bool {
	if g.throttled.After(now) {
		return false
	}
	g.until = now
	return true
}

// leave takes a request out of flight and says if it belongs to this round.
func (g *circuit) leave(t attempt) bool {
	g.inFlight--
	if t.round != g.round {
		return false
	}
	g.current--
	return true
}

func (g *circuit) close(until time.Time) {
	g.state, g.until = circuitWaiting, until
	g.round++
	g.current = 0
}

// reopen lets one request at a time through, unless an older request was told to wait meanwhile.
func (g *circuit) reopen(now time.Time) {
	g.state, g.allowed, g.climbed = circuitOpen, 1, 0
	if g.throttled.After(now) {
		g.close(now)
	}
}
