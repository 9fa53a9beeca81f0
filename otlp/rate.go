package otlp

import (
	"math"
	"time"
)

// rateMemory is the time constant of a rate: what was that long ago counts 37 %.
const rateMemory = 30 * time.Second

// rate is a quantity per second, averaged over the last rateMemory or so.
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
