package otlp

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// checkSums fails if what the core counts does not add up: items for each destination and signal, bytes
// for each destination, for batches shared, and for the pins. With what is in flight it checks these exactly.
func checkSums(t testing.TB, c *scheduler, out []flying) {
	flies := func(e *entry) bool {
		return slices.ContainsFunc(out, func(f flying) bool { return f.e == e })
	}
	// Each batch is looked at once, with the first of its holders.
	var used, unevictable int64
	left := 0
	seen := func(e *entry) {
		b := e.batch
		if left--; b.holders[0] != e {
			return
		}
		left += len(b.holders)
		pins := 0
		for _, e := range b.holders {
			if e.acknowledged || flies(e) {
				pins++
			}
		}
		if b.pins != pins {
			t.Fatalf("a batch has %d pins, %d counted", pins, b.pins)
		}
		if used += b.size(); pins > 0 {
			unevictable += b.size()
		}
	}
	for _, f := range out {
		seen(f.e)
	}
	for _, p := range c.destinations {
		var h holding // in flight and not acknowledged
		for _, f := range out {
			if f.p == p && !f.e.acknowledged {
				h.add(f.e.batch)
			}
		}
		if p.flying != h.bytes || h.bytes > c.flight && h.batches > 1 {
			t.Fatalf("%s: %+v in flight that was not acknowledged, %d counted, %d allowed", p.conf.Name, h, p.flying, c.flight)
		}
		var bytes int64
		inFlight := 0
		for s := range NumSignals {
			n := &p.counters[s]
			sum := n.sent + n.queued.items + n.inFlight.items
			for _, d := range n.dropped {
				sum += d
			}
			if n.accepted != sum {
				t.Fatalf("%s %v: accepted %d, but sent %d + dropped %v + queued %d + in flight %d = %d", p.conf.Name, s,
					n.accepted, n.sent, n.dropped, n.queued.items, n.inFlight.items, sum)
			}
			refused := uint64(0)
			for _, d := range n.refused {
				refused += d
			}
			if refused != n.dropped[Refused] {
				t.Fatalf("%s %v: %d refused, by code %d", p.conf.Name, s, n.dropped[Refused], refused)
			}
			bytes += n.queued.bytes + n.inFlight.bytes
			inFlight += n.inFlight.batches
		}
		length := 0
		var last *entry
		for e := p.queue.front; e != nil; last, e = e, e.next {
			length++
			if e.prev != last || last != nil && last.seq >= e.seq {
				t.Fatalf("%s: queue is out of order", p.conf.Name)
			}
			seen(e)
		}
		if p.queue.back != last || p.queue.length != length {
			t.Fatalf("%s: queue has %d entries, says %d", p.conf.Name, length, p.queue.length)
		}
		if p.bytes != bytes || inFlight != p.circuit.inFlight {
			t.Fatalf("%s: %d bytes, %d counted; %d in flight, gate says %d", p.conf.Name, p.bytes, bytes, inFlight,
				p.circuit.inFlight)
		}
		if p.bytes > p.conf.QueueBytes || p.circuit.inFlight > p.conf.Concurrency || p.unevictable < 0 || p.unevictable > p.bytes {
			t.Fatalf("%s: %d bytes of %d, %d unevictable, %d of %d in flight", p.conf.Name, p.bytes, p.conf.QueueBytes, p.unevictable,
				p.circuit.inFlight, p.conf.Concurrency)
		}
	}
	if left != 0 {
		t.Fatalf("%d more holders than entries", left)
	}
	if c.used != used || c.unevictable != unevictable || used > c.budget {
		t.Fatalf("%d bytes are used of %d, %d counted; %d unevictable, %d counted", used, c.budget, c.used, unevictable, c.unevictable)
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

// flying is a request of a script that is out.
type flying struct {
	p *destinationState
	e *entry
}

// runScript drives a core through steps decisions, checks it after each, and ends with a shutdown.
func runScript(t testing.TB, a actions, steps int) {
	now := epoch
	destinations := make([]Destination, 1+a.choose(3))
	for i := range destinations {
		d := NewDestination("http://x")
		d.Name = string(rune('a' + i))
		d.Concurrency = 1 + a.choose(4)
		d.QueueBytes = int64(overhead + a.choose(5*overhead))
		d.MaxRequestBytes = 10 + a.choose(60)
		d.MaxAge = []time.Duration{0, time.Minute}[a.choose(2)]
		d.RetryResourceExhausted = a.choose(2) == 0
		if a.choose(3) == 0 {
			d.Signals = []Signal{Metrics}
		}
		destinations[i] = d
	}
	random := func() float64 { return float64(a.choose(100)) / 100 }
	c := newScheduler(int64(overhead+a.choose(8*overhead)), destinations, random)
	var out []flying

	for range steps {
		now = now.Add([]time.Duration{0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, time.Minute}[a.choose(5)])
		switch a.choose(6) {
		case 0, 1:
			b := NewBatch(Signal(a.choose(int(NumSignals))), make([]byte, a.choose(80)), a.choose(5), now)
			offerFairly(t, c, b, now)
		case 2:
			b := NewBatch(Signal(a.choose(int(NumSignals))), make([]byte, a.choose(80)), a.choose(5), now)
			var overload *OverloadError
			if err := c.enqueueReceived(b, now); errors.As(err, &overload) && overload.RetryAfter < time.Second {
				t.Fatalf("refused for %v only", overload.RetryAfter)
			}
		case 3:
			p := c.destinations[a.choose(len(c.destinations))]
			waiting := p.circuit.state == circuitWaiting && now.Before(p.circuit.end())
			if e, wait := p.take(now); e != nil {
				if waiting {
					t.Fatal("a request began during a wait")
				}
				out = append(out, flying{p, e})
			} else if wait < 0 {
				t.Fatalf("wait of %v", wait)
			}
		default:
			if len(out) > 0 {
				i := a.choose(len(out))
				f := out[i]
				out = append(out[:i], out[i+1:]...)
				f.p.finish(f.e, randomAnswer(a), now)
			}
		}
		checkSums(t, c, out)
	}

	c.closed = true
	for _, p := range c.destinations {
		p.drain(now)
		checkSums(t, c, out)
		if a.choose(2) == 0 {
			p.stop()
			checkSums(t, c, out)
		}
	}
	for i, f := range out {
		f.p.finish(f.e, randomAnswer(a), now)
		checkSums(t, c, out[i+1:])
	}
	for _, p := range c.destinations {
		for probes := 0; !p.drained(); {
			e, _ := p.take(now)
			if e == nil && !p.drained() {
				t.Fatalf("%s: neither drained nor anything to send, in state %v with %d queued", p.conf.Name, p.state(),
					p.queue.length)
			}
			if e == nil {
				break
			}
			if e.attempt.probe {
				if probes++; probes > 1 {
					t.Fatalf("%s: %d last attempts", p.conf.Name, probes)
				}
			}
			p.finish(e, randomAnswer(a), now)
			checkSums(t, c, nil)
		}
	}
	if c.used != 0 || c.unevictable != 0 {
		t.Fatalf("%d bytes are held at the end, %d unevictable", c.used, c.unevictable)
	}
}

// offerFairly fails if a destination loses something for a batch with which it holds no more than its share, though
// those that hold more could make room.
func offerFairly(t testing.TB, c *scheduler, b *Batch, now time.Time) {
	c.lapse(now)
	full := func(p *destinationState) (n uint64) {
		for s := range NumSignals {
			n += p.counters[s].dropped[QueueFull]
		}
		return n
	}
	share := c.budget / int64(len(c.destinations))
	room := true
	before := make(map[*destinationState]uint64)
	for _, p := range c.destinations {
		if p.bytes+b.size() <= min(share, p.conf.QueueBytes) && !p.lapsed {
			before[p] = full(p)
		}
		room = room && (p.unevictable == 0 || p.bytes <= share && !p.lapsed)
	}
	c.enqueue(b, now)
	for p, n := range before {
		if lost := full(p) - n; room && lost > 0 {
			t.Fatalf("%s lost %d items within its share", p.conf.Name, lost)
		}
	}
}

func randomAnswer(a actions) *answer {
	r := &answer{code: codes.Code(a.choose(numCodes)), took: time.Millisecond}
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
	return r
}

func TestRandomScripts(t *testing.T) {
	scripts := 100_000
	if testing.Short() {
		scripts = 2000
	}
	for i := range scripts {
		runScript(t, randomActions{rand.New(rand.NewPCG(uint64(i), 7))}, 40)
		if t.Failed() {
			t.Fatalf("script %d", i)
		}
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
