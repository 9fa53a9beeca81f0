package otlp

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	// ErrClosed: the exporter is being shut down, or was.
	ErrClosed = errors.New("exporter is shut down")
	// ErrTooLarge: the batch will never fit, at any destination.
	ErrTooLarge = errors.New("batch is too large")
	// ErrUnsupported: no destination takes the signal.
	ErrUnsupported = errors.New("no destination takes this signal")
)

// OverloadError is why received data is refused for now: a destination's queue is full.
type OverloadError struct {
	Destination string
	// RetryAfter is when there is probably room: at least a second, different for each call.
	RetryAfter time.Duration
}

func (e *OverloadError) Error() string {
	return fmt.Sprintf("queue of destination %s is full, room is expected in %v", e.Destination, e.RetryAfter)
}

// receivedShare is the part of a queue and of the budget beyond which received data is refused, so that
// there is always room for our own: that cannot be refused, it would be lost.
const receivedShare = 0.75

func receivedLimit(n int64) int64 { return int64(receivedShare * float64(n)) }

// flightLimit is how many bytes of own data a destination may have in flight. What it has cannot make room for the
// data of others for as long as it hangs; so together they have no more than received data leaves.
func flightLimit(budget int64, destinations int) int64 {
	if destinations <= 1 {
		return budget // there are no others
	}
	return (budget - receivedLimit(budget)) / int64(destinations)
}

// core is the pipelines of all destinations and the memory that they share. It has no clock, no goroutine
// and no network; the exporter's lock guards it.
type scheduler struct {
	budget      int64 // bytes of all batches together
	used        int64 // each batch counts once
	unevictable int64 // of used, what cannot make room: in flight or acknowledged anywhere
	flight      int64 // what a destination may have in flight of data that is not acknowledged: see flightLimit
	random      func() float64

	destinations []*destinationState
	seq          uint64
	closed       bool

	events []Event             // not yet told
	takers []*destinationState // scratch of offer and enqueueReceived
}

func newScheduler(budget int64, destinations []Destination, random func() float64) *scheduler {
	c := &scheduler{budget: budget, flight: flightLimit(budget, len(destinations)), random: random}
	for i := range destinations {
		d := &destinations[i]
		c.destinations = append(c.destinations, &destinationState{scheduler: c, conf: d, circuit: newCircuit(d.Concurrency, random)})
	}
	return c
}

// offer queues our own data wherever it is wanted. Older data of ours makes room for it.
func (c *scheduler) enqueue(b *Batch, now time.Time) {
	if b.items <= 0 {
		return
	}
	c.lapse(now)
	c.takers = c.takers[:0]
	for _, p := range c.destinations {
		if !p.conf.Takes(b.signal) {
			continue
		}
		n := &p.counters[b.signal]
		n.accepted += uint64(b.items)
		reason, barred := p.rejectReason(b, now)
		switch {
		case c.closed:
			n.drop(b, Shutdown)
			p.lost.add(b)
		case barred:
			n.drop(b, reason)
		case c.unevictable+b.size() > c.budget || !p.makeRoom(b.size()):
			n.drop(b, QueueFull)
		default:
			c.takers = append(c.takers, p)
		}
	}
	if len(c.takers) > 0 {
		c.makeRoom(b.size(), true)
	}
	for _, p := range c.takers {
		p.add(b, false)
	}
}

// bars is why a destination would not take a batch, however much room there is.
func (p *destinationState) rejectReason(b *Batch, now time.Time) (reason Reason, barred bool) {
	switch {
	case len(b.request) > p.conf.MaxRequestBytes:
		return TooLarge, true
	case !p.support[b.signal].admits(now):
		return Unsupported, true
	}
	return 0, false
}

// enqueueReceived queues received data at every destination that wants it, or at none. One that never takes it does
// not keep the others from it.
func (c *scheduler) enqueueReceived(b *Batch, now time.Time) error {
	switch {
	case c.closed:
		return ErrClosed
	case b.items <= 0:
		return nil
	}
	c.lapse(now)
	size := b.size()
	bars := func(p *destinationState) (Reason, bool) {
		if size > receivedLimit(p.conf.QueueBytes) || size > receivedLimit(c.budget) {
			return TooLarge, true
		}
		return p.rejectReason(b, now)
	}
	never := ErrUnsupported
	c.takers = c.takers[:0]
	for _, p := range c.destinations {
		if !p.conf.Takes(b.signal) {
			continue
		}
		if reason, barred := bars(p); !barred {
			c.takers = append(c.takers, p)
		} else if reason == TooLarge {
			never = fmt.Errorf("%w: %d bytes", ErrTooLarge, len(b.request))
		}
	}
	if len(c.takers) == 0 {
		return never
	}
	if err := c.overload(size, now); err != nil {
		return err
	}
	for _, p := range c.destinations {
		if !p.conf.Takes(b.signal) {
			continue
		}
		n := &p.counters[b.signal]
		n.accepted += uint64(b.items)
		if reason, barred := bars(p); barred {
			n.drop(b, reason)
		} else if !p.makeRoom(size) { // it has lapsed, and has that much in flight
			n.drop(b, QueueFull)
		} else {
			p.add(b, true)
		}
	}
	return nil
}

// overload makes room for received data at destinations that have lapsed, and in the budget at their cost. It
// is an *OverloadError if there is none at one of the other takers, of those that which needs longest.
func (c *scheduler) overload(size int64, now time.Time) error {
	voters := slices.DeleteFunc(slices.Clone(c.takers), func(p *destinationState) bool { return p.lapsed })
	if len(voters) == 0 {
		voters = c.takers
	}
	full := func(p *destinationState) bool {
		return p.bytes+size > p.conf.QueueBytes || p.unevictable+size > receivedLimit(p.conf.QueueBytes)
	}
	budget := c.unevictable+size > receivedLimit(c.budget)
	if !budget && !slices.ContainsFunc(voters, full) {
		if c.makeRoom(size, false) {
			return nil
		}
		budget = true
	}
	worst := &OverloadError{}
	for _, p := range voters {
		if wait := p.halfEmpty(now); (budget || full(p)) && wait > worst.RetryAfter {
			worst.Destination, worst.RetryAfter = p.conf.Name, wait
		}
	}
	// Up to 20 % more or less, so that not all who were refused together come back together.
	spread := 0.8 + 0.4*c.random()
	worst.RetryAfter = max(time.Duration(spread*float64(worst.RetryAfter)), minRefusal)
	return worst
}

const (
	minRefusal = time.Second      // sooner there is hardly room
	maxRefusal = 30 * time.Second // later nobody may still want to send
)

// halfEmpty is how long the queue needs at its present rate until it is half as long.
func (p *destinationState) halfEmpty(now time.Time) time.Duration {
	wait := maxRefusal
	if perSecond := p.requestBytes.get(now); perSecond > float64(p.bytes)/2/maxRefusal.Seconds() {
		wait = time.Duration(float64(p.bytes) / 2 / perSecond * float64(time.Second))
	}
	if p.circuit.state == circuitWaiting {
		wait = max(wait, p.circuit.end().Sub(now))
	}
	return min(max(wait, minRefusal), maxRefusal)
}

// hold and release say who holds a batch; the first and the last change the budget.
func (c *scheduler) hold(e *entry) {
	b := e.batch
	if b.holders = append(b.holders, e); len(b.holders) == 1 {
		c.used += b.size()
	}
}

func (c *scheduler) release(e *entry) {
	b, i := e.batch, slices.Index(e.batch.holders, e)
	if b.holders = slices.Delete(b.holders, i, i+1); len(b.holders) == 0 {
		c.used -= b.size()
	}
}

func (c *scheduler) pin(b *Batch) {
	if b.pins++; b.pins == 1 {
		c.unevictable += b.size()
	}
}

func (c *scheduler) unpin(b *Batch) {
	if b.pins--; b.pins == 0 {
		c.unevictable -= b.size()
	}
}
