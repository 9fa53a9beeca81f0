package agent

import (
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/host/metric"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// Counters is everything the agent counts. All fields only grow and may be read at any time.
type Counters struct {
	lifecycle.Counters // of all processes

	Sampling sampling.Counters // samples that are taken

	Feed        feed.Counters          // datagrams at the feed socket
	FeedSamples atomic.Uint64          // samples in well-formed records: the sum of Fed
	Fed         process.SampleOutcomes // of them

	Messages messaging.Counters // what is sent to processes
	Workers  worker.Counters    // that access processes

	JVMLooks       atomic.Uint64 // at JVMs that take no part, for an agent
	JVMLooksMissed atomic.Uint64 // that were not taken, since there were too many, or failed

	Connections          atomic.Uint64 // sockets of processes connected, repeated ones included
	ConnectionsWithdrawn atomic.Uint64 // connections ended because the process publishes nothing, or something else
}

// Each calls add with every counter by its key in logs and in Status. The keys do not depend on
// what the processes do.
func (c *Counters) Each(add func(key string, n uint64)) {
	c.families().Each(add)
}

func (c *Counters) families() (f metric.Families) {
	timing := c.Messages.Timing()
	f.One("sweeps", "", &c.Sweeps, "Sweeps of /proc, including incomplete ones.")
	f.One("sweeps_failed", "", &c.SweepsFailed, "Sweeps that ended early; the log has the reason.")
	f.One("live_looks", "", &c.LiveProbes, "Probes requested by live events.")
	f.One("live_events_lost", "events_lost", &c.EventsLost,
		"Live events lost because too many arrived at once. A sweep follows.")
	f.One("live_events_failed", "events_failed", &c.EventsFailed,
		"Times that live events could not be started, or stopped.")
	f.One("context_looks", "", &c.ContextLooks,
		"Probes for a process context after an exec or the load of a library.")
	f.One("context_looks_skipped", "", &c.ContextLooksSkipped,
		"Probes for process contexts skipped: too many waited, of all or one user. Sweeps find them.")
	f.One("process_looks", "looks", &c.Probes, "Reads of what a process publishes.")
	f.One("jvm_looks", "", &c.JVMLooks, "Checks of JVMs for an Elastic agent that is not loaded.")
	f.One("jvm_looks_missed", "", &c.JVMLooksMissed,
		"JVMs not checked or not counted, because of an error or because there were too many.")
	f.One("lookout_hangs", "", &c.PollerHangs, "Memory reads that timed out. The process is then read separately.")
	f.One("publications_throttled", "published_too_often", &c.TooOften,
		"Times that a process was skipped for a second because it published too often.")
	f.One("connections", "connected", &c.Connections,
		"Connections to sockets of processes. Each begins with a registration.")
	f.One("connections_withdrawn", "withdrawn", &c.ConnectionsWithdrawn,
		"Connections closed because the process stopped publishing, or published something else.")
	f.One("processes_gone", "gone", &c.Gone, "Known processes that exited or unloaded the library.")
	f.One("processes_denied", "", &c.ProcessesDenied,
		"Processes that may not be read: a capability is missing, or an LSM forbids it.")
	f.Add("process_contexts", "contexts", metric.By[process.ThreadSchema]("schema", c.Contexts[:]),
		"OpenTelemetry process contexts read, by threadlocal.schema_version.")
	f.Add("processes_refused", "", metric.By[lifecycle.RefusalReason]("reason", c.Refused[:]),
		"Times that a process was found and not served. Each sweep counts it again.")
	f.Add("processes_evicted", "", metric.By[lifecycle.EvictionReason]("reason", c.Evicted[:]),
		"Times that a process was evicted because of --max-processes.")
	f.One("processes_filtered", "", &c.Filtered,
		"Processes excluded by a filter (--include-service and the like).")
	f.One("processes_truncated", "", &c.Truncated, "Processes that map more libraries or contexts than are read.")
	f.Add("log_lines_dropped", "log_dropped", metric.Label("reason").With("user_budget", c.LogDropped.Load()),
		"Log lines about processes that were dropped.")
	f.Add("process_errors", "trouble", metric.By[process.Reason]("reason", c.Errors[:]),
		"Errors that keep a process from being served fully; each try counts.")
	f.One("workers_started", "", &c.Workers.Started, "Workers started.")
	f.One("workers_ended", "", &c.Workers.Ended, "Workers that exited before they answered.")
	f.One("worker_timeouts", "", &c.Workers.TimedOut, "Requests to workers that timed out; the worker is killed.")
	f.One("worker_requests_refused", "", &c.Workers.Refused,
		"Requests to workers refused because of hung or busy ones of the same user.")
	f.One("feed_datagrams", "", &c.Feed.Datagrams, "Valid datagrams at --feed-socket.")
	f.Add("feed_datagrams_refused", "feed_refused", metric.By[feed.RefusalReason]("reason", c.Feed.Refused[:]),
		"Malformed datagrams at --feed-socket.")
	f.One("feed_samples", "samples_fed", &c.FeedSamples, "Samples in valid datagrams.")
	f.One("samples_queued", "samples_added", &c.Messages.SamplesQueued,
		"Samples queued for their process: sent, dropped, and correlator_samples_waiting.")
	f.One("samples_sent", "", &c.Messages.SamplesSent, "Samples sent to the sockets of their processes.")
	f.Add("samples_dropped", "", metric.By[messaging.DropReason]("reason", c.Messages.SamplesDropped[:]),
		"Samples queued and not sent.")
	f.Add("samples_delay_missed", "", metric.Label("reason").With("overdue", timing.Overdue).With("lost", timing.Lost),
		"Samples not sent within --samples-delay because of the correlator or its machine. The protocol allows 1 %.")
	f.One("messages_sent", "messages", &c.Messages.MessagesSent,
		"Messages with samples sent. A message counts one stack of one transaction.")
	f.One("registrations", "", &c.Messages.Registrations, "Registrations delivered.")
	f.One("connections_gone", "sockets_gone", &c.Messages.ConnectionsGone,
		"Connections that ended because the process closed its socket.")
	f.One("send_waits", "waits_for_room", &c.Messages.SendWaits, "Sends that had to wait for a full socket.")
	f.One("send_pauses", "pauses", &c.Messages.SendPauses,
		"Pauses of 5 ms for lack of kernel memory or after a socket error.")
	f.Add("samples", "fed", metric.By[process.SampleOutcome]("outcome", c.Fed[:]), sampling.SamplesHelp,
		"source", "fed")
	return append(f, c.Sampling.Families()...)
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
