package metrics

import (
	"strconv"
	"testing"
	"time"

	"correlator/internal/host/connlimit"
)

// A peer may make some requests at once, then one per interval, and others are not affected.
func TestRates(t *testing.T) {
	var r rates
	now := time.Now()
	allowed := func(p connlimit.Peer, requests int) (n int) {
		for range requests {
			if r.allow(p, now) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		peer           connlimit.Peer
		after          time.Duration
		requests, want int
	}{
		{"a", 0, 100, requestBurst},
		{"b", 0, 100, requestBurst},
		{"a", requestInterval / 2, 100, 0},
		{"a", requestInterval / 2, 100, 1},
		{"a", 3 * requestInterval, 100, 3},
		{"a", time.Hour, 100, requestBurst},
	} {
		now = now.Add(step.after)
		if got := allowed(step.peer, step.requests); got != step.want {
			t.Errorf("%+v: %d were allowed", step, got)
		}
	}
}

// The table of rates is bounded. Peers that have no place in it share one.
func TestRatedPeersAreLimited(t *testing.T) {
	var r rates
	now := time.Now()
	allowed := 0
	for i := range 2 * maxRatedPeers {
		if r.allow(connlimit.Peer(strconv.Itoa(i)), now) {
			allowed++
		}
	}
	if want := maxRatedPeers + requestBurst; allowed != want || len(r.full) != maxRatedPeers+1 {
		t.Errorf("%d requests were allowed, want %d; %d peers", allowed, want, len(r.full))
	}
	now = now.Add(time.Hour)
	if !r.allow("new", now) || len(r.full) != 1 {
		t.Errorf("after a while there are %d peers", len(r.full))
	}
}
