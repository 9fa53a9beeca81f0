package messaging

import (
	"iter"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Ages are counted in buckets a sixteenth as wide as the power of two in which they lie:
//
//	bucket     holds ages up to    in steps of
//	     0…15             500 µs    31.25 µs = ageUnitNs
//	    16…31               1 ms    31.25 µs
//	    32…47               2 ms    62.5 µs
//	        …                  …    doubling
//	  240…255           16.384 s    512 ms
//	      256                any
//
// The 2 KB cover ages from the cost of one message to twice the longest delay that maxQueued
// serves.
const (
	ageSteps     = 16
	ageDoublings = 15
	numAges      = ageSteps*(1+ageDoublings) + 1

	// ageUnitNs makes the powers of two whole milliseconds from 1 ms on, which are short as
	// seconds.
	ageUnitNs = int64(time.Millisecond) / 32
)

// ageBucket returns the bucket of an age. A bucket includes its bound.
func ageBucket(ageNs int64) int {
	units := uint64((max(ageNs, 1) - 1) / ageUnitNs)
	if units < ageSteps {
		return int(units)
	}
	doublings := bits.Len64(units) - bits.Len64(ageSteps)
	return min(ageSteps*doublings+int(units>>doublings), numAges-1)
}

// ageBound returns the largest age that a bucket holds.
func ageBound(bucket int) time.Duration {
	if bucket == numAges-1 {
		return math.MaxInt64
	}
	doublings := max(bucket/ageSteps-1, 0)
	return time.Duration(ageUnitNs * int64(bucket-ageSteps*doublings+1) << doublings)
}

// timings are the ages of the samples of all senders. They need no lock.
type timings struct {
	overdue atomic.Uint64
	lost    atomic.Uint64
	sumNs   atomic.Uint64 // wraps after 584 years, of all samples together
	ages    [numAges]atomic.Uint64
}

// add counts samples that the kernel took at that age.
func (t *timings) add(ageNs int64, samples uint64, delay time.Duration) {
	ageNs = max(ageNs, 0)
	t.ages[ageBucket(ageNs)].Add(samples)
	t.sumNs.Add(uint64(ageNs) * samples)
	if ageNs > int64(delay) {
		t.overdue.Add(samples)
	}
}

// Timing is how long samples took until the kernel had their message: all samples since the agent
// started, as Counters.Timing returns it, or with Since those between two moments. Registrations
// promise the samples-delay for 99 % of them: that is kept while Missed is at most 0.01.
//
// Samples that were added together, or were queued within an eighth of the samples-delay, all count
// with the age of the oldest. So ages are never too small.
type Timing struct {
	Sent    uint64 // samples
	Overdue uint64 // of Sent: those that the kernel took after more than the samples-delay
	Lost    uint64 // samples that became late by our own delay: the receiver had room, or no attempt was made

	sumNs uint64
	ages  [numAges]uint64
}

// Timing returns what was counted so far.
func (c *Counters) Timing() Timing {
	t := Timing{ // before the ages, so that Overdue <= Sent
		Overdue: c.timings.overdue.Load(), Lost: c.timings.lost.Load(), sumNs: c.timings.sumNs.Load(),
	}
	for i := range t.ages {
		t.ages[i] = c.timings.ages[i].Load()
		t.Sent += t.ages[i]
	}
	return t
}

// Since returns what was counted after an earlier Timing of the same Counters.
func (t *Timing) Since(earlier *Timing) Timing {
	since := *t
	since.Sent -= earlier.Sent
	since.Overdue -= earlier.Overdue
	since.Lost -= earlier.Lost
	since.sumNs -= earlier.sumNs
	for i, n := range earlier.ages[:] {
		since.ages[i] -= n
	}
	return since
}

// Missed returns the share of samples that the kernel did not have within the samples-delay, of
// those whose receiver had room for them, from 0 to 1; 0 when there were none. Samples dropped
// because a receiver left no room, or was gone, do not count.
func (t *Timing) Missed() float64 {
	if t.Overdue+t.Lost == 0 {
		return 0
	}
	return float64(t.Overdue+t.Lost) / float64(t.Sent+t.Lost)
}

// Quantile returns the age that the share q (0 to 1) of the samples sent did not exceed; 1 is the
// greatest age. It is up to a sixteenth, or 32 µs, too large, so use Missed to check the promise.
// Above 16.384 s it is the longest time.Duration; it is 0 when nothing was sent.
func (t *Timing) Quantile(q float64) time.Duration {
	if t.Sent == 0 {
		return 0
	}
	rank := max(uint64(math.Ceil(q*float64(t.Sent))), 1)
	var below uint64
	for i, n := range t.ages[:] {
		if below += n; below >= rank {
			return ageBound(i)
		}
	}
	return ageBound(numAges - 1)
}

// Sum returns the sum of the ages of all samples sent.
func (t *Timing) Sum() time.Duration { return time.Duration(t.sumNs) }

// Buckets yields the cumulative number of samples sent up to each of 17 ages: 500 µs, doubling, and
// finally the longest time.Duration, which stands for infinity.
func (t *Timing) Buckets() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		var sent uint64
		for i, n := range t.ages[:] {
			sent += n
			if (i%ageSteps == ageSteps-1 || i == numAges-1) && !yield(ageBound(i), sent) {
				return
			}
		}
	}
}
