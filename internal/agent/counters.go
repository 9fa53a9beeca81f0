package agent

import (
	"sync/atomic"

	"go.uber.org/zap/zapcore"

	"correlator/internal/sampling"
	"correlator/internal/target"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// Counters is everything the agent counts. All fields only grow and may be read at any time.
type Counters struct {
	Feed       feed.Counters   // what came in at the feed socket
	FedSamples atomic.Uint64   // samples in well-formed records: the sum of Fed
	Fed        target.Outcomes // of them

	Sampling sampling.Counters  // samples that we took ourselves
	Messages messaging.Counters // what went out to the processes

	Sweeps       atomic.Uint64
	SweepsFailed atomic.Uint64 // ended early

	Connected        atomic.Uint64 // sockets of processes connected, repeated ones included
	Withdrawn        atomic.Uint64 // connections ended because the process publishes nothing, or something else
	Gone             atomic.Uint64 // processes that ended, or no longer map the library
	ProcessesDenied  atomic.Uint64 // processes that we may not look into, once each
	ProcessesRefused atomic.Uint64 // processes found and not served for a reason of our own, at each sweep
	Troubles         [target.NumReasons]atomic.Uint64
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
	for r := target.ReasonNone + 1; r < target.NumReasons; r++ {
		add("trouble_"+r.String(), &c.Troubles[r])
	}

	add("feed_datagrams", &c.Feed.Datagrams)
	for r := range feed.NumReasons {
		add("feed_refused_"+r.String(), &c.Feed.Refused[r])
	}
	add("samples_fed", &c.FedSamples)
	for o := range target.NumOutcomes {
		add("fed_"+o.String(), &c.Fed[o])
	}

	c.Sampling.Each(func(name string, n uint64) {
		if n > 0 {
			enc.AddUint64(name, n)
		}
	})

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
