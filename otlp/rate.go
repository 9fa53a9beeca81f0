package otlp

import (
	"math"
	"time"
)

// rateMemory is how long the past counts in a rate: after that time what was counts 37 %.
const rateMemory = 30 * time.Second

// rate is how much there is of something per second, of late.
type rate struct {
	perSecond float64
	at        time.Time
}

func (r *rate) add(n float64, now time.Time) {
	*r = rate{perSecond: r.get(now) + n/rateMemory.Seconds(), at: now}
}

func (r *rate) get(now time.Time) float64 {
	return r.perSecond * math.Exp(-now.Sub(r.at).Seconds()/rateMemory.Seconds())
}
