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
		"CPU samples taken per second and CPU (--samples-per-second); 0 if disabled.")
	samplesDelayDesc = newDesc("correlator_config_samples_delay_seconds",
		"Delivery delay promised to APM agents (--samples-delay).")
	unwinderDesc = newDesc("correlator_config_unwinder",
		"1 for the configured --unwinder, 0 for the others.", "unwinder")
	maxProcessesDesc = newDesc("correlator_config_max_processes",
		"Maximum number of processes served (--max-processes).")
	healthyDesc = newDesc("correlator_healthy",
		"1 if all loops make progress, 0 if the correlator should be restarted. Same as /healthz.")
	readyDesc = newDesc("correlator_ready",
		"1 if all processes that can be served are. 0 before the first sweep ends, after SIGTERM, "+
			"while unhealthy, beyond --max-processes, or with a partial view of the host. Same as "+
			"/readyz.")
	processesDesc = newDesc("correlator_processes",
		"Processes that map the agent's library or publish a process context, by state.", "state")
	processesPublishingDesc = newDesc("correlator_processes_publishing",
		"Publishing processes, by standard. A process can use both.", "context")
	processesInErrorDesc = newDesc("correlator_processes_in_error",
		"Processes in state error. Each is retried at least every 30 seconds.", "reason")
	processesSilentDesc = newDesc("correlator_processes_silent",
		"JVMs with an Elastic agent that has not loaded its native library, by likely reason; "+
			"checked every minute, up to 256.", "reason")
	processesNotSampledDesc = newDesc("correlator_processes_not_sampled",
		"Registered or attached processes with thread contexts that are not sampled.", "reason")
	samplesWaitingDesc = newDesc("correlator_samples_waiting",
		"Samples queued to be sent.")
	liveEventsUpDesc = newDesc("correlator_live_events_up",
		"1 if the kernel reports new processes. Otherwise sweeps find them, at most 5 seconds apart.")
)

// Finding processes.
var (
	sweepSecondsDesc = newDesc("correlator_sweep_seconds_total",
		"Time spent on sweeps of /proc.")
)

// What becomes of the processes found.
var (
	processesWithoutPlaceDesc = newDesc("correlator_processes_without_place",
		"Processes rejected or evicted by --max-processes, by whether they publish. /readyz fails "+
			"while any of them does.", "publishing")
)

// The processes of the correlator's own that read files, sockets and memory of others.
var (
	workersRunningDesc = newDesc("correlator_workers_running",
		"Running worker processes.")
	workersHungDesc = newDesc("correlator_workers_hung",
		"Killed workers that have not exited because the kernel blocks. Bounded per user and in all.")
)

// Unwinding of stacks, at the moment.
var (
	unwindingUpDesc = newDesc("correlator_unwinding_up",
		"0 if the unwinding engine is needed but not running; stacks are then walked by frame pointers.")
	unwindingProcessesDesc = newDesc("correlator_unwinding_processes",
		"Sampled processes, by how stacks are obtained. Absent without the engine.", "stacks")
	unwindingQuarantinedDesc = newDesc("correlator_unwinding_processes_quarantined",
		"Processes excluded for a while because of what they did to the unwinding worker.")
	unwindingUnreapedDesc = newDesc("correlator_unwinding_workers_hung",
		"Killed unwinding workers that have not exited. With 4, no other is started.")
)

// Delivery of samples to processes.
var (
	sampleToSocketDesc = newDesc("correlator_sample_to_socket_seconds",
		"Age of samples when sent. Samples that waited together have the age of the oldest.")
)

// By service, only with --metrics-services.
var (
	serviceProcessesDesc = newDesc("correlator_service_processes",
		"Registered or attached processes, by service (--metrics-services).", "service")
	serviceSamplesDesc = newDesc("correlator_service_samples_total",
		"Samples with a trace, or exported, by service and outcome (--metrics-services).", "service", "outcome")
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
func NewCollector(source Source) *Collector {
	return &Collector{source: source}
}

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
	for _, counter := range counters.table() {
		desc := counter.desc()
		counter.each(func(_ string, n uint64, label ...string) {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), label...)
		})
	}
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
	gauge(unwindingProcessesDesc, float64(status.Native), "native")
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
