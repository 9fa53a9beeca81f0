package messaging

import (
	"strconv"
	"sync/atomic"
)

// Reason says why samples were dropped. There is a fixed number of them whatever the
// processes do. When something became late, what counts is what was in its way then: a connection
// without room, or none, whatever was in its way before.
type Reason uint8

const (
	ReasonLate       Reason = iota // the receiver left no room within the samples-delay
	ReasonAddedLate                // older than the samples-delay when they were added: who sampled was slow
	ReasonSocketGone               // there was no connection when the samples-delay had passed
	ReasonQueueFull                // more keys waited than the queue takes
	ReasonRefused                  // the kernel does not take this message, now or ever
	ReasonClosed                   // still waiting when the sender was closed, or added later
	NumReasons                     // how many there are
)

var reasonNames = [NumReasons]string{
	ReasonLate:       "late",
	ReasonAddedLate:  "added_late",
	ReasonSocketGone: "socket_gone",
	ReasonQueueFull:  "queue_full",
	ReasonRefused:    "refused",
	ReasonClosed:     "closed",
}

// String is the reason's label in logs and metrics.
func (r Reason) String() string {
	if r >= NumReasons {
		return "reason " + strconv.Itoa(int(r))
	}
	return reasonNames[r]
}

// Counters is what all senders of the agent count together. All fields only grow and may be
// read at any time. When nobody adds, Added = Sent + the sum of Dropped + what is queued.
type Counters struct {
	Added   atomic.Uint64             // samples
	Sent    atomic.Uint64             // samples
	Dropped [NumReasons]atomic.Uint64 // samples

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
	Dropped             [NumReasons]uint64
	Lost                uint64 // of those dropped as late: through us, see Timing
	Messages            uint64
	Registrations       uint64

	// Connected says that there is a socket, Registered that its receiver's queue took our
	// registration.
	Connected, Registered bool
}
