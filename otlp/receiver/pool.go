package receiver

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"correlator/internal/host/connlimit"
)

// caller is the sender of one call, as long as the call is served.
type caller struct {
	conn *connlimit.Conn

	mu          sync.Mutex
	depends     time.Time // since when it has depended on its sender, or zero
	interrupt   func()    // ends that; nil once the call has ended
	interrupted bool
}

// newCaller returns the caller of a request. An interruption ends its reads, and by stopWaiting its
// wait for slots and memory. By HTTP/1.1 it may end the request's context, too: net/http reads on for
// the next request, and takes the error of that for the end of the client. So what has been received
// by then is refused, and comes again.
func newCaller(conn *connlimit.Conn, w http.ResponseWriter, stopWaiting func()) *caller {
	controller := http.NewResponseController(w)
	return &caller{conn: conn, interrupt: func() {
		stopWaiting()
		_ = controller.SetReadDeadline(time.Unix(1, 0)) // a read that waits ends, too
	}}
}

// reads notes that the call waits for data of its sender from now on. Calls that do so for longer
// than connlimit.Grace lose what they hold to calls that have less and wait for it.
func (c *caller) reads() { c.setDepends(time.Now()) }

// hasRead is the counterpart of reads.
func (c *caller) hasRead() { c.setDepends(time.Time{}) }

func (c *caller) setDepends(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.depends = since
}

// end ends the call. After that it cannot be interrupted.
func (c *caller) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupt = nil
}

// stop interrupts a call, if it still depends on its sender.
func (c *caller) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupt != nil && !c.interrupted && !c.depends.IsZero() {
		c.interrupted = true
		c.interrupt()
	}
}

// isInterrupted reports whether the call was interrupted.
func (c *caller) isInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// slow returns since when a call that may be interrupted now has depended on its sender.
func (c *caller) slow(now time.Time) (since time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.depends, !c.depends.IsZero() && !c.interrupted && now.Sub(c.depends) >= connlimit.Grace
}

// pool is an amount of something that calls take parts of, shared fairly: the next part goes to the
// peer that holds the least, and there, to the connection that does.
type pool struct {
	running    context.Context // once it is done nothing is given out
	maxWaiting int

	mu      sync.Mutex
	free    int64
	holders []*claim
	waiting []*claim      // in the order of arrival
	idle    chan struct{} // if not nil, closed when there are no holders
}

// claim is what a call holds of a pool, or waits for.
type claim struct {
	*caller
	amount int64
	result chan error // receives nil or errTooMany
}

// errTooMany refuses a claim because too many wait.
var errTooMany = errors.New("too many requests wait")

func newPool(running context.Context, amount int64, maxWaiting int) *pool {
	return &pool{running: running, free: amount, maxWaiting: maxWaiting}
}

// acquire waits for an amount until ctx is done. If too many wait, one of the peer with the most
// calls is refused.
func (p *pool) acquire(ctx context.Context, by *caller, amount int64) (*claim, error) {
	c := &claim{caller: by, amount: amount, result: make(chan error, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, c)
	p.grant()
	if len(p.waiting) > p.maxWaiting {
		p.refuse()
	}
	p.mu.Unlock()
	select {
	case err := <-c.result:
		return c, err
	default:
	}
	retry := time.NewTicker(connlimit.Grace / 4)
	defer retry.Stop()
	for {
		p.takeFor(c)
		select {
		case err := <-c.result:
			return c, err
		case <-ctx.Done():
			return nil, p.withdraw(ctx, c)
		case <-p.running.Done():
			return nil, p.withdraw(p.running, c)
		case <-retry.C:
		}
	}
}

// withdraw ends the wait of a claim because a context is done.
func (p *pool) withdraw(ctx context.Context, c *claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.waiting)
	p.waiting = without(p.waiting, c)
	if len(p.waiting) == before && <-c.result == nil { // granted meanwhile
		p.put(c)
	}
	return ctx.Err()
}

// try returns a claim if the amount is free and nobody waits for it, or nil.
func (p *pool) try(by *caller, amount int64) *claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	if amount > p.free || len(p.waiting) > 0 {
		return nil
	}
	c := &claim{caller: by, amount: amount}
	p.take(c)
	return c
}

// release gives back what a claim holds.
func (p *pool) release(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(c)
}

func (p *pool) take(c *claim) {
	p.free -= c.amount
	p.holders = append(p.holders, c)
}

func (p *pool) put(c *claim) {
	p.free += c.amount
	p.holders = without(p.holders, c)
	if len(p.holders) == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	p.grant()
}

// grant gives what is free to those that wait: first to the one whose peer, and there whose connection,
// holds the least. If that one needs more, the others wait, too.
func (p *pool) grant() {
	for len(p.waiting) > 0 && p.running.Err() == nil {
		next := slices.MinFunc(p.waiting, func(a, b *claim) int { return compare(a, b, p.holders) })
		if next.amount > p.free {
			return
		}
		p.waiting = without(p.waiting, next)
		p.take(next)
		next.result <- nil
	}
}

// refuse refuses one of those that wait: one of the peer, and there of the connection, that holds
// and waits for the most; the one that came last if that is not clear.
func (p *pool) refuse() {
	most := p.waiting[0]
	for _, c := range p.waiting[1:] {
		if compare(c, most, p.holders, p.waiting) >= 0 {
			most = c
		}
	}
	p.waiting = without(p.waiting, most)
	most.result <- errTooMany
}

// takeFor interrupts a call that makes others wait because its sender is slow, for one that waits:
// of the peer that holds the most, and there, of the connection that does. A peer that holds less
// than the one that waits loses nothing.
func (p *pool) takeFor(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var victim *claim
	var since time.Time
	now := time.Now()
	for _, v := range p.holders {
		depends, ok := v.slow(now)
		if !ok || v.conn.Peer() != c.conn.Peer() && v.share(p.holders).peer <= c.share(p.holders).peer {
			continue
		}
		order := 1
		if victim != nil {
			order = compare(v, victim, p.holders)
		}
		if order > 0 || order == 0 && depends.Before(since) {
			victim, since = v, depends
		}
	}
	if victim != nil {
		victim.stop()
	}
}

// wait waits until nothing is held, or ctx is done.
func (p *pool) wait(ctx context.Context) error {
	p.mu.Lock()
	if len(p.holders) == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counts returns how many calls hold and wait for a part.
func (p *pool) counts() (holding, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.holders), len(p.waiting)
}

func without(claims []*claim, c *claim) []*claim {
	return slices.DeleteFunc(claims, func(other *claim) bool { return other == c })
}

// share is what the peer of a claim has in all, and what its connection has.
type share struct{ peer, conn int64 }

// share adds up the claims of some lists, which are short.
func (c *claim) share(lists ...[]*claim) (s share) {
	for _, claims := range lists {
		for _, other := range claims {
			if other.conn.Peer() == c.conn.Peer() {
				s.peer += other.amount
			}
			if other.conn == c.conn {
				s.conn += other.amount
			}
		}
	}
	return s
}

// compare compares the shares of two claims.
func compare(a, b *claim, lists ...[]*claim) int {
	x, y := a.share(lists...), b.share(lists...)
	return cmp.Or(cmp.Compare(x.peer, y.peer), cmp.Compare(x.conn, y.conn))
}
