package sampling

import (
	"time"

	"correlator/bpf"
)

// instant is now, by the clock of Go and by that of samples.
type instant struct {
	time.Time
	monotonicNs uint64
}

func newInstant() instant { return instant{Time: time.Now(), monotonicNs: bpf.Now()} }

// at turns a sample's CLOCK_MONOTONIC in ns into a time.
func (i instant) at(ns uint64) time.Time {
	return i.Add(-time.Duration(i.monotonicNs - ns)) // also right for one that was taken meanwhile
}
