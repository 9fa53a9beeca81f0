package otlp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// Observe is called with each event, one at a time, by senders and by Shutdown. It must not block for
	// long, nor offer batches or shut down.
	Observe func(Event)

	random func() float64 // of tests; nil: a random number in [0,1)
}

// Exporter sends batches to destinations. It is safe for concurrent use.
type Exporter struct {
	observe      func(Event)
	destinations []*destination
	cancel       context.CancelFunc // of everything in flight

	mu   sync.Mutex
	core *core

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
	fail := func(d *Destination, err error) (*Exporter, error) {
		for _, t := range transports {
			t.close()
		}
		return nil, fmt.Errorf("destination %s: %w", d.Name, err)
	}
	for i := range destinations {
		d := &destinations[i]
		if err := d.validate(); err != nil {
			return fail(d, err)
		}
		if names[d.Name] {
			return fail(d, errors.New("there are two of this name"))
		}
		names[d.Name] = true
		t, err := connect(d, o.Version, gzip, d.dial)
		if err != nil {
			return fail(d, err)
		}
		transports = append(transports, t)
	}

	random := o.random
	if random == nil {
		random = rand.Float64
	}
	x := &Exporter{observe: o.Observe, core: newCore(budget, destinations, random)}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	for i, p := range x.core.pipelines {
		x.destinations = append(x.destinations, x.newDestination(p, transports[i]))
	}
	for _, d := range x.destinations {
		d.start(ctx)
	}
	return x, nil
}

// Offer queues our own data at every destination that takes its signal. It never waits: where there is no
// room, the oldest data of our own at that destination is dropped. A batch without items is nothing.
func (x *Exporter) Offer(b *Batch) {
	x.mu.Lock()
	x.core.offer(b, time.Now())
	x.wake()
	x.unlock()
}

// TryOffer queues received data at every destination that takes its signal, or at none. What it takes may
// be acknowledged: no other data pushes it out. Errors are ErrTooLarge (for ever), ErrUnsupported, ErrClosed
// and *OverloadError (for now). It never waits.
func (x *Exporter) TryOffer(b *Batch) error {
	x.mu.Lock()
	defer x.unlock()
	err := x.core.tryOffer(b, time.Now())
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

// unlock unlocks mu, and tells what happened while it was held.
func (x *Exporter) unlock() {
	news := len(x.core.events) > 0
	x.mu.Unlock()
	if !news {
		return
	}
	x.observing.Lock()
	defer x.observing.Unlock()
	x.mu.Lock()
	events := x.core.events
	x.core.events = nil
	x.mu.Unlock()
	if x.observe != nil {
		for _, e := range events {
			x.observe(e)
		}
	}
}
