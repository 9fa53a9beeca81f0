package naming

import (
	"context"
	"sync/atomic"

	"correlator/profile"
)

// Consumer is one of those who want samples with names: each sample that it is given comes back once, at
// once or up to maxHold later. What is read for one is there for all. It is safe for concurrent use.
type Consumer struct {
	namer    *Namer
	emit     func(*profile.Sample)
	patient  bool // see NewPatientConsumer
	unnamed  [numReasons]atomic.Uint64
	released chan struct{} // has a token when no sample is held any more

	// Guarded by the namer's lock.
	held   int  // samples that are not emitted yet
	closed bool // no more samples are held
}

// NewConsumer returns a Consumer; one of a nil Namer emits all samples as they are. emit gets all of its
// samples, when their names are known or will not be; it is called with nothing locked.
func (n *Namer) NewConsumer(emit func(*profile.Sample)) *Consumer {
	return &Consumer{namer: n, emit: emit, released: make(chan struct{}, 1)}
}

// NewPatientConsumer is NewConsumer for who looks at samples every few seconds only: while nobody else waits for the
// names of a process, they are asked for less often.
func (n *Namer) NewPatientConsumer(emit func(*profile.Sample)) *Consumer {
	c := n.NewConsumer(emit)
	c.patient = true
	return c
}

// Sampled emits a sample, at once or when its names are known. It waits for nothing. The sample stays
// the caller's.
func (c *Consumer) Sampled(s *profile.Sample) {
	if c.namer == nil {
		c.emit(s)
		return
	}
	if reason, held := c.namer.hold(c, s); !held {
		c.take(s, reason)
	}
}

// take emits a sample, and counts why names of it are not known.
func (c *Consumer) take(s *profile.Sample, reason reason) {
	if reason < numReasons {
		c.unnamed[reason].Add(s.Count)
	}
	c.emit(s)
}

// emitted counts a sample that was held, and is emitted. The namer's lock is held.
func (c *Consumer) emitted() {
	if c.held--; c.held == 0 {
		select {
		case c.released <- struct{}{}:
		default:
		}
	}
}

// Close emits the samples that are held when their names are known, or ctx ends. Samples that come later
// are emitted as they are.
func (c *Consumer) Close(ctx context.Context) {
	n := c.namer
	if n == nil {
		return
	}
	n.mu.Lock()
	c.closed = true
	n.mu.Unlock()
	c.await(ctx)
	n.mu.Lock()
	samples := n.takeHeld(func(h *heldSample) bool { return h.consumer == c })
	n.mu.Unlock()
	n.emitAll(samples, unnamedShutdown)
	c.await(context.Background()) // what others emit at this moment
}

// await waits until no sample is held any more, or ctx ends.
func (c *Consumer) await(ctx context.Context) {
	c.namer.mu.Lock()
	defer c.namer.mu.Unlock()
	for c.held > 0 && ctx.Err() == nil {
		c.namer.mu.Unlock()
		select {
		case <-c.released:
		case <-ctx.Done():
		}
		c.namer.mu.Lock()
	}
}

// Unnamed yields, by reason, how many samples were emitted although names may be missing.
func (c *Consumer) Unnamed(yield func(reason string, samples uint64) bool) {
	for r := range c.unnamed {
		if !yield(reasonNames[r], c.unnamed[r].Load()) {
			return
		}
	}
}
