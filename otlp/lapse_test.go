package otlp

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// enqueueReceived counts how often received data is refused for now.
func (l *lab) enqueueReceived(b *Batch) (refused uint64) {
	l.Helper()
	var overload *OverloadError
	switch err := l.EnqueueReceived(context.Background(), b); {
	case errors.As(err, &overload):
		refused = 1
	case err != nil:
		l.Fatal(err)
	}
	l.after(0)
	return refused
}

// One destination hangs for ever, the other takes everything. As long as the first may come back, received data
// is refused when it is full. After its maximum age it harms nobody any more, however the memory is given.
func TestLapse(t *testing.T) {
	for _, c := range []struct {
		name          string
		queue, budget int64
		script        reply
		maxAge        time.Duration
		never         bool
	}{
		{"its queue is full", 20_000, 1 << 20, reply{hang: true}, time.Minute, false},
		{"the budget is full", 1 << 20, 20_000, reply{hang: true}, time.Minute, false},
		{"it says so at once", 20_000, 20_000, unavailable, time.Minute, false},
		{"any age is good", 20_000, 1 << 20, reply{hang: true}, 0, true},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			bad, good := newReceiver(t, c.script), newReceiver(t)
			d := bad.destination("bad")
			d.QueueBytes, d.MaxAge = c.queue, c.maxAge
			l := openLab(t, Options{Destinations: []Destination{d, good.destination("good")}, QueueBytes: c.budget})
			var offered, refused uint64
			for end := time.Now().Add(time.Minute); time.Now().Before(end); l.after(time.Second) {
				refused += l.enqueueReceived(kilo(0))
				l.Enqueue(kilo(1))
				offered += 2
			}
			if refused < 30 {
				t.Errorf("%d refused in the first minute", refused)
			}
			l.after(11 * time.Second) // the first attempts have ended after 10 s
			before := refused
			for range 600 {
				refused += l.enqueueReceived(kilo(2))
				l.Enqueue(kilo(3))
				l.after(time.Second)
				offered += 2
			}
			s := l.Status()
			if again := refused - before; c.never != (again > 0) {
				t.Errorf("%d refused after a minute", again)
			}
			if want := offered - refused; s[1].Sent != want || s[1].Accepted != want {
				t.Errorf("the good one was sent %d and offered %d items of %d", s[1].Sent, s[1].Accepted, want)
			}
			if s[0].Sent != 0 || !c.never && s[0].Dropped < 1000 {
				t.Errorf("the bad one: %+v", s[0])
			}

			// It comes back: what it holds is sent, and from then on it counts again.
			bad.answer(reply{})
			l.after(time.Minute)
			if s := l.Status()[0]; s.State != StateOpen || s.Sent == 0 || s.QueuedBatches != 0 {
				t.Errorf("the bad one, back again: %+v", s)
			}
			bad.answer(c.script)
			refused = 0
			for range 40 {
				refused += l.enqueueReceived(kilo(4))
			}
			if refused == 0 {
				t.Error("nothing is refused in a new outage")
			}
		})
	}
}

// Where nobody else would get it, received data is refused as ever: nobody is harmed, and who sends it may
// keep it. Destinations that take another signal are somebody else.
func TestLapseOfAll(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		bad, good := newReceiver(t, reply{code: codes.Unauthenticated}), newReceiver(t)
		d, other := bad.destination("bad"), good.destination("good")
		d.QueueBytes, d.MaxAge, other.Signals = 10_000, time.Minute, []Signal{Traces}
		l := openLab(t, Options{Destinations: []Destination{d, other}})
		l.send(Metrics, "x", 1)
		l.after(2 * time.Minute)
		l.wantState("bad", StateRejected)
		bad.answer(reply{hang: true})
		var refused uint64
		for range 20 {
			refused += l.enqueueReceived(kilo(0))
		}
		if refused != 10 {
			t.Errorf("%d of 20 refused, there is room for 10", refused)
		}
		l.wantCounts("bad", Metrics,
			"accepted_items=11 dropped_items{refused,UNAUTHENTICATED}=1 attempts{UNAUTHENTICATED}=1"+
				" queue_batches=6 queue_items=6 in_flight=4 in_flight_items=4")
	})
}

// Destinations that have lapsed lose first, also when another holds more, and what was received as well.
func TestLapsedLoseFirst(t *testing.T) {
	conf := []Destination{NewDestination("http://busy"), NewDestination("http://lapsed")}
	conf[0].Signals = []Signal{Metrics}
	conf[1].MaxAge, conf[1].Signals = time.Minute, []Signal{Traces}
	c := newScheduler(10_000, conf, always(0))
	busy, lapsed := c.destinations[0], c.destinations[1]
	batch := func(s Signal) *Batch { return NewBatch(s, make([]byte, 1000-overhead), 1, epoch) }
	for range 3 {
		if err := c.enqueueReceived(batch(Traces), epoch); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := lapsed.take(epoch)
	second, _ := lapsed.take(epoch)
	lapsed.finish(first, &answer{code: codes.Unavailable}, epoch)
	for range 7 {
		c.enqueue(batch(Metrics), epoch)
	}
	late := epoch.Add(time.Minute)
	c.enqueue(batch(Metrics), late)
	if busy.counters[Metrics].dropped[QueueFull] != 1 || lapsed.queue.length != 2 {
		t.Errorf("after the maximum age and no more: %d dropped", busy.counters[Metrics].dropped[QueueFull])
	}
	late = late.Add(1)
	for range 2 {
		c.enqueue(batch(Metrics), late)
	}
	if busy.counters[Metrics].dropped[QueueFull] != 1 || lapsed.counters[Traces].dropped[QueueFull] != 2 {
		t.Errorf("lapsed: %d dropped, and %d of the other", lapsed.counters[Traces].dropped[QueueFull],
			busy.counters[Metrics].dropped[QueueFull])
	}
	checkSums(t, c, []flying{{lapsed, second}})
	// What returns from an attempt is not acknowledged any more either.
	lapsed.finish(second, &answer{code: codes.Unavailable}, late)
	checkSums(t, c, nil)
	c.enqueue(batch(Metrics), late)
	if busy.counters[Metrics].dropped[QueueFull] != 1 || lapsed.queue.length != 0 || lapsed.unevictable != 0 {
		t.Errorf("%d are held by the lapsed one, %d bytes unevictable", lapsed.queue.length, lapsed.unevictable)
	}
	checkSums(t, c, nil)
}

// A destination is given up for nothing else: not because it refuses some batches, nor at once because it closes a
// while later, nor because one that it asked to wait before it took another has to.
func TestNotLapsed(t *testing.T) {
	refuses := func(p *destinationState) {
		e, _ := p.take(epoch)
		p.finish(e, &answer{code: codes.InvalidArgument}, epoch)
	}
	closes := func(p *destinationState) { // 5 minutes after it refused one
		refuses(p)
		e, _ := p.take(epoch)
		p.finish(e, &answer{code: codes.Unavailable}, epoch.Add(5*time.Minute))
	}
	takes := func(p *destinationState) {
		first, _ := p.take(epoch)
		second, _ := p.take(epoch)
		p.finish(first, &answer{code: codes.Unavailable}, epoch)
		later := epoch.Add(time.Second)
		probe, _ := p.take(later)
		p.finish(second, &answer{code: codes.Unavailable, retryInfo: true, delay: maxDelay}, later)
		p.finish(probe, &answer{code: codes.OK}, later)
	}
	for name, attempts := range map[string]func(*destinationState){"refuses": refuses, "closes": closes, "takes": takes} {
		d := NewDestination("http://a")
		d.MaxAge = time.Minute
		c := newScheduler(1<<20, []Destination{d}, always(0))
		p := c.destinations[0]
		for range 2 {
			c.enqueue(NewBatch(Metrics, []byte("x"), 1, epoch), epoch)
		}
		attempts(p)
		if c.lapse(epoch.Add(5 * time.Minute)); p.lapsed {
			t.Errorf("%s: has lapsed, in state %v", name, p.state())
		}
	}
}

// A destination that can never take a batch does not keep the others from it.
func TestBarredBySize(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		picky, tiny, good := newReceiver(t), newReceiver(t), newReceiver(t)
		d1, d2 := picky.destination("picky"), tiny.destination("tiny")
		d1.MaxRequestBytes, d2.QueueBytes = 10, 1000
		l := openLab(t, Options{Destinations: []Destination{d1, d2, good.destination("good")}})
		if err := l.EnqueueReceived(context.Background(), kilo(0)); err != nil {
			t.Fatal(err)
		}
		l.after(0)
		l.wantCounts("picky", Metrics, "accepted_items=1 dropped_items{too_large}=1")
		l.wantCounts("tiny", Metrics, "accepted_items=1 dropped_items{too_large}=1")
		l.wantCounts("good", Metrics, "accepted_items=1 sent_items=1 attempts{OK}=1")

		l = openLab(t, Options{Destinations: []Destination{good.destination("good")}, QueueBytes: 1000})
		if err := l.EnqueueReceived(context.Background(), kilo(0)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("larger than received data may be of the budget: %v", err)
		}
	})
}
