package otlp

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
)

// checkSums fails if the counts of a scheduler do not add up: items for each destination and
// signal, bytes for each destination. out is what is in flight.
func checkSums(t testing.TB, s *scheduler, out []flying) {
	for _, d := range s.destinations {
		var bytes, unevictable int64
		inFlight := 0
		for _, f := range out {
			if f.d == d {
				unevictable += f.e.batch.size()
			}
		}
		checkItems(t, d)
		for signal := range NumSignals {
			n := &d.counters[signal]
			bytes += n.queued.bytes + n.inFlight.bytes
			inFlight += n.inFlight.batches
		}
		length, acknowledged := 0, int64(0)
		var last *entry
		for e := d.queue.front; e != nil; last, e = e, e.next {
			length++
			if e.prev != last || last != nil && last.seq >= e.seq {
				t.Fatalf("%s: queue is out of order", d.config.Name)
			}
			if e.acknowledged {
				acknowledged += e.batch.size()
			}
		}
		unevictable += acknowledged
		if d.queue.back != last || d.queue.length != length {
			t.Fatalf("%s: queue has %d entries, its length is %d", d.config.Name, length, d.queue.length)
		}
		if d.bytes != bytes || inFlight != d.circuit.inFlight || d.unevictable != unevictable {
			t.Fatalf("%s: %d bytes, %d counted; %d unevictable, %d counted; %d in flight, circuit has %d",
				d.config.Name,
				d.bytes, bytes, d.unevictable, unevictable, inFlight, d.circuit.inFlight)
		}
		if d.bytes > d.quota || d.circuit.inFlight > d.config.Concurrency {
			t.Fatalf("%s: %d bytes of %d, %d of %d in flight", d.config.Name, d.bytes, d.quota, d.circuit.inFlight,
				d.config.Concurrency)
		}
		if d.circuit.inFlight != 0 && d.unanswered.IsZero() {
			t.Fatalf("%s: %d in flight, and not known since when", d.config.Name, d.circuit.inFlight)
		}
	}
}

// checkItems fails if the counts of a destination's items do not add up.
func checkItems(t testing.TB, d *destinationState) {
	t.Helper()
	for signal := range NumSignals {
		n := &d.counters[signal]
		sum := n.sent + n.queued.items + n.inFlight.items
		for _, dropped := range n.dropped {
			sum += dropped
		}
		if n.accepted != sum {
			t.Errorf("%s %v: accepted %d, but sent %d + dropped %v + queued %d + in flight %d = %d", d.config.Name, signal,
				n.accepted, n.sent, n.dropped, n.queued.items, n.inFlight.items, sum)
		}
		refused := uint64(0)
		for _, n := range n.refused {
			refused += n
		}
		if refused != n.dropped[Refused] {
			t.Errorf("%s %v: %d refused, by code %d", d.config.Name, signal, n.dropped[Refused], refused)
		}
	}
}

// actions is a source of decisions: random ones, or those that a fuzzer makes.
type actions interface{ choose(n int) int }

type randomActions struct{ *rand.Rand }

func (r randomActions) choose(n int) int { return r.IntN(n) }

type byteActions struct{ left []byte }

func (b *byteActions) choose(n int) int {
	if len(b.left) == 0 {
		return 0
	}
	v := int(b.left[0])
	b.left = b.left[1:]
	return v % n
}

// flying is a request of a script that is in flight.
type flying struct {
	d *destinationState
	e *entry
}

// lossOf returns the items that a destination has dropped for want of room.
func lossOf(d *destinationState) (n uint64) {
	for signal := range NumSignals {
		n += d.counters[signal].dropped[QueueFull]
	}
	return n
}

// acknowledgedAt returns the received items that a destination has queued or in flight.
func acknowledgedAt(d *destinationState, out []flying) (n int) {
	for e := d.queue.front; e != nil; e = e.next {
		if e.acknowledged {
			n += e.batch.items
		}
	}
	for _, f := range out {
		if f.d == d && f.e.acknowledged {
			n += f.e.batch.items
		}
	}
	return n
}

// script is a run of a scheduler.
type script struct {
	testing.TB
	actions
	*scheduler
	now time.Time
	out []flying
}

// batch makes a batch of a random size, signal and number of items.
func (s *script) batch() *Batch {
	return NewBatch(Signal(s.choose(int(NumSignals))), make([]byte, s.choose(80)), s.choose(5), s.now)
}

// own queues own data, for which no received data is dropped.
func (s *script) own() {
	b := s.batch()
	before := make([]int, len(s.destinations))
	for i, d := range s.destinations {
		before[i] = acknowledgedAt(d, s.out)
	}
	s.enqueue(b, s.now)
	for i, d := range s.destinations {
		if n := acknowledgedAt(d, s.out); n != before[i] {
			s.Fatalf("%s: own data has evicted %d received items", d.config.Name, before[i]-n)
		}
	}
}

// received queues received data, for which nothing is dropped but at destinations that are down,
// and which is refused for the sake of one that is not, or of all.
func (s *script) received() {
	b := s.batch()
	before := make([]uint64, len(s.destinations))
	for i, d := range s.destinations {
		before[i] = lossOf(d)
	}
	err := s.enqueueReceived(b, s.now)
	var overload *OverloadError
	if errors.As(err, &overload) {
		if overload.RetryAfter < minRetryAfter || overload.RetryAfter > 2*maxRetryAfter {
			s.Fatalf("refused for %v", overload.RetryAfter)
		}
		allDown := !slices.ContainsFunc(s.destinations, func(d *destinationState) bool {
			_, rejected := d.rejectReason(b, s.now)
			return d.config.Takes(b.signal) && !rejected && !d.down(s.now)
		})
		for _, d := range s.destinations {
			if d.config.Name == overload.Destination && d.down(s.now) && !allDown {
				s.Fatalf("refused because of %s, which is down", overload.Destination)
			}
		}
	}
	for i, d := range s.destinations {
		if lost := lossOf(d) - before[i]; lost > 0 && (err != nil || !d.down(s.now)) {
			s.Fatalf("%s lost %d items for received data, which ended with %v", d.config.Name, lost, err)
		}
	}
}

func (s *script) take(d *destinationState) {
	waiting := d.circuit.state == circuitWaiting && s.now.Before(d.circuit.end())
	if e := d.take(s.now); e != nil {
		if waiting {
			s.Fatal("a request began during a wait")
		}
		s.checkExpired(d)
		s.out = append(s.out, flying{d, e})
	}
}

// checkExpired fails if anything in a queue that has just been expired is too old.
func (s *script) checkExpired(d *destinationState) {
	for e := d.queue.front; e != nil; e = e.next {
		if d.expired(e, s.now) {
			s.Fatalf("%s: a batch of %v is queued at %v", d.config.Name, e.batch.created, s.now)
		}
	}
}

func (s *script) finish(i int) {
	f := s.out[i]
	s.out = slices.Delete(s.out, i, i+1)
	f.d.finish(f.e, randomResult(s), s.now)
	s.admitWaiting(s.now)
}

// runScript drives a scheduler through steps decisions, checks it after each, and ends with a
// shutdown.
func runScript(t testing.TB, a actions, steps int) {
	destinations := make([]Destination, 1+a.choose(3))
	for i := range destinations {
		d := NewDestination("http://x")
		d.Name = string(rune('a' + i))
		d.Concurrency = 1 + a.choose(4)
		if a.choose(2) == 0 {
			d.QueueBytes = int64(overhead + a.choose(5*overhead))
		}
		d.MaxRequestBytes = 10 + a.choose(60)
		d.MaxAge = []time.Duration{0, time.Minute}[a.choose(2)]
		d.RetryResourceExhausted = a.choose(2) == 0
		if a.choose(3) == 0 {
			d.Signals = []Signal{Metrics}
		}
		destinations[i] = d
	}
	random := func() float64 { return float64(a.choose(100)) / 100 }
	s := &script{
		TB: t, actions: a, now: epoch,
		scheduler: newScheduler(int64(len(destinations)*overhead+a.choose(8*overhead)), destinations, random),
	}
	var waiters []*waiter

	for range steps {
		pause := []time.Duration{0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, time.Minute}[a.choose(5)]
		s.now = s.now.Add(pause)
		switch a.choose(7) {
		case 0, 1:
			s.own()
		case 2:
			s.received()
		case 3:
			s.take(s.destinations[a.choose(len(s.destinations))])
		case 4:
			if b := s.batch(); isOverload(s.enqueueReceived(b, s.now)) {
				w := &waiter{batch: b, done: make(chan error, 1)}
				s.waiting, waiters = append(s.waiting, w), append(waiters, w)
			}
			for _, d := range s.destinations {
				d.expire(s.now)
				s.checkExpired(d)
			}
			s.admitWaiting(s.now)
		default:
			if len(s.out) > 0 {
				s.finish(a.choose(len(s.out)))
			}
		}
		checkSums(t, s.scheduler, s.out)
	}

	s.closed = true
	s.admitWaiting(s.now)
	for _, w := range waiters {
		select {
		case <-w.done:
		default:
			t.Fatal("a batch waits for room after the end")
		}
	}
	for _, d := range s.destinations {
		d.drain(s.now)
		checkSums(t, s.scheduler, s.out)
		if a.choose(2) == 0 {
			d.stop()
			checkSums(t, s.scheduler, s.out)
		}
	}
	for len(s.out) > 0 {
		s.finish(0)
		checkSums(t, s.scheduler, s.out)
	}
	for _, d := range s.destinations {
		for probes := 0; !d.drained(); {
			e := d.take(s.now)
			if e == nil && !d.drained() {
				t.Fatalf("%s: neither drained nor anything to send, in state %v with %d queued", d.config.Name,
					d.state(),
					d.queue.length)
			}
			if e == nil {
				break
			}
			if e.attempt.probe {
				if probes++; probes > 1 {
					t.Fatalf("%s: %d final attempts", d.config.Name, probes)
				}
			}
			d.finish(e, randomResult(a), s.now)
			checkSums(t, s.scheduler, nil)
		}
		assert.Assert(t, d.bytes == 0 && d.unevictable == 0,
			"%d bytes are held at the end, %d unevictable", d.bytes, d.unevictable)
	}
}

func randomResult(a actions) *result {
	r := &result{code: codes.Code(a.choose(numCodes)), took: time.Millisecond}
	switch a.choose(4) {
	case 0:
		r.code = codes.OK
		r.partial.rejected = int64(a.choose(8)) - 2
	case 1:
		r.code = codes.Unavailable
		r.doubtful = a.choose(2) == 0
	}
	if r.code != codes.OK && a.choose(2) == 0 {
		r.retryInfo, r.delay = true, time.Duration(a.choose(3000))*time.Millisecond
	}
	r.final = a.choose(20) == 0
	r.unanswered = r.code != codes.OK && a.choose(2) == 0
	return r
}

func TestRandomScripts(t *testing.T) {
	for i := range 3_000 {
		runScript(t, randomActions{rand.New(rand.NewPCG(uint64(i), 7))}, 40)
		assert.Assert(t, !t.Failed(), "script %d", i)
	}
}

func FuzzScript(f *testing.F) {
	f.Add([]byte("accepted = sent + dropped + queued + in flight"))
	random := rand.New(rand.NewPCG(1, 7))
	for range 20 {
		script := make([]byte, 400)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		a := &byteActions{left: script}
		runScript(t, a, min(len(script), 1000))
	})
}
