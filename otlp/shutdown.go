package otlp

import (
	"context"
	"errors"
	"time"
)

// ErrLost: items were not delivered when the exporter was shut down. EventLost says how many.
var ErrLost = errors.New("items were not delivered before the shutdown")

// Shutdown sends what is queued, at all destinations side by side, until ctx is done: then requests in
// flight are cancelled, and what is left is lost. A destination that waits gets one more attempt at once,
// unless its receiver has asked for the wait. No new data is taken. With a ctx that is done already,
// nothing is waited for. Only the first call does something, the others are ErrClosed at once;
// Status and Each work afterwards.
func (x *Exporter) Shutdown(ctx context.Context) error {
	x.mu.Lock()
	if x.scheduler.closed {
		x.mu.Unlock()
		return ErrClosed
	}
	x.scheduler.closed = true
	for _, p := range x.scheduler.destinations {
		p.drain(time.Now())
	}
	x.broadcast()
	x.unlock()

	end := context.AfterFunc(ctx, func() {
		x.mu.Lock()
		for _, p := range x.scheduler.destinations {
			p.stop()
		}
		x.broadcast()
		x.unlock()
		x.cancel()
	})
	for _, d := range x.destinations {
		d.done.Wait()
		d.timer.Stop()
		d.transport.close()
	}
	end()
	x.cancel()

	x.mu.Lock()
	defer x.unlock()
	var err error
	for _, p := range x.scheduler.destinations {
		if p.lost.batches > 0 {
			p.emit(Event{Kind: EventLost, Items: p.lost.items, Batches: uint64(p.lost.batches)})
			err = ErrLost
		}
	}
	return err
}

// broadcast wakes all senders.
func (x *Exporter) broadcast() {
	for _, d := range x.destinations {
		d.wake.Broadcast()
	}
}
