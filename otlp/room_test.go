package otlp

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// roomFor is a core with a budget of so many batches of 1 kB, and what offers them.
func roomFor(batches int64, names ...string) (*scheduler, func(signal Signal, n int)) {
	var conf []Destination
	for _, name := range names {
		d := NewDestination("http://" + name)
		d.Name, d.MaxAge, d.Concurrency = name, time.Minute, 1
		conf = append(conf, d)
	}
	c := newScheduler(batches*1000, conf, always(0))
	return c, func(signal Signal, n int) {
		for range n {
			c.enqueue(NewBatch(signal, make([]byte, 1000-overhead), 1, epoch), epoch)
		}
	}
}

// What a destination holds is not dropped as long as another has it as well, unless that one loses it too.
func TestNothingIsDroppedInVain(t *testing.T) {
	for _, lapsed := range []bool{false, true} {
		c, offer := roomFor(12, "bad", "good")
		bad, good := c.destinations[0], c.destinations[1]
		// The bad one holds 4 that the good one has taken, and both hold 4 more.
		offer(Metrics, 8)
		for range 4 {
			e, _ := good.take(epoch)
			good.finish(e, &answer{code: codes.OK}, epoch)
		}
		bad.lapsed = lapsed
		offer(Metrics, 8)
		if n := bad.counters[Metrics].dropped[QueueFull]; n != 4 {
			t.Errorf("lapsed %t: the bad one lost %d batches, of which 4 were to make room", lapsed, n)
		}
		if n := good.counters[Metrics].dropped[QueueFull]; n != 0 || good.queue.length != 12 {
			t.Errorf("lapsed %t: the good one lost %d batches", lapsed, n)
		}
		checkSums(t, c, nil)
		offer(Metrics, 1)
		if b, g := bad.queue.length, good.queue.length; b != 12 || g != 12 {
			t.Errorf("lapsed %t: %d and %d batches are held after both lost one", lapsed, b, g)
		}
		checkSums(t, c, nil)
	}
}

// A destination within its share of the budget loses nothing for one that holds more, though most of that is acknowledged.
func TestShare(t *testing.T) {
	c, offer := roomFor(20, "bad", "good")
	bad, good := c.destinations[0], c.destinations[1]
	bad.conf.Signals, good.conf.Signals = []Signal{Traces, Profiles}, []Signal{Metrics}
	for range 9 {
		if err := c.enqueueReceived(NewBatch(Traces, make([]byte, 1000-overhead), 1, epoch), epoch); err != nil {
			t.Fatal(err)
		}
	}
	offer(Profiles, 5)
	offer(Metrics, 10)
	if n := good.counters[Metrics].dropped[QueueFull]; n != 0 {
		t.Errorf("the good one lost %d batches", n)
	}
	if n := bad.counters[Profiles].dropped[QueueFull]; n != 4 {
		t.Errorf("the bad one lost %d batches", n)
	}
	checkSums(t, c, nil)
}
