package messaging

import (
	"sync/atomic"

	"correlator/internal/host/label"
)

// DropReason is why samples were dropped. The list is fixed. The reason of late samples is what
// held them up at the moment when they became late: a connection without room, or none.
type DropReason uint8

const (
	DropLate       DropReason = iota // the receiver left no room within the samples-delay
	DropAddedLate                    // older than the samples-delay when they were added: the sampler was slow
	DropSocketGone                   // there was no connection when the samples-delay had passed
	DropQueueFull                    // more keys were queued than maxQueued
	DropRefused                      // the kernel will never take this message
	DropClosed                       // queued when the sender was closed, or added later
	NumDropReasons                   // the number of reasons
)

var dropReasonNames = [NumDropReasons]string{
	DropLate:       "late",
	DropAddedLate:  "added_late",
	DropSocketGone: "socket_gone",
	DropQueueFull:  "queue_full",
	DropRefused:    "refused",
	DropClosed:     "closed",
}

// String returns the reason's label in logs and metrics.
func (r DropReason) String() string { return label.Of(dropReasonNames[:], r) }

// Counters are shared by all senders of an agent. All fields only grow and may be read at any time.
// They have the names of their metrics. While nothing is being added, SamplesQueued = SamplesSent + the
// sum of SamplesDropped + what waits.
type Counters struct {
	SamplesQueued  atomic.Uint64                 // samples
	SamplesSent    atomic.Uint64                 // samples
	SamplesDropped [NumDropReasons]atomic.Uint64 // samples

	MessagesSent    atomic.Uint64 // correlations that the kernel took
	Registrations   atomic.Uint64 // registrations that the kernel took
	ConnectionsGone atomic.Uint64 // connections that the receiver ended
	SendWaits       atomic.Uint64 // attempts that found a receiver's queue full
	SendPauses      atomic.Uint64 // see pauseTime

	timings timings // of SamplesSent: see Timing
}

// Stats are the counters of one sender at one moment: Added = Sent + the sum of Dropped + Queued.
type Stats struct {
	Added, Sent, Queued uint64
	Dropped             [NumDropReasons]uint64
	Lost                uint64 // of those dropped as late: by our own delay, see Timing
	Messages            uint64
	Registrations       uint64

	// Connected reports whether there is a socket, Registered whether the registration was written
	// to it.
	Connected, Registered bool
}
