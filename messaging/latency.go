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
// 2 KB reach from what one message costs to twice the longest delay that maxQueued serves.
const (
	ageSteps     = 16
	ageDoublings = 15
	numAges      = ageSteps*(1+ageDoublings) + 1

	// ageUnitNs makes the powers of two whole milliseconds from 1 ms on: short numbers of seconds.
	ageUnitNs = int64(time.Millisecond) / 32
)

// ageBucket is where an age is counted. A bucket includes its bound.
func ageBucket(ageNs int64) int {
	units := uint64((max(ageNs, 1) - 1) / ageUnitNs)
	if units < ageSteps {
		return int(units)
	}
	doublings := bits.Len64(units) - bits.Len64(ageSteps)
	return min(ageSteps*doublings+int(units>>doublings), numAges-1)
}

// ageBound is the largest age that a bucket holds.
func ageBound(bucket int) time.Duration {
	if bucket == numAges-1 {
		return math.MaxInt64
	}
	doublings := max(bucket/ageSteps-1, 0)
	return time.Duration(ageUnitNs * int64(bucket-ageSteps*doublings+1) << doublings)
}

// timings is what all senders count of the ages of their samples. It takes no lock.
type timings struct {
	overdue atomic.Uint64
	lost    atomic.Uint64
	sumNs   atomic.Uint64 // wraps after 584 years, waited by all samples together
	ages    [numAges]atomic.Uint64
}

// add counts samples that came into a socket at that age.
func (t *timings) add(ageNs int64, samples uint64, delay time.Duration) {
	ageNs = max(ageNs, 0)
	t.ages[ageBucket(ageNs)].Add(samples)
	t.sumNs.Add(uint64(ageNs) * samples)
	if ageNs > int64(delay) {
		t.overdue.Add(samples)
	}
}

// Timing says how soon samples came into the sockets: all since the agent began, as
// Counters.Timing gives it, or with Since those between two moments. Registrations promise the
// samples-delay for 99 % of them: that is kept while Missed is at most 0.01.
//
// An age is that of the oldest sample of those it was known for: of those added together, and of
// those that waited together within an eighth of the samples-delay. So the ages that are told are
// never too small. It ends when the kernel has taken the message.
type Timing struct {
	Sent    uint64 // samples
	Overdue uint64 // of Sent: those that the kernel took after more than the samples-delay
	Lost    uint64 // samples that became late through us: the receiver had room, or was not asked yet

	sumNs uint64
	ages  [numAges]uint64
}

// Timing is what was counted so far.
func (c *Counters) Timing() Timing {
	t := Timing{Overdue: c.timings.overdue.Load(), Lost: c.timings.lost.Load(), sumNs: c.timings.sumNs.Load()} // so Overdue <= Sent
	for i := range t.ages {
		t.ages[i] = c.timings.ages[i].Load()
		t.Sent += t.ages[i]
	}
	return t
}

// Since is what came after an earlier Timing of the same Counters.
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

// Missed is the share of the samples that were not in the socket within the samples-delay, of those
// whose receiver had room for them, from 0 to 1; 0 when there were none. A receiver that leaves no room,
// or is not there, breaks no promise but its own part.
func (t *Timing) Missed() float64 {
	if t.Overdue+t.Lost == 0 {
		return 0
	}
	return float64(t.Overdue+t.Lost) / float64(t.Sent+t.Lost)
}

// Quantile is the age that the share q (0 to 1) of the samples sent did not exceed; 1 asks for the
// greatest. The answer is at most a sixteenth, or 32 µs, too large, so to
// judge the promise is for Missed; above 16.384 s it is the longest time.Duration. It is 0 when nothing was sent.
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

// Sum is the ages of all samples sent, added up.
func (t *Timing) Sum() time.Duration { return time.Duration(t.sumNs) }

// Buckets yields how many samples were sent at no more than each of 17 ages: 500 µs, each time
// the double, and at last the longest time.Duration, which stands for infinity.
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
