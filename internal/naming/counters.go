package naming

import (
	"sync/atomic"

	"correlator/internal/worker"
)

// reason is why a sample was emitted although names of its frames may be missing.
type reason int

// The reasons.
const (
	unnamedLate     reason = iota // they did not come in time
	unnamedFull                   // too many samples wait, or too many names are asked for
	unnamedTimeout                // a worker took too long because of the process, and it is not asked for a while
	unnamedWorker                 // there was no worker, and it is not asked for a while
	unnamedGone                   // the process had ended
	unnamedShutdown               // the agent ended
	numReasons                    // none are missing
)

var reasonNames = [numReasons]string{
	unnamedLate: "late", unnamedFull: "full", unnamedTimeout: "timeout", unnamedWorker: "worker", unnamedGone: "gone",
	unnamedShutdown: "shutdown",
}

// Counters is what a Namer counts. They may be read at any time.
type Counters struct {
	unnamed  [numReasons]atomic.Uint64
	Requests atomic.Uint64 // for names of a process
	Evicted  atomic.Uint64 // processes whose names were forgotten because there were too many
	Bytes    atomic.Int64  // of names now
	Workers  worker.Counters
}

func (c *Counters) add(r reason, samples uint64) {
	if r < numReasons {
		c.unnamed[r].Add(samples)
	}
}

// Unnamed yields, by reason, how many samples were emitted although names may be missing.
func (c *Counters) Unnamed(yield func(reason string, samples uint64) bool) {
	for r := range c.unnamed {
		if !yield(reasonNames[r], c.unnamed[r].Load()) {
			return
		}
	}
}
