package agent

import (
	"cmp"
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
	for _, counter := range c.table() {
		counter.each(func(key string, n uint64, _ ...string) { add(key, n) })
	}
	c.Sampling.Each(add)
}

// counter is a family of counters. Its name is that of the metric, correlator_NAME_total; the key in logs
// and in Status is the same, but for the older keys, which Status keeps. With a label, its value is
// appended to the key.
type counter struct {
	name, olderKey string
	series         series
	help           string
}

// fedSamplesDesc is the metric of the samples that are fed, which those that are taken have, too.
var fedSamplesDesc = sampling.NewSamplesDesc("fed")

// fedSamples is the name of their family.
const fedSamples = "samples"

// desc returns the metric of the family.
func (c *counter) desc() *prometheus.Desc {
	if c.name == fedSamples {
		return fedSamplesDesc
	}
	var labels []string
	if c.series.label != "" {
		labels = []string{c.series.label}
	}
	return newDesc("correlator_"+c.name+"_total", c.help, labels...)
}

// each calls add with every counter of the family: its key, its value, and the value of its label, if it has
// one.
func (c *counter) each(add func(key string, n uint64, label ...string)) {
	key := cmp.Or(c.olderKey, c.name)
	for _, v := range c.series.values {
		if c.series.label == "" {
			add(key, v.n)
		} else {
			add(key+"_"+v.label, v.n, v.label)
		}
	}
}

type series struct {
	label  string // empty: there is one series
	values []value
}

type value struct {
	label string
	n     uint64
}

func one(n *atomic.Uint64) series { return series{values: []value{{n: n.Load()}}} }

// family returns a series for each value of T that has a name.
func family[T interface {
	~int | ~uint8
	String() string
}](label string, counts []atomic.Uint64) series {
	s := series{label: label}
	for i := range counts {
		if name := T(i).String(); name != "" {
			s.values = append(s.values, value{name, counts[i].Load()})
		}
	}
	return s
}

// table returns what there is now of all counters but those of Sampling.
func (c *Counters) table() []counter {
	timing := c.Messages.Timing()
	return []counter{
		{"sweeps", "", one(&c.Sweeps), "Sweeps of /proc, including incomplete ones."},
		{"sweeps_failed", "", one(&c.SweepsFailed), "Sweeps that ended early; the log has the reason."},
		{"live_looks", "", one(&c.LiveProbes), "Probes requested by live events."},
		{"live_events_lost", "events_lost", one(&c.EventsLost),
			"Live events lost because too many arrived at once. A sweep follows."},
		{"live_events_failed", "events_failed", one(&c.EventsFailed),
			"Times that live events could not be started, or stopped."},
		{"context_looks", "", one(&c.ContextLooks),
			"Probes for a process context after an exec or the load of a library."},
		{"context_looks_skipped", "", one(&c.ContextLooksSkipped),
			"Probes for a process context skipped because 4096 others were pending. Sweeps find these contexts later."},
		{"process_looks", "looks", one(&c.Probes), "Reads of what a process publishes."},
		{"jvm_looks", "", one(&c.JVMLooks), "Checks of JVMs for an Elastic agent that is not loaded."},
		{"jvm_looks_missed", "", one(&c.JVMLooksMissed),
			"JVMs not checked or not counted, because of an error or because there were too many."},
		{"lookout_hangs", "", one(&c.PollerHangs), "Memory reads that timed out. The process is then read separately."},
		{"publications_throttled", "published_too_often", one(&c.TooOften),
			"Times that a process was skipped for a second because it published too often."},
		{"connections", "connected", one(&c.Connections),
			"Connections to sockets of processes. Each begins with a registration."},
		{"connections_withdrawn", "withdrawn", one(&c.ConnectionsWithdrawn),
			"Connections closed because the process stopped publishing, or published something else."},
		{"processes_gone", "gone", one(&c.Gone), "Known processes that exited or unloaded the library."},
		{"processes_denied", "", one(&c.ProcessesDenied),
			"Processes that may not be read: a capability is missing, or an LSM forbids it."},
		{"process_contexts", "contexts", family[process.ThreadSchema]("schema", c.Contexts[:]),
			"OpenTelemetry process contexts read, by threadlocal.schema_version."},
		{"processes_refused", "", family[lifecycle.RefusalReason]("reason", c.Refused[:]),
			"Times that a process was found and not served. Each sweep counts it again."},
		{"processes_evicted", "", family[lifecycle.EvictionReason]("reason", c.Evicted[:]),
			"Times that a process was evicted because of --max-processes."},
		{"processes_filtered", "", one(&c.Filtered),
			"Processes excluded by a filter (--include-service and the like)."},
		{"processes_truncated", "", one(&c.Truncated), "Processes that map more copies of the library than are read."},
		{"log_lines_dropped", "log_dropped", series{"reason", []value{{"user_budget", c.LogDropped.Load()}}},
			"Log lines about processes that were dropped."},
		{"process_errors", "trouble", family[process.Reason]("reason", c.Errors[:]),
			"Errors that keep a process from being served fully; each try counts."},
		{"workers_started", "", one(&c.Workers.Started), "Workers started."},
		{"workers_ended", "", one(&c.Workers.Ended), "Workers that exited before they answered."},
		{"worker_timeouts", "", one(&c.Workers.TimedOut), "Requests to workers that timed out; the worker is killed."},
		{"worker_requests_refused", "", one(&c.Workers.Refused),
			"Requests to workers refused because of hung or busy ones of the same user."},
		{"feed_datagrams", "", one(&c.Feed.Datagrams), "Valid datagrams at --feed-socket."},
		{"feed_datagrams_refused", "feed_refused", family[feed.RefusalReason]("reason", c.Feed.Refused[:]),
			"Malformed datagrams at --feed-socket."},
		{"feed_samples", "samples_fed", one(&c.FeedSamples), "Samples in valid datagrams."},
		{"samples_queued", "samples_added", one(&c.Messages.SamplesQueued),
			"Samples queued for their process: sent, dropped, and correlator_samples_waiting."},
		{"samples_sent", "", one(&c.Messages.SamplesSent), "Samples sent to the sockets of their processes."},
		{"samples_dropped", "", family[messaging.DropReason]("reason", c.Messages.SamplesDropped[:]),
			"Samples queued and not sent."},
		{"samples_delay_missed", "", series{"reason", []value{{"overdue", timing.Overdue}, {"lost", timing.Lost}}},
			"Samples not sent within --samples-delay because of the correlator or its machine. The protocol allows 1 %."},
		{"messages_sent", "messages", one(&c.Messages.MessagesSent),
			"Messages with samples sent. A message counts one stack of one transaction."},
		{"registrations", "", one(&c.Messages.Registrations), "Registrations delivered."},
		{"connections_gone", "sockets_gone", one(&c.Messages.ConnectionsGone),
			"Connections that ended because the process closed its socket."},
		{"send_waits", "waits_for_room", one(&c.Messages.SendWaits), "Sends that had to wait for a full socket."},
		{"send_pauses", "pauses", one(&c.Messages.SendPauses),
			"Pauses of 5 ms for lack of kernel memory or after a socket error."},
		{name: fedSamples, olderKey: "fed", series: family[process.SampleOutcome]("outcome", c.Fed[:])},
	}
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
