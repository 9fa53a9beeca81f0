package agent

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// Counters is everything the agent counts. All fields only grow and may be read at any time.
type Counters struct {
	lifecycle.Counters // of all processes

	Sampling sampling.Counters // samples that are taken

	Feed       feed.Counters          // datagrams at the feed socket
	FedSamples atomic.Uint64          // samples in well-formed records: the sum of Fed
	Fed        process.SampleOutcomes // of them

	Messages messaging.Counters // what is sent to processes
	Workers  worker.Counters    // that access processes

	JVMLooks       atomic.Uint64 // at JVMs that take no part, for an agent
	JVMLooksMissed atomic.Uint64 // that were not taken, since there were too many, or failed

	Connected atomic.Uint64 // sockets of processes connected, repeated ones included
	Withdrawn atomic.Uint64 // connections ended because the process publishes nothing, or something else
}

// Each calls add with every counter by its key in logs and in Status. The keys do not depend on
// what the processes do.
func (c *Counters) Each(add func(key string, n uint64)) {
	c.each(func(key string, n uint64, _ *prometheus.Desc, _ ...string) { add(key, n) })
	c.Sampling.Each(add)
}

// each calls add with every counter but those of Sampling: its key, its value, and its metric.
func (c *Counters) each(add func(key string, n uint64, desc *prometheus.Desc, labels ...string)) {
	add("sweeps", c.Sweeps.Load(), sweepsDesc)
	add("sweeps_failed", c.SweepsFailed.Load(), sweepsFailedDesc)
	add("live_looks", c.LiveProbes.Load(), liveProbesDesc)
	add("events_lost", c.EventsLost.Load(), liveEventsLostDesc)
	add("events_failed", c.EventsFailed.Load(), liveEventsFailedDesc)
	add("context_looks", c.ContextLooks.Load(), contextLooksDesc)
	add("context_looks_skipped", c.ContextLooksSkipped.Load(), contextLooksSkippedDesc)
	add("looks", c.Probes.Load(), probesDesc)
	add("jvm_looks", c.JVMLooks.Load(), jvmLooksDesc)
	add("jvm_looks_missed", c.JVMLooksMissed.Load(), jvmLooksMissedDesc)
	add("lookout_hangs", c.PollerHangs.Load(), pollerHangsDesc)
	add("published_too_often", c.TooOften.Load(), publicationsThrottledDesc)
	add("connected", c.Connected.Load(), connectionsDesc)
	add("withdrawn", c.Withdrawn.Load(), connectionsWithdrawnDesc)
	add("gone", c.Gone.Load(), processesGoneDesc)
	add("processes_denied", c.ProcessesDenied.Load(), processesDeniedDesc)
	for s := range process.NumThreadSchemas {
		add("contexts_"+s.String(), c.Contexts[s].Load(), contextsDesc, s.String())
	}
	for r := range lifecycle.NumRefusalReasons {
		add("processes_refused_"+r.String(), c.Refused[r].Load(), processesRefusedDesc, r.String())
	}
	for r := range lifecycle.NumEvictionReasons {
		add("processes_evicted_"+r.String(), c.Evicted[r].Load(), processesEvictedDesc, r.String())
	}
	add("processes_filtered", c.Filtered.Load(), processesFilteredDesc)
	add("processes_truncated", c.Truncated.Load(), processesTruncatedDesc)
	add("log_dropped_user_budget", c.LogDropped.Load(), logDroppedDesc, "user_budget")
	for r := process.ReasonNone + 1; r < process.NumReasons; r++ {
		add("trouble_"+r.String(), c.Errors[r].Load(), processErrorsDesc, r.String())
	}

	add("workers_started", c.Workers.Started.Load(), workersStartedDesc)
	add("workers_ended", c.Workers.Ended.Load(), workersEndedDesc)
	add("worker_timeouts", c.Workers.TimedOut.Load(), workerTimeoutsDesc)
	add("worker_requests_refused", c.Workers.Refused.Load(), workerRefusedDesc)

	add("feed_datagrams", c.Feed.Datagrams.Load(), feedDatagramsDesc)
	for r := range feed.NumRefusalReasons {
		add("feed_refused_"+r.String(), c.Feed.Refused[r].Load(), feedRefusedDesc, r.String())
	}
	add("samples_fed", c.FedSamples.Load(), feedSamplesDesc)
	for o := range process.NumOutcomes {
		add("fed_"+o.String(), c.Fed[o].Load(), fedSamplesDesc, o.String())
	}

	messages := &c.Messages
	add("samples_added", messages.Added.Load(), samplesQueuedDesc)
	add("samples_sent", messages.Sent.Load(), samplesSentDesc)
	for r := range messaging.NumDropReasons {
		add("samples_dropped_"+r.String(), messages.Dropped[r].Load(), samplesDroppedDesc, r.String())
	}
	timing := messages.Timing()
	add("samples_delay_missed_overdue", timing.Overdue, delayMissedDesc, "overdue")
	add("samples_delay_missed_lost", timing.Lost, delayMissedDesc, "lost")
	add("messages", messages.Messages.Load(), messagesDesc)
	add("registrations", messages.Registrations.Load(), registrationsDesc)
	add("sockets_gone", messages.SocketsGone.Load(), connectionsGoneDesc)
	add("waits_for_room", messages.Waits.Load(), sendWaitsDesc)
	add("pauses", messages.Pauses.Load(), sendPausesDesc)
}

// because returns the field of a log line that names its counter by the key that Each passes, for
// errors of a process without "trouble_".
func because(counter string) zap.Field { return zap.String("reason", counter) }

// MarshalLogObject writes the counters that are not 0 as fields of a log line.
func (c *Counters) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	c.Each(func(key string, n uint64) {
		if n > 0 {
			enc.AddUint64(key, n)
		}
	})
	return nil
}
