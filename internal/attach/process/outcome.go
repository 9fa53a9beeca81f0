package process

import "sync/atomic"

// SampleOutcome is what became of a sample on its way to the queue of its process;
// messaging.Counters counts what became of it from there on. Every sample that is fed to us, or
// that the kernel's counts hand over, has exactly one.
type SampleOutcome uint8

const (
	OutcomeCorrelated     SampleOutcome = iota // has a trace, was given to the sender of its process
	OutcomeUnknownProcess                      // its process takes no part, or no more
	OutcomeNotRegistered                       // its process publishes nothing, or not what was read just before
	OutcomeBacklog                             // its process had too many samples waiting for a probe
	OutcomeStale                               // waited so long that its context may have changed, or that it is late
	OutcomeUnsupported                         // without context, which this kernel or our rights do not let us read
	OutcomeNoThread                            // its tid is no thread of the process
	OutcomeNoRule                              // where its thread's slot lies is not resolved, or not supported
	OutcomeNoSlot                              // its thread has no slot yet
	OutcomeUpdating                            // valid was 0: the thread was writing its slot
	OutcomeTorn                                // two reads of the slot differed
	OutcomeUnreadable                          // reading the slot failed or gave nonsense
	OutcomeNoTrace                             // no trace was active
	OutcomeUnsampled                           // the trace is not sampled (W3C flag), so its agent would ignore it
	OutcomeNoStack                             // its stack is not available any more
	OutcomeUntraced                            // its thread worked on no trace, and such samples are wanted
	OutcomeOTel                                // has a trace in a context of OpenTelemetry's: not for a sender
	OutcomeAbandoned                           // the goroutine of its process did not end with the agent
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
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
	OutcomeNoStack:        "no_stack",
	OutcomeUntraced:       "untraced",
	OutcomeOTel:           "opentelemetry",
	OutcomeAbandoned:      "abandoned",
}

// String returns the outcome's label in logs and metrics.
func (o SampleOutcome) String() string { return outcomeNames[o] }

// SampleOutcomes counts samples by outcome. It may be read at any time.
type SampleOutcomes [NumOutcomes]atomic.Uint64

// Add counts so many samples.
func (c *SampleOutcomes) Add(o SampleOutcome, samples uint64) { c[o].Add(samples) }

// Sum returns all samples that were counted.
func (c *SampleOutcomes) Sum() (sum uint64) {
	for o := range c {
		sum += c[o].Load()
	}
	return sum
}

// IsLoss reports whether the sample did not reach those for whom it was taken.
func (o SampleOutcome) IsLoss() bool {
	return o != OutcomeCorrelated && o != OutcomeUntraced && o != OutcomeOTel
}

// WithoutTrace reports whether the thread worked on no trace, or on one that is not sampled.
func (o SampleOutcome) WithoutTrace() bool {
	return o == OutcomeNoSlot || o == OutcomeNoTrace || o == OutcomeUnsampled
}
