package otlp

import (
	"context"
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
)

// kilo is a batch that counts as 1000 bytes, with one item.
func kilo(i int) *Batch {
	return NewBatch(Metrics, bytes.Repeat([]byte{'a' + byte(i%26)}, 1000-overhead), 1, time.Now())
}

// Two destinations, one of which hangs: the other neither waits nor loses, and each batch is held once.
func TestHangingDestination(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		good, bad := newReceiver(t), newReceiver(t, reply{hang: true})
		l := openLab(t, Options{
			Destinations: []Destination{bad.destination("bad"), good.destination("good")}, QueueBytes: 100_000,
		})
		for i := range 1000 {
			l.Enqueue(kilo(i))
			l.after(100 * time.Millisecond)
			got := good.got()
			if last := got[len(got)-1]; len(got) != i+1 || time.Since(last.at) != 100*time.Millisecond {
				t.Fatalf("batch %d: %d requests at the good one, the last %v ago", i, len(got), time.Since(last.at))
			}
		}
		l.wantCounts("good", Metrics, "accepted_items=1000 sent_items=1000 attempts{OK}=1000")
		for _, s := range l.Status() {
			if s.Name == "bad" && (s.Dropped == 0 || s.QueuedBytes > 100_000) {
				t.Errorf("the bad one: %+v", s)
			}
		}
	})
}

// While both destinations are stuck, a batch counts once in the budget.
func TestBatchesCountOnce(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var destinations []Destination
		for i := range 5 {
			destinations = append(destinations, newReceiver(t, reply{hang: true}).destination(fmt.Sprint(i)))
		}
		l := openLab(t, Options{Destinations: destinations, QueueBytes: 20_000})
		for i := range 20 {
			l.Enqueue(kilo(i))
		}
		l.after(0)
		for _, s := range l.Status() {
			if s.QueuedBatches+s.InFlight != 20 || s.Dropped != 0 {
				t.Errorf("%s: %d queued, %d in flight, %d dropped", s.Name, s.QueuedBatches, s.InFlight, s.Dropped)
			}
		}
		if l.scheduler.used != 20_000 {
			t.Errorf("%d bytes used", l.scheduler.used)
		}
	})
}

// A full queue: own data pushes out the oldest own data that waits.
func TestQueueFull(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, unavailable)
		d := r.destination("a")
		d.QueueBytes = 5000
		l := lab1(t, d)
		for i := range 8 {
			l.Enqueue(kilo(i))
			l.after(0)
		}
		l.wantCounts("a", Metrics,
			"accepted_items=8 dropped_items{queue_full}=3 attempts{UNAVAILABLE}=1 queue_batches=5 queue_items=5")
		r.answer(reply{})
		l.after(time.Minute)
		var got []byte
		for _, q := range r.got()[1:] {
			got = append(got, q.body[0])
		}
		if len(got) != 5 || !bytes.ContainsAny(got, "d") || bytes.ContainsAny(got, "abc") {
			t.Errorf("sent %s, want d to h", got)
		}
		// What is larger than the whole queue pushes nothing out.
		r.answer(unavailable)
		l.send(Metrics, "x", 1)
		l.send(Metrics, string(make([]byte, 5001-overhead)), 2)
		if s := l.Status()[0]; s.QueuedItems != 1 || s.Dropped != 5 || s.DroppedBy[QueueFull] != 5 {
			t.Errorf("%+v", s)
		}
	})
}

// Received data is never pushed out by other data, and refused while there is no room, with a time.
func TestReceivedData(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		slow := newReceiver(t, reply{delay: time.Second})
		d := slow.destination("a")
		d.QueueBytes, d.Concurrency = 20_000, 1
		l := lab1(t, d)
		taken := 0
		var err error
		for ; err == nil; taken++ {
			err = l.EnqueueReceived(context.Background(), kilo(taken))
		}
		taken--
		var overload *OverloadError
		if !errors.As(err, &overload) || overload.Destination != "a" || overload.RetryAfter < time.Second || taken != 15 {
			t.Fatalf("after %d batches: %v", taken, err)
		}
		for i := range 20 {
			l.Enqueue(kilo(i)) // there is room for 5, in turn
		}
		l.after(0)
		if s := l.Status()[0]; s.Dropped != 15 || s.QueuedBatches+s.InFlight != 20 {
			t.Errorf("%+v", s)
		}
		l.after(10 * time.Second)
		// 10 of 20 kB went at a batch a second: half empty in 5 s or so, told 20 % early.
		err = l.EnqueueReceived(context.Background(), NewBatch(Metrics, make([]byte, 14_000-overhead), 1, time.Now()))
		if !errors.As(err, &overload) ||
			overload.RetryAfter < 4*time.Second || overload.RetryAfter > 20*time.Second {
			t.Errorf("after 10 s: %v", err)
		}
		if err := l.EnqueueReceived(context.Background(), NewBatch(Metrics, make([]byte, 15_001-overhead), 1, time.Now())); !errors.Is(err, ErrTooLarge) {
			t.Errorf("larger than received data may be: %v", err)
		}
		l.after(time.Minute)
		if s := l.Status()[0]; s.Sent != 20 || len(slow.got()) != 20 {
			t.Errorf("%+v", s)
		}
	})
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
			if err := l.EnqueueReceived(context.Background(), kilo(0)); err != nil {
				t.Fatal(err)
			}
		}
		var overload *OverloadError
		if err := l.EnqueueReceived(context.Background(), kilo(1)); !errors.As(err, &overload) {
			t.Errorf("got %v", err)
		}
		l.after(0)
		l.wantCounts("empty", Metrics, "accepted_items=3 sent_items=3 attempts{OK}=3")
		l.wantCounts("other", Metrics, "")
		if err := l.EnqueueReceived(context.Background(), NewBatch(Traces, []byte("x"), 1, time.Now())); err != nil {
			t.Errorf("another signal: %v", err)
		}
		if err := openLab(t, Options{}).EnqueueReceived(context.Background(), kilo(0)); err != ErrUnsupported {
			t.Errorf("without destinations: %v", err)
		}
	})
}

// The one that is slow pays for a full budget.
func TestBudgetFull(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		slow, dead := newReceiver(t, reply{delay: time.Second}), newReceiver(t, unavailable)
		d := slow.destination("slow")
		d.Concurrency = 1
		l := openLab(t, Options{Destinations: []Destination{dead.destination("dead"), d}, QueueBytes: 10_000})
		for i := range 200 {
			l.Enqueue(kilo(i))
			l.after(1100 * time.Millisecond)
		}
		for _, s := range l.Status() {
			if s.Name == "slow" && (s.Sent != 200 || s.Dropped != 0) || s.Name == "dead" && s.Dropped < 150 {
				t.Errorf("%s: %d sent, %d dropped", s.Name, s.Sent, s.Dropped)
			}
		}
	})
}

// A flood of tiny batches takes no more memory than was given either.
func TestTinyBatches(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		l := openLab(t, Options{Destinations: []Destination{r.destination("a")}, QueueBytes: 100 * (overhead + 1)})
		for range 1000 {
			l.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
		}
		if s := l.Status()[0]; s.QueuedBatches+s.InFlight != 100 {
			t.Errorf("%d batches are held", s.QueuedBatches+s.InFlight)
		}
	})
}

// Compressed bytes are kept of what is in flight or was, not of all that waits for a destination that is down
// and that another has taken.
func TestCompressedBytesGo(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		good, bad := newReceiver(t), newReceiver(t, unavailable)
		d := bad.destination("bad")
		d.MaxAge = 0
		l := openLab(t, Options{Destinations: []Destination{good.destination("good"), d}})
		for i := range 100 {
			l.Enqueue(kilo(i))
			l.after(time.Second)
		}
		kept := 0
		l.Exporter.mu.Lock()
		for e := l.scheduler.destinations[1].queue.front; e != nil; e = e.next {
			if e.batch.gzipped != nil {
				kept++
			}
		}
		l.Exporter.mu.Unlock()
		if s := l.Status(); s[0].Sent != 100 || s[1].QueuedBatches+s[1].InFlight != 100 || kept > d.Concurrency {
			t.Errorf("compressed bytes of %d batches are kept; %+v", kept, s)
		}
		bad.answer(reply{})
		l.after(time.Minute)
		if s := l.Status()[1]; s.Sent != 100 {
			t.Errorf("%+v", s)
		}
		for _, q := range bad.got() {
			if len(q.body) != 1000-overhead || q.compressed > 100 {
				t.Errorf("%d bytes came as %d", len(q.body), q.compressed)
			}
		}
	})
}

// What hangs in flight cannot be dropped to make room; so of own data it is no more than leaves room for the other.
func TestHangingInFlight(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		good, bad := newReceiver(t), newReceiver(t, reply{hang: true})
		d := bad.destination("bad")
		d.Concurrency = MaxConcurrency
		l := openLab(t, Options{Destinations: []Destination{d, good.destination("good")}, QueueBytes: 40_000})
		for i := range 9 { // of each: both kinds may be in flight at the bad one
			l.enqueueReceived(kilo(i))
		}
		for i := range 50 {
			l.Enqueue(kilo(i))
			l.after(100 * time.Millisecond)
		}
		l.wantCounts("good", Metrics, "accepted_items=59 sent_items=59 attempts{OK}=59")
		if s := l.Status()[0]; s.InFlight != 9+5 || s.Dropped == 0 {
			t.Errorf("the bad one: %+v", s)
		}
		// A batch that is larger than that goes alone.
		bad.answer(reply{delay: time.Second})
		l.after(time.Minute)
		l.send(Metrics, string(make([]byte, 6000)), 1)
		l.send(Metrics, string(make([]byte, 6000)), 1)
		if s := l.Status()[0]; s.InFlight != 1 || s.QueuedBatches != 1 {
			t.Errorf("the bad one: %+v", s)
		}
		l.after(time.Minute)
		if s := l.Status()[0]; s.InFlight+s.QueuedBatches != 0 {
			t.Errorf("the bad one: %+v", s)
		}
	})
}
