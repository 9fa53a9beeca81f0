package sampling

import (
	"sync/atomic"

	"correlator/bpf"
	"correlator/internal/target"
)

// Counters is what a Sampling counts. All fields only grow and may be read at any time.
type Counters struct {
	// Kernel is how the samples ended in the kernel, all that were ever taken, as of a second ago at
	// most. Correlated, TableFull and Unreadable ones are handed over (and Unsampled ones, if those
	// are kept): the sum of Outcomes, once Run has ended.
	Kernel   [len(bpf.Counters{})]atomic.Uint64
	Outcomes target.Outcomes
	Missed   atomic.Uint64 // ticks of the sampling clock without a sample, see bpf.Sampler.Missed

	Drains      atomic.Uint64
	Troubles    atomic.Uint64 // calls that failed and are tried again
	LooksFailed atomic.Uint64 // looks at the executable memory of a process
}
