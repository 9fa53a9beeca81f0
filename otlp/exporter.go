package otlp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"correlator/internal/host/metric"
)

// Options configures an Exporter.
type Options struct {
	// Destinations get every batch of the signals that they take. There may be none: then nothing
	// is kept.
	Destinations []Destination
	// QueueBytes is the memory for batches that the destinations without QueueBytes of their own
	// share; 0 is DefaultQueueBytes. A batch counts at every destination that holds it, so the sum
	// of all Quotas bounds the memory.
	QueueBytes int64
	// Version is ours, for the User-Agent.
	Version string
	// Observe is called with each event, one at a time, by senders and by Shutdown. While it blocks
	// nothing is sent, though batches are accepted. It must not shut down the exporter.
	Observe func(Event)

	random func() float64 // of tests; nil: a random number in [0,1)
}

// Exporter sends batches to destinations. It is safe for concurrent use.
type Exporter struct {
	metric.Unchecked

	observe func(Event)
	senders []*senders         // one for each destination
	cancel  context.CancelFunc // of everything in flight

	mu        sync.Mutex
	scheduler *scheduler

	observing sync.Mutex // serializes calls of observe
}

// Open starts an exporter. No connection is made until there is something to send, so destinations
// may be down; configurations that cannot work are errors. The caller must call Shutdown.
func Open(o Options) (*Exporter, error) {
	if o.QueueBytes < 0 {
		return nil, fmt.Errorf("queue-bytes %d: negative", o.QueueBytes)
	}
	destinations := slices.Clone(o.Destinations)
	names := make(map[string]bool)
	gzip := &compressor{}
	var transports []transport
	fail := func(i int, err error) (*Exporter, error) {
		for _, t := range transports {
			t.close()
		}
		name := destinations[i].Name
		if name == destinations[i].Endpoint {
			name = strconv.Itoa(i + 1) // an invalid endpoint may contain a password
		}
		return nil, fmt.Errorf("destination %s: %w", name, err)
	}
	for i := range destinations {
		d := &destinations[i]
		if err := d.Validate(); err != nil {
			return fail(i, err)
		}
		if names[d.Name] {
			return fail(i, errors.New("there is another one with its name"))
		}
		names[d.Name] = true
		t, err := openTransport(d, o.Version, gzip)
		if err != nil {
			return fail(i, err)
		}
		transports = append(transports, t)
	}

	random := o.random
	if random == nil {
		random = rand.Float64
	}
	x := &Exporter{
		observe: o.Observe, scheduler: newScheduler(o.QueueBytes, destinations, random),
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	for i, d := range x.scheduler.destinations {
		x.senders = append(x.senders, x.newSenders(d, transports[i]))
	}
	for _, s := range x.senders {
		s.start(ctx)
	}
	return x, nil
}

// Enqueue queues our own data at every destination that takes its signal. It never waits: where
// there is no room, the destination's oldest data of ours is dropped. A batch without items is
// ignored.
func (x *Exporter) Enqueue(b *Batch) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.scheduler.enqueue(b, now)
	x.wake(now)
}

// EnqueueReceived queues received data at every destination that takes its signal, or at none. What
// is queued may be acknowledged: no other data evicts it, except at a destination that is down,
// which is one that has accepted nothing for a minute. Such a destination is no reason to refuse
// data either, unless no other gets it.
//
// If there is no room, EnqueueReceived waits for it until ctx is done, unless it expects that to be
// too late. It returns ErrTooLarge, ErrUnsupported (both permanent), ErrClosed, or an
// *OverloadError, without waiting if ctx is done already.
func (x *Exporter) EnqueueReceived(ctx context.Context, b *Batch) error {
	now := time.Now()
	x.mu.Lock()
	err := x.scheduler.enqueueReceived(b, now)
	var overload *OverloadError
	if !errors.As(err, &overload) || !mayWait(ctx, now.Add(overload.RetryAfter)) {
		if err == nil {
			x.wake(now)
		}
		x.mu.Unlock()
		return err
	}
	w := &waiter{batch: b, done: make(chan error, 1)}
	x.scheduler.waiting = append(x.scheduler.waiting, w)
	x.mu.Unlock()

	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	now = time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.Index(x.scheduler.waiting, w)
	if i < 0 { // decided meanwhile
		return <-w.done
	}
	x.scheduler.waiting = slices.Delete(x.scheduler.waiting, i, i+1)
	if later := x.scheduler.refusal(b, now); later != nil {
		err = later
	}
	x.admitWaiting(now) // those behind it may be smaller
	return err
}

// mayWait reports whether ctx allows a wait until that time.
func mayWait(ctx context.Context, until time.Time) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() == nil && (!ok || deadline.After(until))
}

// admitWaiting queues received data that waited for room, now that there may be some. x.mu is held.
func (x *Exporter) admitWaiting(now time.Time) {
	if x.scheduler.admitWaiting(now) {
		x.wake(now)
	}
}

// wake makes one sender of each destination look for something to send. x.mu is held.
func (x *Exporter) wake(now time.Time) {
	for _, s := range x.senders {
		s.changed(now)
		s.wake.Signal()
	}
}

// unlock unlocks mu and passes on the events that were emitted while it was held. Enqueue and
// EnqueueReceived do not use it, since they must not wait for an observer.
func (x *Exporter) unlock() {
	emitted := len(x.scheduler.events) > 0
	x.mu.Unlock()
	if !emitted {
		return
	}
	x.observing.Lock()
	defer x.observing.Unlock()
	x.mu.Lock()
	events := x.scheduler.events
	x.scheduler.events = nil
	x.mu.Unlock()
	if x.observe != nil {
		for _, e := range events {
			x.observe(e)
		}
	}
}
