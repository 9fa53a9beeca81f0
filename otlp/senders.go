package otlp

import (
	"context"
	"sync"
	"time"
)

// destination carries out what its pipeline decides: its senders take batches and wait for answers.
type destination struct {
	exporter  *Exporter
	state     *destinationState // guarded by the exporter's lock
	transport *transport

	wake  *sync.Cond  // of the exporter's lock: there may be something to take
	timer *time.Timer // wakes one sender when a wait ends
	done  sync.WaitGroup
}

func (x *Exporter) newDestination(p *destinationState, t *transport) *destination {
	d := &destination{exporter: x, state: p, transport: t, wake: sync.NewCond(&x.mu)}
	d.timer = time.AfterFunc(time.Hour, func() {
		// With the lock, so that it cannot come between a look and the wait that follows it.
		x.mu.Lock()
		defer x.mu.Unlock()
		d.wake.Signal()
	})
	d.timer.Stop()
	return d
}

// start begins sending. It ends when the pipeline is drained; ctx cancels what is in flight then.
func (d *destination) start(ctx context.Context) {
	for range d.state.conf.Concurrency {
		d.done.Go(func() { d.send(ctx) })
	}
}

func (d *destination) send(ctx context.Context) {
	for e := d.next(); e != nil; e = d.next() {
		a := d.transport.export(ctx, e.batch, e.attempt.probe)
		x := d.exporter
		x.mu.Lock()
		d.state.finish(e, a, time.Now())
		if d.state.drained() {
			d.wake.Broadcast()
		}
		x.unlock()
	}
}

// next waits for a batch that may be sent now, nil when there will be none any more. Whoever takes one wakes
// the next sender, so that one signal is enough for any number of changes.
func (d *destination) next() *entry {
	x := d.exporter
	x.mu.Lock()
	defer x.unlock()
	for !d.state.drained() {
		e, wait := d.state.take(time.Now())
		if e != nil {
			if d.state.queue.length > 0 {
				d.wake.Signal()
			}
			return e
		}
		if d.state.drained() {
			break // the last ones had expired
		}
		if wait > 0 {
			d.timer.Reset(wait)
		}
		d.wake.Wait()
	}
	d.wake.Broadcast()
	return nil
}
