package otlp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Options is what an exporter works with.
type Options struct {
	// Destinations get every batch of the signals that they take. There may be none: then nothing is kept.
	Destinations []Destination
	// QueueBytes is the memory for all batches together, each counted once; 0 is DefaultQueueBytes.
	QueueBytes int64
	// Version is ours, for the User-Agent.
	Version string
	// Observe is called with each event, one at a time, by senders and by Shutdown. While it blocks nothing is
	// sent, though batches are taken. It must not shut down.
	Observe func(Event)

	random func() float64 // of tests; nil: a random number in [0,1)
}

// Exporter sends batches to destinations. It is safe for concurrent use.
type Exporter struct {
	observe      func(Event)
	destinations []*destination
	cancel       context.CancelFunc // of everything in flight

	mu        sync.Mutex
	scheduler *scheduler

	observing sync.Mutex // so that events are told one after the other
}

// Open starts an exporter. No connection is made until there is something to send, so destinations may be
// down; configurations that cannot work are errors. The caller must call Shutdown.
func Open(o Options) (*Exporter, error) {
	budget := o.QueueBytes
	switch {
	case budget == 0:
		budget = DefaultQueueBytes
	case budget < 0:
		return nil, fmt.Errorf("queue-bytes %d: negative", budget)
	}
	destinations := append([]Destination(nil), o.Destinations...)
	names := make(map[string]bool)
	gzip := &compressor{}
	var transports []*transport
	fail := func(i int, err error) (*Exporter, error) {
		for _, t := range transports {
			t.close()
		}
		name := destinations[i].Name
		if name == destinations[i].Endpoint {
			name = strconv.Itoa(i + 1) // what is no endpoint may have a password in it
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
		t, err := connect(d, o.Version, gzip, d.dial)
		if err != nil {
			return fail(i, err)
		}
		transports = append(transports, t)
	}

	random := o.random
	if random == nil {
		random = rand.Float64
	}
	x := &Exporter{observe: o.Observe, scheduler: newScheduler(budget, destinations, random)}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	for i, p := range x.scheduler.destinations {
		x.destinations = append(x.destinations, x.newDestination(p, transports[i]))
	}
	for _, d := range x.destinations {
		d.start(ctx)
	}
	return x, nil
}

// Enqueue queues our own data at every destination that takes its signal. It never waits: where there is no
// room, older data is dropped: our own, or what a destination that is long down was acknowledged. A batch without items is
// nothing.
func (x *Exporter) Enqueue(b *Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.scheduler.enqueue(b, time.Now())
	x.wake()
}

// EnqueueReceived queues received data at every destination that takes its signal, or at none. What it takes may
// be acknowledged: no other data pushes it out, but at a destination that has been closed, and has taken
// nothing, for longer than its MaxAge. Such a one is no reason to refuse either, unless there is no other.
// Errors are ErrTooLarge (for ever), ErrUnsupported, ErrClosed and *OverloadError (for now). It never waits.
func (x *Exporter) EnqueueReceived(_ context.Context, b *Batch) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.scheduler.enqueueReceived(b, time.Now())
	if err == nil {
		x.wake()
	}
	return err
}

// wake tells one sender of each destination that there may be something to send.
func (x *Exporter) wake() {
	for _, d := range x.destinations {
		d.wake.Signal()
	}
}

// unlock unlocks mu, and tells what happened while it was held. Who offers does not: that must not wait for
// an observer.
func (x *Exporter) unlock() {
	news := len(x.scheduler.events) > 0
	x.mu.Unlock()
	if !news {
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
