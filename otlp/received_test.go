package otlp

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"
)

// impatient returns a context that is done: received data does not wait for room.
func impatient(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// enqueueReceived counts how often received data is refused for now.
func (l *lab) enqueueReceived(b *Batch) (refused uint64) {
	l.Helper()
	if err := l.EnqueueReceived(impatient(l), b); isOverload(err) {
		refused = 1
	} else if err != nil {
		l.Fatal(err)
	}
	l.after(0)
	return refused
}

// Received data is never evicted by other data, and refused while there is no room.
func TestReceivedData(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		slow := newReceiver(t, reply{delay: time.Second})
		d := slow.destination("a")
		d.QueueBytes, d.Concurrency = 20_000, 1
		l := lab1(t, d)
		taken := 0
		var err error
		for ; err == nil; taken++ {
			err = l.EnqueueReceived(impatient(t), kilo(taken))
		}
		taken--
		var overload *OverloadError
		assert.Assert(t, errors.As(err, &overload) && overload.Destination == "a" && taken == 15,
			"after %d batches: %v", taken, err)
		for i := range 20 {
			l.Enqueue(kilo(i)) // there is room for 5, in turn
		}
		l.after(0)
		s := l.Status()[0]
		assert.Check(t, s.Dropped.Sum() == 15 && s.QueuedBatches+s.InFlight == 20, "%+v", s)
		err = l.EnqueueReceived(impatient(t), NewBatch(Metrics, make([]byte, 20_001-overhead), 1,
			time.Now()))
		assert.Check(t, errors.Is(err, ErrTooLarge), "larger than the quota: %v", err)
		l.after(time.Minute)
		s = l.Status()[0]
		assert.Check(t, s.Sent == 20 && len(slow.got()) == 20, "%+v", s)
		// What is larger than the share of received data goes alone.
		assert.Check(t, l.EnqueueReceived(impatient(t), NewBatch(Metrics, make([]byte, 20_000-overhead), 1,
			time.Now())), "as large as the quota")
	})
}

// A refusal says when there will be room: by the latency, the requests at a time and what is
// queued.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name        string
		delay       time.Duration
		concurrency int
		silent      time.Duration // before the refusal, nothing is answered for so long
		size        int           // of what is refused
		want        time.Duration
	}{
		{"one request", time.Second, 1, 0, 1000, time.Second},
		{"three requests", time.Second, 1, 0, 3000, 3 * time.Second},
		{"three at a time", time.Second, 3, 0, 3000, time.Second},
		{"a fast receiver", 10 * time.Millisecond, 4, 0, 3000, minRetryAfter},
		{"an idle minute before", 10 * time.Millisecond, 1, 0, 1000, minRetryAfter},
		{"an endless queue", 9 * time.Second, 1, 0, 15_000, maxRetryAfter},
		{"an answer that is overdue", time.Second, 1, 5 * time.Second, 1000, 5 * time.Second},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newReceiver(t, reply{delay: c.delay})
			d := r.destination("a")
			d.QueueBytes, d.Concurrency = 20_000, c.concurrency
			d.Timeout = time.Hour
			l := openLab(t, Options{Destinations: []Destination{d}, random: always(0.5)}) // no jitter
			for i := range c.concurrency {
				l.Enqueue(kilo(i))
			}
			l.after(time.Minute)
			if c.silent > 0 {
				r.answer(reply{hang: true})
			}
			for i := range 15 {
				assert.NilError(t, l.EnqueueReceived(impatient(t), kilo(i)))
			}
			l.after(c.silent)
			err := l.EnqueueReceived(impatient(t), NewBatch(Metrics, make([]byte, c.size-overhead), 1, time.Now()))
			var overload *OverloadError
			assert.Check(t, errors.As(err, &overload) && overload.RetryAfter >= c.want &&
				overload.RetryAfter <= c.want+time.Millisecond,
				"%v, want %v", err, c.want)
		})
	}
}

// Received data that finds no room is held until there is some, and not refused, if that is soon.
func TestHold(t *testing.T) {
	inBubble(t, "room in time", func(t *testing.T) {
		r := newReceiver(t, reply{delay: 100 * time.Millisecond})
		d := r.destination("a")
		d.QueueBytes, d.Concurrency = 20_000, 2
		l := lab1(t, d)
		// Ten senders, each with one request at a time, send more than the destination takes.
		done := make(chan error)
		for range 10 {
			go func() {
				for range 50 {
					if err := l.EnqueueReceived(t.Context(), kilo(0)); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		start := time.Now()
		for range 10 {
			err := <-done
			assert.Check(t, err)
		}
		// 500 batches, 20 a second, of which the queue may have 15 still.
		took := time.Since(start)
		assert.Check(t, took <= 25*time.Second && took >= 24*time.Second, "500 batches took %v", took)
		l.after(time.Second)
		s := l.Status()[0]
		assert.Check(t, s.Sent == 500, "%+v", s)
	})
	inBubble(t, "no room", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		d := r.destination("a")
		d.QueueBytes = 20_000
		l := openLab(t, Options{Destinations: []Destination{d}, random: always(0.5)}) // no jitter
		for i := range 15 {
			assert.NilError(t, l.EnqueueReceived(t.Context(), kilo(i)))
		}
		wait := func(timeout time.Duration) (took time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			start := time.Now()
			var overload *OverloadError
			if err := l.EnqueueReceived(ctx, kilo(0)); !errors.As(err, &overload) {
				t.Error(err)
			} else if overload.RetryAfter < time.Since(start) {
				t.Errorf("after %v told to return in %v", time.Since(start), overload.RetryAfter)
			}
			return time.Since(start)
		}
		took := wait(2 * time.Second)
		assert.Check(t, took == 2*time.Second, "refused after %v", took)
		// After two seconds without an answer it is known to take longer.
		took = wait(time.Second)
		assert.Check(t, took == 0, "refused after %v", took)
	})
	inBubble(t, "sender gives up", func(t *testing.T) {
		r := newReceiver(t, reply{delay: time.Second})
		d := r.destination("a")
		d.QueueBytes, d.Concurrency = 20_000, 1
		l := lab1(t, d)
		for i := range 15 {
			assert.NilError(t, l.EnqueueReceived(t.Context(), kilo(i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		err := l.EnqueueReceived(ctx, kilo(0))
		assert.Check(t, isOverload(err), err)
		l.after(time.Minute)
		s := l.Status()[0]
		assert.Check(t, s.Sent == 15, "%d sent", s.Sent)
	})
	inBubble(t, "shutdown", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		d := r.destination("a")
		d.QueueBytes = 20_000
		l := lab1(t, d)
		for i := range 15 {
			assert.NilError(t, l.EnqueueReceived(t.Context(), kilo(i)))
		}
		ended := make(chan struct{})
		time.AfterFunc(time.Second/2, func() {
			defer close(ended)
			l.Shutdown(impatient(t))
		})
		err := l.EnqueueReceived(t.Context(), kilo(0))
		assert.Check(t, err == ErrClosed, err)
		<-ended
	})
}

// Batches that wait for room at the same destination are taken in the order of arrival; those for
// another destination do not wait for them.
func TestHoldOrder(t *testing.T) {
	d1, d2 := NewDestination("http://a"), NewDestination("http://b")
	d1.Signals, d2.Signals = []Signal{Metrics}, []Signal{Traces}
	d1.QueueBytes, d2.QueueBytes = 4000, 4000
	s := newScheduler(0, []Destination{d1, d2}, always(0.5))
	batch := func(signal Signal, size int) *Batch { return NewBatch(signal, make([]byte, size-overhead), 1, epoch) }
	for _, signal := range []Signal{Metrics, Traces} {
		for range 3 {
			assert.NilError(t, s.enqueueReceived(batch(signal, 1000), epoch))
		}
	}
	var waiters []*waiter
	for _, b := range []*Batch{batch(Metrics, 2000), batch(Metrics, 500), batch(Traces, 1000)} {
		err := s.enqueueReceived(b, epoch)
		assert.Assert(t, isOverload(err), err)
		w := &waiter{batch: b, done: make(chan error, 1)}
		s.waiting, waiters = append(s.waiting, w), append(waiters, w)
	}
	deliver := func(d *destinationState, want ...int) {
		t.Helper()
		d.finish(d.take(epoch), &result{code: codes.OK}, epoch)
		s.admitWaiting(epoch)
		for i, w := range waiters {
			got := len(w.done)
			assert.Check(t, got == want[i], "batch %d was decided %d times, want %d", i, got, want[i])
		}
		checkSums(t, s, nil)
	}
	deliver(s.destinations[0], 0, 0, 0) // 2 of 3 kB are held
	deliver(s.destinations[1], 0, 0, 1)
	deliver(s.destinations[0], 1, 0, 1)
	deliver(s.destinations[0], 1, 1, 1)
	assert.Check(t, s.enqueueReceived(batch(Metrics, 300), epoch), "after those that waited")
}

// A large batch gets room however many small ones of another signal come for the same destination.
func TestSmallBatchesDoNotStarveLargeOne(t *testing.T) {
	d := NewDestination("http://a")
	d.QueueBytes = 8 << 10
	s := newScheduler(0, []Destination{d}, always(0.5))
	a := s.destinations[0]
	batch := func(signal Signal, size int) *Batch { return NewBatch(signal, make([]byte, size-overhead), 1, epoch) }
	for s.enqueueReceived(batch(Metrics, 700), epoch) == nil {
	}
	large := &waiter{batch: batch(Traces, 3000), done: make(chan error, 1)}
	err := s.enqueueReceived(large.batch, epoch)
	assert.Assert(t, isOverload(err), err)
	s.waiting = append(s.waiting, large)
	for round := 1; len(large.done) == 0; round++ {
		if round > 10 {
			t.Fatalf("waits after %d metrics batches have gone, %d bytes are held", round, a.bytes)
		}
		err := s.enqueueReceived(batch(Metrics, 700), epoch)
		assert.Check(t, isOverload(err), "round %d: a batch overtakes the large one: %v", round, err)
		a.finish(a.take(epoch), &result{code: codes.OK}, epoch)
		s.admitWaiting(epoch)
		checkSums(t, s, nil)
	}
	err = <-large.done
	assert.Check(t, err)
}

// What waits for room at one destination leaves alone the room that another has besides.
func TestWaitingLeavesRoomElsewhere(t *testing.T) {
	both, traces := NewDestination("http://a"), NewDestination("http://b")
	both.QueueBytes, traces.QueueBytes, traces.Signals = 8000, 4000, []Signal{Traces}
	s := newScheduler(0, []Destination{both, traces}, always(0.5))
	batch := func(signal Signal, size int) *Batch { return NewBatch(signal, make([]byte, size-overhead), 1, epoch) }
	assert.NilError(t, s.enqueueReceived(batch(Traces, 2000), epoch))
	large := batch(Traces, 2000)
	err := s.enqueueReceived(large, epoch)
	assert.Assert(t, isOverload(err), err)
	s.waiting = append(s.waiting, &waiter{batch: large, done: make(chan error, 1)})
	for range 2 { // 2000 bytes are held of 6000, and 2000 wait
		assert.Check(t, s.enqueueReceived(batch(Metrics, 1000), epoch))
	}
	err = s.enqueueReceived(batch(Metrics, 1000), epoch)
	assert.Check(t, isOverload(err), "took the room of what waits: %v", err)
}

// Received data goes to all destinations that take its signal, or to none.
func TestReceivedDataIsAllOrNothing(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		full, empty, other := newReceiver(t, unavailable), newReceiver(t), newReceiver(t)
		d1, d2, d3 := full.destination("full"), empty.destination("empty"), other.destination("other")
		d1.QueueBytes = 4000
		d1.Signals, d3.Signals = []Signal{Metrics}, []Signal{Traces}
		l := openLab(t, Options{Destinations: []Destination{d1, d2, d3}})
		for range 3 {
			assert.NilError(t, l.EnqueueReceived(impatient(t), kilo(0)))
		}
		err := l.EnqueueReceived(impatient(t), kilo(1))
		assert.Check(t, isOverload(err), "got %v", err)
		l.after(0)
		l.wantCounts("empty", Metrics, "accepted_items=3 sent_items=3 attempts{OK}=3")
		l.wantCounts("other", Metrics, "")
		assert.Check(t, l.EnqueueReceived(impatient(t), NewBatch(Traces, []byte("x"), 1, time.Now())), "another signal")
		err = openLab(t, Options{}).EnqueueReceived(impatient(t), kilo(0))
		assert.Check(t, err == ErrUnsupported, "without destinations: %v", err)
	})
}

// One destination is down, the other takes everything. Received data is refused while the first has
// no room and may recover soon; once it is down it holds up nobody, whatever its MaxAge.
func TestDown(t *testing.T) {
	throttling := reply{code: codes.Unavailable, retry: durationpb.New(maxDelay)}
	for _, c := range []struct {
		name   string
		script reply
		maxAge time.Duration
	}{
		{"hangs", reply{hang: true}, time.Minute},
		{"refuses", unavailable, time.Minute},
		{"throttles", throttling, time.Minute},
		{"any age is good", reply{hang: true}, 0},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			bad, good := newReceiver(t, c.script), newReceiver(t)
			d := bad.destination("bad")
			d.QueueBytes, d.MaxAge = 20_000, c.maxAge
			l := openLab(t, Options{Destinations: []Destination{d, good.destination("good")}})
			var offered, refused uint64
			for end := time.Now().Add(time.Minute); time.Now().Before(end); l.after(time.Second) {
				refused += l.enqueueReceived(kilo(0))
				l.Enqueue(kilo(1))
				offered += 2
			}
			assert.Check(t, refused >= 30, "%d refused in the first minute", refused)
			l.after(11 * time.Second) // requests that hang have failed once after 10 s
			before := refused
			for range 120 {
				refused += l.enqueueReceived(kilo(2))
				l.Enqueue(kilo(3))
				l.after(5 * time.Second)
				offered += 2
			}
			s := l.Status()
			assert.Check(t, refused == before, "%d refused after a minute", refused-before)
			if want := offered - refused; s[1].Sent != want || s[1].Accepted != want {
				t.Errorf("the good one was sent %d and offered %d items of %d", s[1].Sent, s[1].Accepted, want)
			}
			assert.Check(t, s[0].Sent == 0 && s[0].Dropped.Sum() >= 200, "the bad one: %+v", s[0])

			// It recovers: what it holds is sent, and from then on it counts again.
			bad.answer(reply{})
			l.after(11 * time.Minute)
			for range 2 {
				l.send(Metrics, "x", 1)
			}
			if s := l.Status()[0]; s.State != StateOpen.String() || s.Sent == 0 || s.QueuedBatches != 0 {
				t.Errorf("the bad one, recovered: %+v", s)
			}
			bad.answer(c.script)
			refused = 0
			for range 40 {
				refused += l.enqueueReceived(kilo(4))
			}
			assert.Check(t, refused != 0, "nothing is refused in a new outage")
		})
	}
}

// Where nobody else would get it, received data is refused also when the destination is down, so
// that its sender keeps it. Destinations that take another signal do not count.
func TestAllDown(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		bad, good := newReceiver(t, reply{code: codes.Unauthenticated}), newReceiver(t)
		d, other := bad.destination("bad"), good.destination("good")
		d.QueueBytes, d.Concurrency, other.Signals = 10_000, 4, []Signal{Traces}
		l := openLab(t, Options{Destinations: []Destination{d, other}})
		l.send(Metrics, "x", 1)
		l.after(2 * time.Minute)
		l.wantState("bad", StateRejected)
		bad.answer(reply{hang: true})
		var refused uint64
		for range 20 {
			refused += l.enqueueReceived(kilo(0))
		}
		assert.Check(t, refused == 13, "%d of 20 refused, there is room for 7", refused)
		l.wantCounts("bad", Metrics,
			"accepted_items=8 dropped_items{refused,UNAUTHENTICATED}=1 attempts{UNAUTHENTICATED}=1"+
				" queue_batches=3 queue_items=3 in_flight=4 in_flight_items=4")
	})
}

// At a destination that is down, received data evicts the oldest data, or the oldest received data
// if that has its share; own data evicts the oldest own data.
func TestEvictionWhenDown(t *testing.T) {
	d1, d2 := NewDestination("http://down"), NewDestination("http://up")
	d1.QueueBytes, d1.MaxAge = 8000, 0
	s := newScheduler(1<<20, []Destination{d1, d2}, always(0))
	down := s.destinations[0]
	batch := func(n int) *Batch { return NewBatch(Traces, make([]byte, 1000-overhead), n, epoch) }
	s.enqueue(batch(1), epoch)
	down.finish(down.take(epoch), &result{code: codes.Unavailable}, epoch)
	now := epoch.Add(downAfter)
	for range 20 {
		assert.NilError(t, s.enqueueReceived(batch(10), now))
		s.enqueue(batch(1), now)
		checkSums(t, s, nil)
	}
	want := func(received, own int, dropped uint64) {
		t.Helper()
		c := &down.counters[Traces]
		got := acknowledgedAt(down, nil)
		assert.Check(t, got == received && c.queued.items == uint64(received+own) && c.dropped[QueueFull] == dropped,
			"%d received items are held, %+v in all, %d dropped", got, c.queued, c.dropped[QueueFull])
	}
	want(40, 4, 177)
	for range 20 {
		assert.NilError(t, s.enqueueReceived(batch(10), now))
		checkSums(t, s, nil)
	}
	want(60, 2, 177+2+180)
}

// A destination is down for one reason only: it has accepted nothing for a minute. Refusing some
// batches is no such reason, nor is an old request that was told to wait when another had been
// accepted.
func TestNotDown(t *testing.T) {
	later := epoch.Add(2 * downAfter)
	refuses := func(d *destinationState) {
		d.finish(d.take(epoch), &result{code: codes.InvalidArgument}, epoch)
	}
	fails := func(d *destinationState) { // long after it refused one
		refuses(d)
		d.finish(d.take(epoch), &result{code: codes.Unavailable}, later)
	}
	accepts := func(d *destinationState) {
		first, second := d.take(epoch), d.take(epoch)
		d.finish(first, &result{code: codes.Unavailable}, epoch)
		probe := d.take(later)
		d.finish(second, &result{code: codes.Unavailable, retryInfo: true, delay: maxDelay}, later)
		d.finish(probe, &result{code: codes.OK}, later)
	}
	for name, attempts := range map[string]func(*destinationState){"refuses": refuses, "fails": fails,
		"accepts": accepts} {
		s := newScheduler(1<<20, []Destination{NewDestination("http://a")}, always(0))
		d := s.destinations[0]
		for range 2 {
			s.enqueue(NewBatch(Metrics, []byte("x"), 1, epoch), epoch)
		}
		attempts(d)
		if d.down(later.Add(downAfter - 1)) {
			t.Errorf("%s: is down, in state %v", name, d.state())
		}
		if name != "refuses" && !d.down(later.Add(downAfter)) {
			t.Errorf("%s: is not down a minute later, in state %v", name, d.state())
		}
	}
}

// A destination that can never take a batch does not keep it from the others.
func TestRejectedBySize(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		picky, tiny, good := newReceiver(t), newReceiver(t), newReceiver(t)
		d1, d2 := picky.destination("picky"), tiny.destination("tiny")
		d1.MaxRequestBytes, d2.QueueBytes = 10, 999
		l := openLab(t, Options{Destinations: []Destination{d1, d2, good.destination("good")}})
		assert.NilError(t, l.EnqueueReceived(impatient(t), kilo(0)))
		l.after(0)
		l.wantCounts("picky", Metrics, "accepted_items=1 dropped_items{too_large}=1")
		l.wantCounts("tiny", Metrics, "accepted_items=1 dropped_items{too_large}=1")
		l.wantCounts("good", Metrics, "accepted_items=1 sent_items=1 attempts{OK}=1")
	})
}
