package share

import (
	"sync"
	"time"

	"github.com/elastic/go-freelru"
	"golang.org/x/time/rate"
)

// Rates limits how much each of many keys does over time, each with a [rate.Limiter] of its own: some
// units at once, the burst, and so many per second in the long run. What the unit is, requests or
// bytes, is up to the caller.
//
// It knows a bounded number of keys. For a new one beyond that it forgets one which could do a burst
// again, so that nobody does more by being forgotten. It looks at one known key at a time, that used
// longest ago; while that one is still limited, the new keys share one limiter.
//
// Rates is safe for concurrent use. Each operation takes constant time. The memory is that of the
// table, some 50 bytes and a key for each that it has room for, and 100 bytes for each known key.
type Rates[K comparable] struct {
	limit   rate.Limit
	burst   int
	maxKeys int

	mu     sync.Mutex
	keys   *freelru.LRU[K, *rate.Limiter]
	others *rate.Limiter // of the keys for which there is no room
}

// NewRates returns Rates by which each key may do burst units at once, and limit per second. They know
// maxKeys keys, which must be at least 1.
func NewRates[K comparable](limit rate.Limit, burst, maxKeys int) *Rates[K] {
	keys, err := freelru.New[K, *rate.Limiter](uint32(maxKeys), NewHash[K]())
	if err != nil {
		panic(err) // maxKeys is a constant of the caller
	}
	return &Rates[K]{limit: limit, burst: burst, maxKeys: maxKeys, keys: keys, others: rate.NewLimiter(limit, burst)}
}

// Allow reports whether a key may do n units more now, and if so, counts them. What is more than the
// burst is never allowed.
func (r *Rates[K]) Allow(key K, n int, now time.Time) bool { return r.limiter(key, now).AllowN(now, n) }

// limiter returns the limiter of a key.
func (r *Rates[K]) limiter(key K, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, known := r.keys.Get(key); known {
		return l
	}
	if r.keys.Len() == r.maxKeys {
		oldest, l, _ := r.keys.RemoveOldest()
		if l.TokensAt(now) < float64(r.burst) {
			r.keys.Add(oldest, l)
			return r.others
		}
	}
	l := rate.NewLimiter(r.limit, r.burst)
	r.keys.Add(key, l)
	return l
}
