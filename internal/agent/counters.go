package agent

import (
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// Counters is everything the agent counts. All fields only grow and may be read at any time.
type Counters struct {
	Feed       feed.Counters          // what came in at the feed socket
	FedSamples atomic.Uint64          // samples in well-formed records: the sum of Fed
	Fed        process.SampleOutcomes // of them

	Sampling sampling.Counters  // samples that we took ourselves
	Messages messaging.Counters // what went out to the processes

	Sweeps       atomic.Uint64
	SweepNs      atomic.Uint64 // how long they took together
	SweepsFailed atomic.Uint64 // ended early
	LiveLooks    atomic.Uint64 // at processes, because of live events
	EventsLost   atomic.Uint64 // live events that the kernel could not tell, as far as it knows how many
	EventsFailed atomic.Uint64 // times that live events were not to be had

	LookoutHangs     atomic.Uint64 // times that a process's memory made the lookout wait, for the process to be looked at by itself
	Looks            atomic.Uint64 // at what processes publish
	TooOften         atomic.Uint64 // times that a process was left alone because it had published something new too often
	Connected        atomic.Uint64 // sockets of processes connected, repeated ones included
	Withdrawn        atomic.Uint64 // connections ended because the process publishes nothing, or something else
	Gone             atomic.Uint64 // processes that ended, or no longer map the library
	ProcessesDenied  atomic.Uint64 // processes that we may not look into, once each
	ProcessesRefused atomic.Uint64 // processes found and not served for a reason of our own, each time that one is found
	Filtered         atomic.Uint64 // processes that the filter left out, once each
	Truncated        atomic.Uint64 // processes with more copies of the library mapped than are looked at, once each
	Troubles         [process.NumReasons]atomic.Uint64
}

// Each calls add with everything that is counted, by a name that is the same whatever the processes do.
func (c *Counters) Each(add func(name string, n uint64)) {
	load := func(name string, counter *atomic.Uint64) { add(name, counter.Load()) }
	load("sweeps", &c.Sweeps)
	load("sweeps_failed", &c.SweepsFailed)
	load("live_looks", &c.LiveLooks)
	load("events_lost", &c.EventsLost)
	load("events_failed", &c.EventsFailed)
	load("looks", &c.Looks)
	load("lookout_hangs", &c.LookoutHangs)
	load("published_too_often", &c.TooOften)
	load("connected", &c.Connected)
	load("withdrawn", &c.Withdrawn)
	load("gone", &c.Gone)
	load("processes_denied", &c.ProcessesDenied)
	load("processes_refused", &c.ProcessesRefused)
	load("processes_filtered", &c.Filtered)
	load("processes_truncated", &c.Truncated)
	for r := process.ReasonNone + 1; r < process.NumReasons; r++ {
		load("trouble_"+r.String(), &c.Troubles[r])
	}

	load("feed_datagrams", &c.Feed.Datagrams)
	for r := range feed.NumReasons {
		load("feed_refused_"+r.String(), &c.Feed.Refused[r])
	}
	load("samples_fed", &c.FedSamples)
	for o := range process.NumOutcomes {
		load("fed_"+o.String(), &c.Fed[o])
	}

	c.Sampling.Each(add)

	load("samples_added", &c.Messages.Added)
	load("samples_sent", &c.Messages.Sent)
	for r := range messaging.NumReasons {
		load("samples_dropped_"+r.String(), &c.Messages.Dropped[r])
	}
	timing := c.Messages.Timing()
	add("samples_delay_missed_overdue", timing.Overdue)
	add("samples_delay_missed_lost", timing.Lost)
	load("messages", &c.Messages.Messages)
	load("registrations", &c.Messages.Registrations)
	load("sockets_gone", &c.Messages.SocketsGone)
	load("waits_for_room", &c.Messages.Waits)
	load("pauses", &c.Messages.Pauses)
}

// because is the field of a log line that names the counter by which it is counted, as Each does: without
// "trouble_" for those of a process.
func because(counter string) zap.Field { return zap.String("reason", counter) }

// MarshalLogObject writes the counters that are not 0 as fields of a log line.
func (c *Counters) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	c.Each(func(name string, n uint64) {
		if n > 0 {
			enc.AddUint64(name, n)
		}
	})
	return nil
}
