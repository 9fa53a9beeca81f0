package agent

import (
	"cmp"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/attach/process"
	"correlator/internal/host/metric"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker/cost"
	"correlator/messaging"
	"correlator/procscan/javaagent"
	"correlator/profile"
)

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
	Waits() *sampling.WaitsStatus
	Cost() cost.Cost
}

// Collector exports the metrics of an agent. The series do not depend on what the processes do,
// except for those by service, whose number is bounded. It is safe for concurrent use.
type Collector struct {
	metric.Unchecked
	source Source
}

// NewCollector returns a Collector of the metrics of source.
func NewCollector(source Source) *Collector {
	return &Collector{source: source}
}

// Collect implements [prometheus.Collector]. It blocks as long as the methods of the source do.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	m := metric.Sender{To: metrics, Prefix: "correlator_"}
	c.collectState(m)
	counters := c.source.Counters()
	counters.families().Send(m)
	m.Seconds("sweep_seconds_total", "Time spent on sweeps of /proc.", time.Duration(counters.SweepNs.Load()))
	m.Seconds("waits_without_stack_seconds_total", "Time of waits without a stack: there were too many, or it was lost.",
		time.Duration(counters.Sampling.WalksUnaskedNS.Load()))
	metrics <- sampleToSocket(counters.Messages.Timing())
	stacks := counters.Sampling.Stacks()
	m.Gauge("stacks_held", "Cached stacks.", stacks.Stacks)
	m.Gauge("stacks_held_bytes", "Memory of cached stacks and their file names.", stacks.Bytes)
	for _, s := range c.source.Services() {
		m.Gauge("service_processes", "Registered or attached processes, by service (--metrics-services).",
			s.Processes, "service", s.Name)
		for outcome, n := range s.samples {
			m.Counter("service_samples_total",
				"Samples with a trace, or exported, by service and outcome (--metrics-services).", n,
				"service", s.Name, "outcome", serviceOutcomes[outcome])
		}
	}
}

// collectState collects the configuration, which alerts and dashboards compare with, and the
// present state.
func (c *Collector) collectState(m metric.Sender) {
	config := c.source.Config()
	m.Gauge("config_samples_per_second",
		"CPU samples taken per second and CPU (--samples-per-second); 0 if disabled.", config.SamplesPerSecond)
	m.Duration("config_samples_delay_seconds",
		"Delivery delay promised to APM agents (--samples-delay).", config.SamplesDelay)
	m.Gauge("config_max_processes",
		"Maximum number of processes served (--max-processes).", config.MaxProcesses)
	m.State("healthy",
		"1 if all loops make progress, 0 if the correlator should be restarted. Same as /healthz.",
		c.source.Health() == nil)
	m.State("ready",
		"1 if all processes that can be served are. 0 before the first sweep ends, after SIGTERM, "+
			"while unhealthy, beyond --max-processes, or with a partial view of the host. Same as "+
			"/readyz.", c.source.Ready() == nil)

	census, notSampled := c.source.Census(), c.source.NotSampled()
	for _, state := range []process.State{
		process.StateNoStorage, process.StateReady, process.StateRegistered, process.StateAttached,
		process.StateFiltered, process.StateError,
	} {
		m.Gauge("processes", "Processes that map the agent's library or publish a process context, by state.",
			census.Processes[state], "state", string(state))
	}
	for r := process.ReasonNone + 1; r < process.NumReasons; r++ {
		m.Gauge("processes_in_error", "Processes in state error. Each is retried at least every 30 seconds.",
			census.InError[r.String()], "reason", r.String())
	}
	for _, reason := range javaagent.Reasons() {
		m.Gauge("processes_silent",
			"JVMs with an Elastic agent that has not loaded its native library, by likely reason; "+
				"checked every minute, up to 256.", census.Silent[string(reason)], "reason", string(reason))
	}
	for _, reason := range NotSampledReasons() {
		m.Gauge("processes_not_sampled",
			"Registered or attached processes with thread contexts that are not sampled.",
			notSampled[reason], "reason", reason)
	}
	for _, kind := range []profile.ContextKind{profile.ElasticContext, profile.OTelContext} {
		m.Gauge("processes_publishing", "Publishing processes, by standard. A process can use both.",
			census.Publish[kind.String()], "context", kind.String())
	}
	for publishing, n := range map[string]int{
		"true": census.WithoutPlace.Publishing, "false": census.WithoutPlace.Others,
	} {
		m.Gauge("processes_without_place",
			"Processes rejected or evicted by --max-processes, by whether they publish. /readyz fails "+
				"while any of them does.", n, "publishing", publishing)
	}
	m.Gauge("samples_waiting", "Samples queued to be sent.", int(census.Waiting))
	m.Gauge("workers_running", "Running worker processes.", census.Workers.Running)
	m.Gauge("workers_hung",
		"Killed workers that have not exited because the kernel blocks. Bounded per user and in all.",
		census.Workers.Hung)
	taken := c.source.Cost()
	m.Seconds("cpu_seconds_total", "CPU time of the correlator and its workers, without eBPF programs.", taken.CPU())
	if taken.PSSBytes > 0 {
		m.Gauge("memory_pss_bytes", "Memory (PSS) of the correlator and its workers. Absent where it cannot be read.",
			int(taken.PSSBytes))
	}
	m.State("live_events_up",
		"1 if the kernel reports new processes. Otherwise sweeps find them, at most 5 seconds apart.",
		census.LiveEvents)
	for _, unwinder := range sampling.Unwinders() {
		m.State("config_unwinder", "1 for the configured --unwinder, 0 for the others.", config.Unwinder == unwinder,
			"unwinder", unwinder.String())
	}
	collectUnwinding(c.source.Unwinding(), m)
	if waits := c.source.Waits(); waits != nil {
		m.State("waits_up",
			"0 if it is not known what transactions wait for, or where. Absent where nobody can take waits.",
			waits.Kept && waits.Stacks)
	}
}

// collectUnwinding collects how stacks are unwound; nil: they are not.
func collectUnwinding(status *sampling.UnwindingStatus, m metric.Sender) {
	status = cmp.Or(status, new(sampling.UnwindingStatus))
	m.State("unwinding_up",
		"0 if the unwinding engine is needed but not running; stacks are then walked by frame pointers.",
		status.Err() == nil)
	for stacks, n := range map[string]int{
		"unwound": status.Unwound, "native": status.Native, "frame_pointers": status.Waiting,
	} {
		m.Gauge("unwinding_processes",
			"Sampled processes, by how stacks are obtained. Absent without the engine.", n, "stacks", stacks)
	}
	var quarantined, unreaped int
	if engine := status.Engine; engine != nil {
		quarantined, unreaped = len(engine.Quarantined), engine.Unreaped
	}
	m.Gauge("unwinding_processes_quarantined",
		"Processes excluded for a while because of what they did to the unwinding worker.", quarantined)
	m.Gauge("unwinding_workers_hung",
		"Killed unwinding workers that have not exited. With 4, no other is started.", unreaped)
}

var sampleToSocketDesc = prometheus.NewDesc("correlator_sample_to_socket_seconds",
	"Age of samples when sent. Samples that waited together have the age of the oldest.", nil, nil)

func sampleToSocket(timing messaging.Timing) prometheus.Metric {
	buckets := make(map[float64]uint64)
	for bound, samples := range timing.Buckets() {
		if bound != math.MaxInt64 { // the infinite bucket is timing.Sent
			buckets[bound.Seconds()] = samples
		}
	}
	return prometheus.MustNewConstHistogram(sampleToSocketDesc, timing.Sent, timing.Sum().Seconds(), buckets)
}
