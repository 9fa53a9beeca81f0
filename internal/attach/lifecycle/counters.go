package lifecycle

import (
	"sync/atomic"

	"correlator/internal/attach/process"
)

// Counters is what a Manager counts. All fields only grow and may be read at any time.
type Counters struct {
	Sweeps       atomic.Uint64
	SweepNs      atomic.Uint64 // how long they took together
	SweepsFailed atomic.Uint64 // ended early
	LiveProbes   atomic.Uint64 // probes of processes because of live events
	EventsLost   atomic.Uint64 // live events that the kernel dropped, where it reports how many
	EventsFailed atomic.Uint64 // times that live events were unavailable

	ContextLooks        atomic.Uint64 // looks for a process context because of live events
	ContextLooksSkipped atomic.Uint64 // live events after which a process was not looked at, since too many were

	PollerHangs     atomic.Uint64 // times that the memory of one process blocked the memory poller
	Probes          atomic.Uint64 // probes of what processes publish
	TooOften        atomic.Uint64 // pauses because a process published something new too often
	Gone            atomic.Uint64 // processes that ended, or no longer map the library
	ProcessesDenied atomic.Uint64 // processes that we may not read, once each
	Filtered        atomic.Uint64 // processes excluded by the filter, once each
	Truncated       atomic.Uint64 // processes that map more copies of the library than are probed, once each
	LogDropped      atomic.Uint64 // log lines about processes whose user has used up its budget

	Contexts [process.NumThreadSchemas]atomic.Uint64 // process contexts read: new ones, and updates

	Refused [NumRefusalReasons]atomic.Uint64  // processes not served, each time one is found
	Evicted [NumEvictionReasons]atomic.Uint64 // processes that had to give way to others, each time
	Errors  [process.NumReasons]atomic.Uint64 // of single processes
}
