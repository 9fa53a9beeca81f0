package metrics

import (
	"maps"
	"sync"
	"time"

	"correlator/internal/host/connlimit"
)

const (
	// requestInterval and requestBurst are the rate of requests of a peer, probes excepted: several
	// times what a person and two Prometheus servers ask for together.
	requestInterval = 100 * time.Millisecond
	requestBurst    = 20
	// maxRatedPeers bounds the table. Further peers share a rate.
	maxRatedPeers = 1024
)

// others are the peers for which the table has no room.
const others connlimit.Peer = "others"

// rates limits the requests of each peer by a token bucket.
type rates struct {
	mu   sync.Mutex
	full map[connlimit.Peer]time.Time // when the bucket of a peer will be full again
}

// allow reports whether a peer may make a request now, and if so, takes the token for it.
func (r *rates) allow(p connlimit.Peer, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.full[p]; !known && len(r.full) >= maxRatedPeers {
		maps.DeleteFunc(r.full, func(_ connlimit.Peer, full time.Time) bool { return !full.After(now) })
		if len(r.full) >= maxRatedPeers {
			p = others
		}
	}
	full := r.full[p]
	if full.Before(now) {
		full = now
	}
	full = full.Add(requestInterval)
	if full.Sub(now) > requestBurst*requestInterval {
		return false
	}
	if r.full == nil {
		r.full = make(map[connlimit.Peer]time.Time)
	}
	r.full[p] = full
	return true
}
