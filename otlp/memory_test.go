package otlp

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// kilo returns a batch that counts as 1000 bytes, with one item.
func kilo(i int) *Batch {
	return NewBatch(Metrics, bytes.Repeat([]byte{'a' + byte(i%26)}, 1000-overhead), 1, time.Now())
}

// Of two destinations one hangs: the other neither waits nor loses.
func TestHangingDestination(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		good, bad := newReceiver(t), newReceiver(t, reply{hang: true})
		destinations := []Destination{bad.destination("bad"), good.destination("good")}
		for i := range destinations {
			destinations[i].MaxRequestBytes = 1000
		}
		l := openLab(t, Options{Destinations: destinations, QueueBytes: 200_000})
		for i := range 300 {
			l.Enqueue(kilo(i))
			l.after(100 * time.Millisecond)
			got := good.got()
			if last := got[len(got)-1]; len(got) != i+1 || time.Since(last.at) != 100*time.Millisecond {
				t.Fatalf("batch %d: %d requests at the good one, the last %v ago", i, len(got), time.Since(last.at))
			}
		}
		l.wantCounts("good", Metrics, "accepted_items=300 sent_items=300 attempts{OK}=300")
		for _, s := range l.Status() {
			assert.Check(t, s.Name != "bad" || s.Dropped.Sum() != 0 && s.QueuedBytes <= 100_000, "the bad one: %+v", s)
		}
	})
}

// Destinations without a quota of their own share the bytes, and what one holds takes none of
// another's.
func TestQuotas(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var destinations []Destination
		for i := range 3 {
			d := newReceiver(t, reply{hang: true}).destination(fmt.Sprint(i))
			d.MaxRequestBytes = 1000
			destinations = append(destinations, d)
		}
		destinations[0].QueueBytes = 4000
		l := openLab(t, Options{Destinations: destinations, QueueBytes: 20_000})
		for i := range 20 {
			l.Enqueue(kilo(i))
		}
		l.after(0)
		for i, s := range l.Status() {
			if want := []int{4, 10, 10}[i]; s.QueuedBatches+s.InFlight != want || s.Dropped.Sum() != uint64(20-want) {
				t.Errorf("%s: %d queued, %d in flight, %d dropped, want %d held", s.Name, s.QueuedBatches, s.InFlight,
					s.Dropped.Sum(), want)
			}
		}
	})
}

// A share has room for the largest request, as long as the whole has.
func TestQuotaOfLargestRequest(t *testing.T) {
	destinations := make([]Destination, 3)
	for i := range destinations {
		destinations[i].MaxRequestBytes = 1000
	}
	const largest = 1000 + overhead
	for queueBytes, want := range map[int64]int64{9000: 3000, 3000: largest, 500: 500} {
		for _, quota := range Quotas(queueBytes, destinations) {
			assert.Check(t, quota == want, "a share of %d: %d, want %d", queueBytes, quota, want)
		}
	}
}

// In a full queue, own data evicts the oldest own data that waits.
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
		assert.Check(t, len(got) == 5 && bytes.ContainsAny(got, "d") && !bytes.ContainsAny(got, "abc"),
			"sent %s, want d to h", got)
		// What is larger than the whole queue evicts nothing.
		r.answer(unavailable)
		l.send(Metrics, "x", 1)
		l.send(Metrics, string(make([]byte, 5001-overhead)), 2)
		if s := l.Status()[0]; s.QueuedItems != 1 || s.Dropped.Sum() != 5 || s.Dropped["queue_full"] != 3 ||
			s.Dropped["too_large"] != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// A flood of tiny batches does not exceed the quota either.
func TestTinyBatches(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		l := openLab(t, Options{Destinations: []Destination{r.destination("a")}, QueueBytes: 100 * (overhead + 1)})
		for range 1000 {
			l.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
		}
		s := l.Status()[0]
		assert.Check(t, s.QueuedBatches+s.InFlight == 100, "%d batches are held", s.QueuedBatches+s.InFlight)
	})
}

// Compressed bytes are kept of what is in flight or was, not of all that waits for a destination
// that is down and that another has taken.
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
		s := l.Status()[1]
		assert.Check(t, s.Sent == 100, "%+v", s)
		for _, q := range bad.got() {
			assert.Check(t, len(q.body) == 1000-overhead && q.compressed <= 100,
				"%d bytes came as %d", len(q.body), q.compressed)
		}
	})
}
