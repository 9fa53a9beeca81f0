package messaging

import (
	"strconv"
	"sync/atomic"
)

// DropReason is why samples were dropped. There is a fixed number of them whatever the
// processes do. When something became late, what counts is what was in its way then: a connection
// without room, or none, whatever was in its way before.
type DropReason uint8

const (
	DropLate       DropReason = iota // the receiver left no room within the samples-delay
	DropAddedLate                    // older than the samples-delay when they were added: who sampled was slow
	DropSocketGone                   // there was no connection when the samples-delay had passed
	DropQueueFull                    // more keys waited than the queue takes
	DropRefused                      // the kernel does not take this message, now or ever
	DropClosed                       // still waiting when the sender was closed, or added later
	NumDropReasons                   // how many there are
)

var dropReasonNames = [NumDropReasons]string{
	DropLate:       "late",
	DropAddedLate:  "added_late",
	DropSocketGone: "socket_gone",
	DropQueueFull:  "queue_full",
	DropRefused:    "refused",
	DropClosed:     "closed",
}

// String is the reason's label in logs and metrics.
func (r DropReason) String() string {
	if r >= NumDropReasons {
		return "reason " + strconv.Itoa(int(r))
	}
	return dropReasonNames[r]
}

// Counters is what all senders of the agent count together. All fields only grow and may be
// read at any time. When nobody adds, Added = Sent + the sum of Dropped + what is queued.
type Counters struct {
	Added   atomic.Uint64                 // samples
	Sent    atomic.Uint64                 // samples
	Dropped [NumDropReasons]atomic.Uint64 // samples

	Messages      atomic.Uint64 // correlations that the kernel took
	Registrations atomic.Uint64 // registrations that the kernel took
	SocketsGone   atomic.Uint64 // connections that ended because the receiver did
	Waits         atomic.Uint64 // how often a receiver's queue was full
	Pauses        atomic.Uint64 // how often sending stopped for a moment: see pauseTime

	timings timings // of Sent: see Timing
}

// Stats is what one sender counted, at one moment: Added = Sent + the sum of Dropped + Queued.
type Stats struct {
	Added, Sent, Queued uint64
	Dropped             [NumDropReasons]uint64
	Lost                uint64 // of those dropped as late: through us, see Timing
	Messages            uint64
	Registrations       uint64

	// Connected says that there is a socket, Registered that its receiver's queue took our
	// registration.
	Connected, Registered bool
}
