package live

import (
	"math"
	"time"
)

// smoothing is the time constant of shares of the CPU: one sample at 20 Hz is 5 % of a second.
const smoothing = 2 * time.Second

// rate is how much CPU time is used in a second: an average whose weights decay with time.
type rate struct {
	used   time.Duration // since the last tick
	sum    float64
	weight float64 // of all intervals: less than 1 at first
}

// tick ends an interval.
func (r *rate) tick(passed time.Duration) {
	weight := 1 - math.Exp(-passed.Seconds()/smoothing.Seconds())
	r.sum += (r.used.Seconds()/passed.Seconds() - r.sum) * weight
	r.weight += (1 - r.weight) * weight
	r.used = 0
}

func (r *rate) average() float64 {
	if r.weight == 0 {
		return 0
	}
	return r.sum / r.weight
}
