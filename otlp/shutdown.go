package otlp

import (
	"context"
	"errors"
	"time"
)

// errLost means that items were not delivered when the exporter was shut down. EventLost says how
// many.
var errLost = errors.New("items were not delivered before the shutdown")

// Shutdown sends what is queued, at all destinations side by side, until ctx is done: then requests
// in flight are cancelled, and what is left is lost. A destination that waits gets one more attempt
// at once, unless its receiver asked for the wait. No new data is accepted. If ctx is done already,
// Shutdown does not wait. Calls after the first return ErrClosed at once; Status and Collect work
// afterwards.
func (x *Exporter) Shutdown(ctx context.Context) error {
	now := time.Now()
	x.mu.Lock()
	if x.scheduler.closed {
		x.mu.Unlock()
		return ErrClosed
	}
	x.scheduler.closed = true
	for _, d := range x.scheduler.destinations {
		d.drain(now)
	}
	x.scheduler.admitWaiting(now) // with ErrClosed
	x.broadcast()
	x.unlock()

	end := context.AfterFunc(ctx, func() {
		x.mu.Lock()
		for _, d := range x.scheduler.destinations {
			d.stop()
		}
		x.broadcast()
		x.unlock()
		x.cancel()
	})
	for _, s := range x.senders {
		s.running.Wait()
		s.timer.Stop()
		s.transport.close()
	}
	end()
	x.cancel()

	x.mu.Lock()
	defer x.unlock()
	var err error
	for _, d := range x.scheduler.destinations {
		if d.lost.batches > 0 {
			d.emit(Event{Kind: EventLost, Items: d.lost.items, Batches: uint64(d.lost.batches)})
			err = errLost
		}
	}
	return err
}

// broadcast wakes all senders. x.mu is held.
func (x *Exporter) broadcast() {
	for _, s := range x.senders {
		s.wake.Broadcast()
	}
}

// finalAttempt is the one attempt that a waiting destination gets when the exporter is shut down.
type finalAttempt uint8

const (
	finalAttemptUnused finalAttempt = iota
	finalAttemptGiven
	finalAttemptUsed
)

// drain begins the shutdown: the destination sends until the queue is empty. If it waits, it gets
// one more attempt at once, unless the receiver asked for the wait.
func (d *destinationState) drain(now time.Time) {
	d.draining = true
	d.finishDrain(now)
}

// finishDrain gives up the queue of a draining destination that has had its final attempt.
func (d *destinationState) finishDrain(now time.Time) {
	if !d.draining || d.circuit.state != circuitWaiting {
		return
	}
	if d.finalAttempt != finalAttemptUsed && d.circuit.interrupt(now) {
		d.finalAttempt = finalAttemptGiven
		return
	}
	d.abandon()
}

// stop ends the shutdown: what waits is lost, and what is in flight unless it is delivered.
func (d *destinationState) stop() {
	d.draining, d.stopped = true, true
	d.abandon()
}

func (d *destinationState) abandon() {
	for d.queue.front != nil {
		d.discard(d.queue.front, Shutdown)
	}
}

// drained reports whether the shutdown is complete: nothing is left to send or to wait for.
func (d *destinationState) drained() bool {
	return d.draining && d.queue.length == 0 && d.circuit.inFlight == 0
}
