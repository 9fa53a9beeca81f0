package agent

import (
	"sync/atomic"

	"go.uber.org/zap/zapcore"

	"correlator/messaging"
	"correlator/messaging/feed"
)

// Outcome is what became of a sample that was fed to us, as far as the queue of its process.
// From there on messaging.Counters tells. Every sample has exactly one outcome.
type Outcome uint8

const (
	OutcomeCorrelated     Outcome = iota // has a trace, was given to the sender of its process
	OutcomeUnknownProcess                // its pid is no process that takes part
	OutcomeNotRegistered                 // its process publishes nothing, or not what was read just before
	OutcomeBacklog                       // its process had too many samples waiting for their context
	OutcomeStale                         // without context and too old to read the context now
	OutcomeUnsupported                   // without context, which this kernel or our rights do not let us read
	OutcomeNoThread                      // its tid is no thread of the process
	OutcomeNoRule                        // where its thread's slot lies is not resolved, or not supported
	OutcomeNoSlot                        // its thread has no slot yet
	OutcomeUpdating                      // valid was 0: the thread was writing its slot
	OutcomeTorn                          // two reads of the slot differed
	OutcomeUnreadable                    // reading the slot failed or gave nonsense
	OutcomeNoTrace                       // no trace was active
	OutcomeUnsampled                     // the trace is not sampled (W3C flag), so its agent would ignore it
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	OutcomeCorrelated:     "correlated",
	OutcomeUnknownProcess: "unknown_process",
	OutcomeNotRegistered:  "not_registered",
	OutcomeBacklog:        "backlog",
	OutcomeStale:          "stale",
	OutcomeUnsupported:    "unsupported",
	OutcomeNoThread:       "no_thread",
	OutcomeNoRule:         "no_rule",
	OutcomeNoSlot:         "no_slot",
	OutcomeUpdating:       "updating",
	OutcomeTorn:           "torn",
	OutcomeUnreadable:     "unreadable",
	OutcomeNoTrace:        "no_trace",
	OutcomeUnsampled:      "unsampled",
}

// String is the outcome's label in logs and metrics.
func (o Outcome) String() string { return outcomeNames[o] }

// Counters is everything the agent counts. All fields only grow and may be read at any time.
type Counters struct {
	FedSamples atomic.Uint64 // samples in well-formed records: the sum of all outcomes
	Outcomes   [numOutcomes]atomic.Uint64

	Feed     feed.Counters      // what came in at the feed socket
	Messages messaging.Counters // what went out to the processes

	Sweeps       atomic.Uint64
	SweepsFailed atomic.Uint64 // ended early

	Connected        atomic.Uint64 // sockets of processes connected, repeated ones included
	Withdrawn        atomic.Uint64 // connections ended because the process publishes nothing, or something else
	Gone             atomic.Uint64 // processes that ended, or no longer map the library
	ProcessesDenied  atomic.Uint64 // processes that we may not look into, once each
	ProcessesRefused atomic.Uint64 // processes found and not served for a reason of our own, at each sweep
	Troubles         [numReasons]atomic.Uint64
}

func (c *Counters) count(o Outcome, samples uint64) {
	c.Outcomes[o].Add(samples)
}

// MarshalLogObject writes the counters that are not 0 as fields of a log line.
func (c *Counters) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	add := func(name string, counter *atomic.Uint64) {
		if n := counter.Load(); n > 0 {
			enc.AddUint64(name, n)
		}
	}
	add("sweeps", &c.Sweeps)
	add("sweeps_failed", &c.SweepsFailed)
	add("connected", &c.Connected)
	add("withdrawn", &c.Withdrawn)
	add("gone", &c.Gone)
	add("processes_denied", &c.ProcessesDenied)
	add("processes_refused", &c.ProcessesRefused)
	for r := ReasonNone + 1; r < numReasons; r++ {
		add("trouble_"+r.String(), &c.Troubles[r])
	}

	add("feed_datagrams", &c.Feed.Datagrams)
	for r := range feed.NumReasons {
		add("feed_refused_"+r.String(), &c.Feed.Refused[r])
	}
	add("samples_fed", &c.FedSamples)
	for o := range numOutcomes {
		add("samples_"+o.String(), &c.Outcomes[o])
	}

	add("samples_sent", &c.Messages.Sent)
	for r := range messaging.NumReasons {
		add("samples_dropped_"+r.String(), &c.Messages.Dropped[r])
	}
	add("messages", &c.Messages.Messages)
	add("registrations", &c.Messages.Registrations)
	add("sockets_gone", &c.Messages.SocketsGone)
	add("waits_for_room", &c.Messages.Waits)
	add("pauses", &c.Messages.Pauses)
	return nil
}
