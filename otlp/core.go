package otlp

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed: the exporter is being shut down, or was.
	ErrClosed = errors.New("exporter is shut down")
	// ErrTooLarge: the batch will never fit, at one destination at least.
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

// core is the pipelines of all destinations and the memory that they share. It has no clock, no goroutine
// and no network; the exporter's lock guards it.
type core struct {
	budget int64 // bytes of all batches together
	used   int64 // each batch counts once
	pinned int64 // of used, what cannot make room: in flight or promised anywhere
	random func() float64

	pipelines []*pipeline
	seq       uint64
	closed    bool

	events []Event     // not yet told
	takers []*pipeline // scratch of offer
}

func newCore(budget int64, destinations []Destination, random func() float64) *core {
	c := &core{budget: budget, random: random}
	for i := range destinations {
		d := &destinations[i]
		c.pipelines = append(c.pipelines, &pipeline{core: c, conf: d, gate: newGate(d.Concurrency, random)})
	}
	return c
}

// offer queues our own data wherever it is wanted. Older data of ours makes room for it.
func (c *core) offer(b *Batch, now time.Time) {
	if b.items <= 0 {
		return
	}
	c.takers = c.takers[:0]
	for _, p := range c.pipelines {
		if !p.conf.takes(b.signal) {
			continue
		}
		n := &p.counters[b.signal]
		n.accepted += uint64(b.items)
		switch {
		case c.closed:
			n.drop(b, Shutdown)
			p.lost.add(b)
		case len(b.request) > p.conf.MaxRequestBytes:
			n.drop(b, TooLarge)
		case !p.support[b.signal].admits(now):
			n.drop(b, Unsupported)
		case c.pinned+b.size() > c.budget || !p.makeRoom(b.size()):
			n.drop(b, QueueFull)
		default:
			c.takers = append(c.takers, p)
		}
	}
	if len(c.takers) > 0 {
		c.makeRoom(b.size())
	}
	for _, p := range c.takers {
		p.add(b, false)
	}
}

// makeRoom drops batches until that many bytes fit into the budget; pinned ones must leave that much. It
// always takes the oldest of the destination that has most: one that is slow loses its own, not that of
// others.
func (c *core) makeRoom(size int64) {
	for c.used+size > c.budget {
		most := c.pipelines[0]
		for _, p := range c.pipelines[1:] {
			if p.bytes-p.pinned > most.bytes-most.pinned {
				most = p
			}
		}
		most.discard(most.queue.expendable(), QueueFull)
	}
}

// tryOffer queues received data at every destination that wants it, or at none.
func (c *core) tryOffer(b *Batch, now time.Time) error {
	size := b.size()
	if c.closed {
		return ErrClosed
	}
	if b.items <= 0 {
		return nil
	}
	able := 0
	for _, p := range c.pipelines {
		if !p.conf.takes(b.signal) {
			continue
		}
		if len(b.request) > p.conf.MaxRequestBytes || size > receivedLimit(p.conf.QueueBytes) || size > receivedLimit(c.budget) {
			return fmt.Errorf("%w: %d bytes", ErrTooLarge, len(b.request))
		}
		if p.support[b.signal].admits(now) {
			able++
		}
	}
	if able == 0 {
		return ErrUnsupported
	}
	if err := c.overload(b, now); err != nil {
		return err
	}
	for _, p := range c.pipelines {
		if !p.conf.takes(b.signal) {
			continue
		}
		p.counters[b.signal].accepted += uint64(b.items)
		if p.support[b.signal].admits(now) {
			p.add(b, true)
		} else {
			p.counters[b.signal].drop(b, Unsupported)
		}
	}
	return nil
}

// overload is an *OverloadError if there is no room for received data: of the destinations without, that
// which needs longest.
func (c *core) overload(b *Batch, now time.Time) error {
	size := b.size()
	full := c.used+size > c.budget || c.pinned+size > receivedLimit(c.budget)
	var worst *OverloadError
	for _, p := range c.pipelines {
		if !p.conf.takes(b.signal) || !p.support[b.signal].admits(now) {
			continue
		}
		if full || p.bytes+size > p.conf.QueueBytes || p.pinned+size > receivedLimit(p.conf.QueueBytes) {
			if wait := p.halfEmpty(now); worst == nil || wait > worst.RetryAfter {
				worst = &OverloadError{Destination: p.conf.Name, RetryAfter: wait}
			}
		}
	}
	if worst == nil {
		return nil
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
func (p *pipeline) halfEmpty(now time.Time) time.Duration {
	wait := maxRefusal
	if perSecond := p.requestBytes.get(now); perSecond > float64(p.bytes)/2/maxRefusal.Seconds() {
		wait = time.Duration(float64(p.bytes) / 2 / perSecond * float64(time.Second))
	}
	if p.gate.state == gateWaiting {
		wait = max(wait, p.gate.end().Sub(now))
	}
	return min(max(wait, minRefusal), maxRefusal)
}

// hold and release count who holds a batch; the first and the last change the budget.
func (c *core) hold(b *Batch) {
	if b.refs++; b.refs == 1 {
		c.used += b.size()
	}
}

func (c *core) release(b *Batch) {
	if b.refs--; b.refs == 0 {
		c.used -= b.size()
	}
}

func (c *core) pin(b *Batch) {
	if b.pins++; b.pins == 1 {
		c.pinned += b.size()
	}
}

func (c *core) unpin(b *Batch) {
	if b.pins--; b.pins == 0 {
		c.pinned -= b.size()
	}
}
