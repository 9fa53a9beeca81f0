package messaging

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Every age is in the bucket that ends at or after it and begins less than a sixteenth before.
func TestAgeBuckets(t *testing.T) {
	const unit = time.Duration(ageUnitNs)
	var from time.Duration // the bound of the bucket before
	for bucket := range numAges {
		to := ageBound(bucket)
		for _, age := range []time.Duration{from + 1, from + (to-from)/2, to} {
			got := ageBucket(int64(age))
			assert.Assert(t, got == bucket, "%v is counted in bucket %d, want %d", age, got, bucket)
		}
		if width := to - from; bucket < numAges-1 && width != unit && width > from/16 {
			t.Errorf("bucket %d from %v to %v is wider than a sixteenth", bucket, from, to)
		}
		from = to
	}
	first, last := ageBound(0), ageBound(numAges-2)
	assert.Check(t, first == unit && last == 16384*time.Millisecond, "buckets end from %v to %v", first, last)
	for _, age := range []int64{0, -1, math.MinInt64} {
		got := ageBucket(age)
		assert.Check(t, got == 0, "%d is counted in bucket %d", age, got)
	}
}

// Each sample that was sent counts with its own age, to the resolution of the queue.
func ageOfEachPart(b *fixture) {
	fits := b.receiver.fill()
	b.add(1, 3, 0)
	b.settled()
	b.advance(100 * time.Millisecond)
	b.add(1, 2, 0)
	b.advance(testDelay / 8)
	b.add(1, 4, 0) // counts as being as old as those 2
	b.advance(50 * time.Millisecond)
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(1, 9))
	timing := b.counters.Timing()
	want := 3*187500*time.Microsecond + 6*87500*time.Microsecond
	assert.Check(b, timing.Sent == 9 && timing.Sum() == want, "%d samples waited %v", timing.Sent, timing.Sum())
	for q, want := range map[float64]time.Duration{
		0:         88 * time.Millisecond,
		6. / 9:    88 * time.Millisecond,
		6.001 / 9: 192 * time.Millisecond,
		1:         192 * time.Millisecond,
	} {
		got := timing.Quantile(q)
		assert.Check(b, got == want, "quantile %v is %v, want %v", q, got, want)
	}
	assert.Check(b, timing.Overdue == 0 && timing.Lost == 0 && timing.Missed() == 0)
}

// The promised delay covers every sample for which the process was connected: also those that were
// dropped because of our own delay, and those that the kernel took too late.
func agesOfWhatMissed(b *fixture) {
	b.take()
	before := b.counters.Timing()
	for age, overdue := range map[time.Duration]uint64{testDelay - 1: 0, testDelay: 0, testDelay + 1: 5} {
		earlier := b.counters.Timing()
		b.add(1, 5, 0)
		b.sender.next()
		b.jump(age)
		b.sender.complete(nil)
		timing := b.counters.Timing()
		got := timing.Since(&earlier).Overdue
		assert.Check(b, got == overdue, "sent after %v: %d overdue, want %d", age, got, overdue)
	}
	b.add(1, 3, 0)
	b.jump(testDelay)
	assert.Check(b, b.sender.next() == nil, "late samples are sent")
	b.take()               // a goroutine that finds nothing to send ends
	b.add(1, 2, testDelay) // added late
	now := b.counters.Timing()
	since := now.Since(&before)
	assert.Check(b, since.Sent == 15 && since.Overdue == 5 && since.Lost == 5 && since.Missed() == 0.5,
		"of 15 sent %d, %d overdue, %d lost, a share of %v", since.Sent, since.Overdue, since.Lost, since.Missed())

	// Samples that are dropped without a connection, or after Close, are not late.
	b.add(1, 100, 0)
	b.sender.Disconnect() // so that no goroutine is needed
	b.sender.mu.Lock()
	b.sender.running = false
	b.sender.schedule()
	b.sender.mu.Unlock()
	b.advance(testDelay)
	b.sender.Close()
	b.add(1, 100, 0)
	b.expectStats(15, 0, map[DropReason]uint64{DropLate: 3, DropAddedLate: 2, DropSocketGone: 100, DropClosed: 100})
	after := b.counters.Timing()
	since = after.Since(&now)
	assert.Check(b, since.Lost == 0 && since.Sent == 0 && since.Missed() == 0 && since.Quantile(1) == 0)
}

// Since covers what was counted after the earlier Timing, and nothing before.
func TestTimingOfAWindow(t *testing.T) {
	var counters Counters
	counters.timings.add(int64(10*time.Microsecond), 100, testDelay)
	counters.timings.lost.Add(100)
	earlier := counters.Timing()
	for age := 1; age <= 100; age++ {
		counters.timings.add(int64(age)*int64(time.Millisecond), 2, testDelay)
	}
	counters.timings.lost.Add(50)
	now := counters.Timing()
	since := now.Since(&earlier)
	if since.Sent != 200 || since.Lost != 50 || since.Missed() != 0.2 || since.Sum() != 10100*time.Millisecond {
		t.Errorf("%d sent, %d lost, %v missed, %v waited", since.Sent, since.Lost, since.Missed(), since.Sum())
	}
	for q, want := range map[float64]time.Duration{
		0:    time.Millisecond,
		0.5:  50 * time.Millisecond,
		0.99: 100 * time.Millisecond, // 99 is counted with it
		1:    100 * time.Millisecond,
	} {
		got := since.Quantile(q)
		assert.Check(t, got == want, "quantile %v is %v, want %v", q, got, want)
	}
}

// The buckets for an exporter are cumulative, and the last one holds all samples.
func TestTimingBuckets(t *testing.T) {
	var counters Counters
	const first = 500 * time.Microsecond
	ages := []time.Duration{0, first, first + 1, time.Millisecond, 300 * time.Millisecond, time.Hour}
	for _, age := range ages {
		counters.timings.add(int64(age), 2, testDelay)
	}
	timing := counters.Timing()
	var bounds []time.Duration
	for bound, sent := range timing.Buckets() {
		bounds = append(bounds, bound)
		var want uint64
		for _, age := range ages {
			if age <= bound {
				want += 2
			}
		}
		assert.Check(t, sent == want, "%d samples within %v, want %d", sent, bound, want)
	}
	if len(bounds) != 17 || bounds[0] != first || bounds[1] != time.Millisecond || bounds[16] != math.MaxInt64 {
		t.Errorf("bounds %v", bounds)
	}
	if timing.Quantile(1) != math.MaxInt64 || timing.Quantile(0.8) != 304*time.Millisecond {
		t.Errorf("quantiles %v, %v", timing.Quantile(0.8), timing.Quantile(1))
	}
	for range timing.Buckets() { // a loop may end early
		break
	}
}

func BenchmarkTiming(b *testing.B) {
	var ages [1024]int64
	for i := range ages {
		ages[i] = int64(math.Exp(rand.Float64() * math.Log(float64(testDelay))))
	}
	b.Run("add", func(b *testing.B) {
		var t timings
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			t.add(ages[n%len(ages)], 1, testDelay)
		}
	})
	b.Run("add by all CPUs", func(b *testing.B) {
		var t timings
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				t.add(ages[n%len(ages)], 1, testDelay)
			}
		})
	})
	b.Run("snapshot", func(b *testing.B) {
		var counters Counters
		b.ReportAllocs()
		for b.Loop() {
			timing := counters.Timing()
			_ = timing.Quantile(0.99)
		}
	})
}
