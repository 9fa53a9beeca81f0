package agent

import (
	"cmp"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/messaging"
	"correlator/procscan/javaagent"
	"correlator/profile"
)

// What the agent is configured to do, and how it is.
var (
	samplesPerSecondDesc = newDesc("correlator_config_samples_per_second",
		"Samples that are taken of every CPU per second (--samples-per-second); 0: none are.")
	samplesDelayDesc = newDesc("correlator_config_samples_delay_seconds",
		"How soon after a sample its message is promised to the APM agents (--samples-delay).")
	unwinderDesc = newDesc("correlator_config_unwinder",
		"1 for the value of --unwinder, 0 for the others.", "unwinder")
	maxProcessesDesc = newDesc("correlator_config_max_processes",
		"How many processes are served at most (--max-processes).")
	healthyDesc = newDesc("correlator_healthy",
		"Whether the correlator does what it has to do all the time; else it should be restarted. The same as "+
			"/healthz.")
	readyDesc = newDesc("correlator_ready",
		"Whether all processes are served that can be: 0 until the first sweep has ended, while more processes publish "+
			"than are served (--max-processes) or the correlator is not healthy, from SIGTERM on, and where it does not "+
			"see all processes of the host. The same as /readyz.")
	processesDesc = newDesc("correlator_processes",
		"Processes that carry the library of Elastic's agent, or a process context, now, by state. Those with no-storage "+
			"publish nothing: in them correlation is not enabled, or not yet.", "state")
	processesPublishingDesc = newDesc("correlator_processes_publishing",
		"Processes that publish what they work on, or who they are, by standard: by Elastic's library or by "+
			"OpenTelemetry's contexts; one may by both.", "context")
	contextsDesc = newDesc("correlator_process_contexts_total",
		"Process contexts of OpenTelemetry that were read, new or updated, by how they say that threads publish what "+
			"they work on (threadlocal.schema_version). Only those of tlsdesc_v1_dev and tls_v1 can be read.", "schema")
	processesInErrorDesc = newDesc("correlator_processes_in_error",
		"Processes in the state error now, by reason. Each is tried again, at least every 30 seconds.", "reason")
	processesSilentDesc = newDesc("correlator_processes_silent",
		"JVMs that have an agent of Elastic's (its jar is open, or named on the command line) that has not loaded its native "+
			"library, by the likeliest reason. They are looked for every minute, and at most 256 are counted.", "reason")
	processesNotSampledDesc = newDesc("correlator_processes_not_sampled",
		"Processes that are registered or attached now, whose threads publish what they work on, and of which the "+
			"correlator takes no samples, by reason; none when it takes none at all.", "reason")
	samplesWaitingDesc = newDesc("correlator_samples_waiting",
		"Samples that wait to be sent now.")
	liveEventsUpDesc = newDesc("correlator_live_events_up",
		"Whether the kernel tells of new processes at once. If not, sweeps find them, at most 5 seconds apart.")
)

// Finding processes.
var (
	sweepsDesc = newDesc("correlator_sweeps_total",
		"Sweeps of all processes in /proc, those included that ended early.")
	sweepsFailedDesc = newDesc("correlator_sweeps_failed_total",
		"Sweeps that ended early; the log says why.")
	sweepSecondsDesc = newDesc("correlator_sweep_seconds_total",
		"Time that the sweeps of /proc took.")
	liveEventsFailedDesc = newDesc("correlator_live_events_failed_total",
		"Times that the kernel gave no live events of processes, or stopped to. Sweeps alone find new processes then.")
	liveEventsLostDesc = newDesc("correlator_live_events_lost_total",
		"Live events that the kernel could not tell because too many came at once. A sweep makes up for them.")
	liveProbesDesc = newDesc("correlator_live_looks_total",
		"Looks at single processes because a live event told that they map the agent's library.")
	contextLooksDesc = newDesc("correlator_context_looks_total",
		"Looks for an OpenTelemetry process context at processes that have just started a program or loaded a library.")
	contextLooksSkippedDesc = newDesc("correlator_context_looks_skipped_total",
		"Times that such a process was not looked at, since 4096 others were. Sweeps find its context, within eight.")
	probesDesc = newDesc("correlator_process_looks_total",
		"Looks at what a process publishes.")
	jvmLooksDesc = newDesc("correlator_jvm_looks_total",
		"Looks at JVMs that take no part, for an agent of Elastic's.")
	jvmLooksMissedDesc = newDesc("correlator_jvm_looks_missed_total",
		"JVMs that were not looked at, or not counted: there were too many, or looking failed.")
	pollerHangsDesc = newDesc("correlator_lookout_hangs_total",
		"Times that the memory of one process made the watch over all wait; that process is then looked at by itself.")
)

// What becomes of the processes found.
var (
	processesGoneDesc = newDesc("correlator_processes_gone_total",
		"Processes that were known and ended, or unloaded the agent's library.")
	processesFilteredDesc = newDesc("correlator_processes_filtered_total",
		"Processes left out by a filter (--include-service and the like), each once.")
	processesDeniedDesc = newDesc("correlator_processes_denied_total",
		"Processes that the correlator may not look into, for want of a capability or because of an LSM, each once.")
	processesRefusedDesc = newDesc("correlator_processes_refused_total",
		"Times that a process was found and not served for a reason of the correlator. One process counts again in each "+
			"sweep.", "reason")
	processesEvictedDesc = newDesc("correlator_processes_evicted_total",
		"Times that a process had to give way to others because of --max-processes.", "reason")
	processesWithoutPlaceDesc = newDesc("correlator_processes_without_place",
		"Processes now that had to give way to others, or were not let in, because of --max-processes, by whether they "+
			"publish. While there are any that do, /readyz fails.", "publishing")
	processesTruncatedDesc = newDesc("correlator_processes_truncated_total",
		"Processes with more copies of the agent's library mapped than are looked at, each once.")
	logDroppedDesc = newDesc("correlator_log_lines_dropped_total",
		"Lines about processes that were not logged.", "reason")
	processErrorsDesc = newDesc("correlator_process_errors_total",
		"Errors because of which a process is not served, or not fully; each try counts. How many processes are in "+
			"error now is correlator_processes_in_error.", "reason")
	connectionsDesc = newDesc("correlator_connections_total",
		"Connections made to the sockets of processes. Each begins with a registration.")
	connectionsWithdrawnDesc = newDesc("correlator_connections_withdrawn_total",
		"Connections ended by the correlator, because the process publishes nothing any more, or something else.")
	connectionsGoneDesc = newDesc("correlator_connections_gone_total",
		"Connections that ended because the process closed its socket.")
	registrationsDesc = newDesc("correlator_registrations_total",
		"Registrations that were taken by the sockets of processes.")
	publicationsThrottledDesc = newDesc("correlator_publications_throttled_total",
		"Times that a process was left alone for a second because it kept publishing something new.")
)

// The processes of the correlator's own that read files, sockets and memory of others.
var (
	workersRunningDesc = newDesc("correlator_workers_running",
		"Worker processes that access other processes now, or wait for that.")
	workersHungDesc = newDesc("correlator_workers_hung",
		"Worker processes that were killed because they did not answer, and have not ended: a process makes the kernel "+
			"wait. Their number is bounded, by user and in all.")
	workersStartedDesc = newDesc("correlator_workers_started_total",
		"Worker processes started.")
	workersEndedDesc = newDesc("correlator_workers_ended_total",
		"Worker processes that ended before they had answered: killed by somebody else, or by an error of theirs.")
	workerTimeoutsDesc = newDesc("correlator_worker_timeouts_total",
		"Requests to worker processes that were not answered in time. Each had its worker killed.")
	workerRefusedDesc = newDesc("correlator_worker_requests_refused_total",
		"Requests to worker processes that were not served because workers hang, or are busy for long, with processes "+
			"of the same user.")
)

// Unwinding of stacks, at the moment.
var (
	unwindingUpDesc = newDesc("correlator_unwinding_up",
		"0: the unwinding engine is needed, and does not run, so that all stacks are walked by frame pointers; 1 also when it "+
			"is not needed. correlator status and the log say why.")
	unwindingProcessesDesc = newDesc("correlator_unwinding_processes",
		"Processes that are sampled, by how their stacks are walked; none without the engine.", "stacks")
	unwindingQuarantinedDesc = newDesc("correlator_unwinding_processes_quarantined",
		"Processes that are left out for a while because of what they did to the unwinding worker.")
	unwindingUnreapedDesc = newDesc("correlator_unwinding_workers_hung",
		"Unwinding workers that were killed and have not ended: a process makes the kernel wait. With 4, no other is "+
			"started.")
)

// Samples that outside samplers feed.
var (
	feedDatagramsDesc = newDesc("correlator_feed_datagrams_total",
		"Well-formed datagrams of outside samplers at --feed-socket.")
	feedRefusedDesc = newDesc("correlator_feed_datagrams_refused_total",
		"Datagrams at --feed-socket that are not well-formed: their sender speaks another format, or none.", "reason")
	feedSamplesDesc = newDesc("correlator_feed_samples_total",
		"Samples in the well-formed datagrams.")
	fedSamplesDesc = sampling.NewSamplesDesc("fed")
)

// Delivery of samples to processes.
var (
	sampleToSocketDesc = newDesc("correlator_sample_to_socket_seconds",
		"Age of the samples sent when the kernel took their message. It is never told too small: samples that waited "+
			"together are as old as the oldest.")
	samplesQueuedDesc = newDesc("correlator_samples_queued_total",
		"Samples that were queued for their process: those sent, those dropped, and correlator_samples_waiting.")
	samplesSentDesc = newDesc("correlator_samples_sent_total",
		"Samples that the sockets of their processes took.")
	samplesDroppedDesc = newDesc("correlator_samples_dropped_total",
		"Samples that were queued and not sent. With late, mostly the process did not read its socket.", "reason")
	delayMissedDesc = newDesc("correlator_samples_delay_missed_total",
		"Samples that were not sent within --samples-delay because of the correlator or its machine, not of the "+
			"process: overdue ones were sent too late, lost ones are among the dropped. The protocol allows 1 "+
			"%.", "reason")
	messagesDesc = newDesc("correlator_messages_sent_total",
		"Messages with samples that were taken by the sockets of processes; one tells how often a stack was sampled "+
			"in a transaction.")
	sendWaitsDesc = newDesc("correlator_send_waits_total",
		"Times that the socket of a process was full and sending had to wait.")
	sendPausesDesc = newDesc("correlator_send_pauses_total",
		"Times that sending to a process stopped for 5 ms, for want of kernel memory or of a socket that behaves.")
)

// By service, only with --metrics-services.
var (
	serviceProcessesDesc = newDesc("correlator_service_processes",
		"Processes that are registered or attached now, by service. Only with --metrics-services, which is how many are "+
			"named: later ones are _other; those without a name are unknown_service.", "service")
	serviceSamplesDesc = newDesc("correlator_service_samples_total",
		"Samples of processes with a trace, or exported, by service and by what became of them, also of processes that "+
			"have ended. Only with --metrics-services.", "service", "outcome")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Source is what a Collector reads: an *Agent. All methods are safe for concurrent use.
type Source interface {
	Config() Config
	Counters() *Counters
	Census() Census
	NotSampled() map[string]int
	Services() []ServiceCounts
	Health() error
	Ready() error
	Unwinding() *sampling.UnwindingStatus
}

// Collector exports the metrics of an agent. The series do not depend on what the processes do,
// except for those by service, whose number is bounded. It is safe for concurrent use.
type Collector struct {
	source Source
}

// NewCollector returns a Collector of the metrics of source.
func NewCollector(source Source) *Collector { return &Collector{source: source} }

// Describe implements [prometheus.Collector]. It collects: but for those by service the series are
// always the same.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
	descs <- serviceProcessesDesc
	descs <- serviceSamplesDesc
}

// Collect implements [prometheus.Collector]. It blocks as long as the methods of the source do.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	c.collectState(metrics)
	counters := c.source.Counters()
	counters.each(func(_ string, n uint64, desc *prometheus.Desc, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	})
	metrics <- prometheus.MustNewConstMetric(sweepSecondsDesc, prometheus.CounterValue,
		time.Duration(counters.SweepNs.Load()).Seconds())
	metrics <- sampleToSocket(counters.Messages.Timing())
	counters.Sampling.Collect(metrics)
	for _, s := range c.source.Services() {
		metrics <- prometheus.MustNewConstMetric(serviceProcessesDesc, prometheus.GaugeValue, float64(s.Processes),
			s.Name)
		for outcome, n := range s.samples {
			metrics <- prometheus.MustNewConstMetric(serviceSamplesDesc, prometheus.CounterValue, float64(n), s.Name,
				serviceOutcomes[outcome])
		}
	}
}

// collectState collects the configuration, which alerts and dashboards compare with, and the
// present state.
func (c *Collector) collectState(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	config := c.source.Config()
	gauge(samplesPerSecondDesc, float64(config.SamplesPerSecond))
	gauge(samplesDelayDesc, config.SamplesDelay.Seconds())
	gauge(maxProcessesDesc, float64(config.MaxProcesses))
	gauge(healthyDesc, boolValue(c.source.Health() == nil))
	gauge(readyDesc, boolValue(c.source.Ready() == nil))

	census, notSampled := c.source.Census(), c.source.NotSampled()
	for _, state := range []process.State{
		process.StateNoStorage, process.StateReady, process.StateRegistered, process.StateAttached,
		process.StateFiltered, process.StateError,
	} {
		gauge(processesDesc, float64(census.Processes[state]), string(state))
	}
	for r := process.ReasonNone + 1; r < process.NumReasons; r++ {
		gauge(processesInErrorDesc, float64(census.InError[r.String()]), r.String())
	}
	for _, reason := range javaagent.Reasons() {
		gauge(processesSilentDesc, float64(census.Silent[string(reason)]), string(reason))
	}
	for _, reason := range NotSampledReasons() {
		gauge(processesNotSampledDesc, float64(notSampled[reason]), reason)
	}
	for _, kind := range []profile.ContextKind{profile.ElasticContext, profile.OTelContext} {
		gauge(processesPublishingDesc, float64(census.Publish[kind.String()]), kind.String())
	}
	gauge(processesWithoutPlaceDesc, float64(census.WithoutPlace.Publishing), "true")
	gauge(processesWithoutPlaceDesc, float64(census.WithoutPlace.Others), "false")
	gauge(samplesWaitingDesc, float64(census.Waiting))
	gauge(workersRunningDesc, float64(census.Workers.Running))
	gauge(workersHungDesc, float64(census.Workers.Hung))
	gauge(liveEventsUpDesc, boolValue(census.LiveEvents))
	for _, unwinder := range sampling.Unwinders() {
		gauge(unwinderDesc, boolValue(config.Unwinder == unwinder), unwinder.String())
	}
	collectUnwinding(c.source.Unwinding(), gauge)
}

// collectUnwinding collects how stacks are unwound; nil: they are not.
func collectUnwinding(status *sampling.UnwindingStatus, gauge func(*prometheus.Desc, float64, ...string)) {
	status = cmp.Or(status, new(sampling.UnwindingStatus))
	gauge(unwindingUpDesc, boolValue(status.Err() == nil))
	gauge(unwindingProcessesDesc, float64(status.Unwound), "unwound")
	gauge(unwindingProcessesDesc, float64(status.Waiting), "frame_pointers")
	var quarantined, unreaped int
	if engine := status.Engine; engine != nil {
		quarantined, unreaped = len(engine.Quarantined), engine.Unreaped
	}
	gauge(unwindingQuarantinedDesc, float64(quarantined))
	gauge(unwindingUnreapedDesc, float64(unreaped))
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func sampleToSocket(timing messaging.Timing) prometheus.Metric {
	buckets := make(map[float64]uint64)
	for bound, samples := range timing.Buckets() {
		if bound != math.MaxInt64 { // the infinite bucket is timing.Sent
			buckets[bound.Seconds()] = samples
		}
	}
	return prometheus.MustNewConstHistogram(sampleToSocketDesc, timing.Sent, timing.Sum().Seconds(), buckets)
}
