package metrics

import (
	"math"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/agent"
	"correlator/internal/process"
	"correlator/messaging"
	"correlator/profile"
)

// snapshot is what readings are taken of.
type snapshot struct {
	build      Build
	config     agent.Config
	census     agent.Census
	notSampled map[string]int // processes, by agent.NotSampledReasons
	stacks     profile.StoreStats
	sweeps     time.Duration // how long they took together
	healthy    bool
	ready      bool
}

func take(source Source, build Build) *snapshot {
	counters := source.Counters()
	return &snapshot{
		build:      build,
		config:     source.Config(),
		census:     source.Census(),
		notSampled: source.NotSampled(),
		stacks:     counters.Sampling.Stacks(),
		sweeps:     time.Duration(counters.SweepNs.Load()),
		healthy:    source.Health() == nil,
		ready:      source.Ready() == nil,
	}
}

// reading is a family of metrics that are no counters of the agent.
type reading struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(now *snapshot, emit func(value float64, labels ...string))
}

// gauge is a reading of a single value.
func gauge(name, help string, value func(now *snapshot) float64) reading {
	return reading{name: name, help: help, kind: prometheus.GaugeValue,
		read: func(now *snapshot, emit func(float64, ...string)) { emit(value(now)) }}
}

// states are those of a process that is known.
var states = [...]process.State{
	process.StateNoStorage, process.StateReady, process.StateRegistered, process.StateFiltered, process.StateError,
}

// readings is every family that is no counter of the agent, but for the histogram.
func readings() []reading {
	return append(configured(), []reading{
		gauge("healthy",
			"Whether the correlator does what it has to do all the time; else it should be restarted. The same as /healthz.",
			func(now *snapshot) float64 { return indicator(now.healthy) }),
		gauge("ready",
			"Whether all processes are served that can be: 0 until the first sweep has ended, while the correlator is not healthy, and from SIGTERM on. The same as /readyz.",
			func(now *snapshot) float64 { return indicator(now.ready) }),
		{
			name: "processes", labels: []string{"state"}, kind: prometheus.GaugeValue,
			help: "Processes that carry the APM agent's library now, by state. Those with no-storage publish nothing: in them " +
				"correlation is not enabled, or not yet.",
			read: func(now *snapshot, emit func(float64, ...string)) {
				for _, state := range states {
					emit(float64(now.census.Processes[state]), string(state))
				}
			},
		},
		{
			name: "processes_in_error", labels: []string{"reason"}, kind: prometheus.GaugeValue,
			help: "Processes in the state error now, by reason. Each is tried again, at least every 30 seconds.",
			read: func(now *snapshot, emit func(float64, ...string)) {
				for r := process.ReasonNone + 1; r < process.NumReasons; r++ {
					emit(float64(now.census.InError[r.String()]), r.String())
				}
			},
		},
		{
			name: "processes_not_sampled", labels: []string{"reason"}, kind: prometheus.GaugeValue,
			help: "Processes in the state registered now of which the correlator takes no samples, by reason; none when it " +
				"takes none at all.",
			read: func(now *snapshot, emit func(float64, ...string)) {
				for _, reason := range agent.NotSampledReasons() {
					emit(float64(now.notSampled[reason]), reason)
				}
			},
		},
		gauge("samples_waiting",
			"Samples that wait to be sent now.",
			func(now *snapshot) float64 { return float64(now.census.Waiting) }),
		gauge("live_events_up",
			"Whether the kernel tells of new processes at once. If not, sweeps find them, at most 5 seconds apart.",
			func(now *snapshot) float64 { return indicator(now.census.LiveEvents) }),
		{
			name: "sweep_seconds_total", kind: prometheus.CounterValue,
			help: "Time that the sweeps of /proc took.",
			read: func(now *snapshot, emit func(float64, ...string)) { emit(now.sweeps.Seconds()) },
		},
		gauge("stacks_held",
			"Stacks whose frames are kept now.",
			func(now *snapshot) float64 { return float64(now.stacks.Stacks) }),
		gauge("stacks_held_bytes",
			"Memory that the kept stacks and the names of their files take.",
			func(now *snapshot) float64 { return float64(now.stacks.Bytes) }),
	}...)
}

// configured is what alerts and dashboards compare with.
func configured() []reading {
	return []reading{
		{
			name: "build_info", labels: []string{"version", "revision", "goversion", "goarch"}, kind: prometheus.GaugeValue,
			help: "The constant 1, with what the correlator was built from, by which Go and for what.",
			read: func(now *snapshot, emit func(float64, ...string)) {
				emit(1, now.build.Version, now.build.Revision, runtime.Version(), runtime.GOARCH)
			},
		},
		gauge("config_samples_per_second",
			"Samples that are taken of every CPU per second (--samples-per-second); 0: none are.",
			func(now *snapshot) float64 { return float64(now.config.SamplesPerSecond) }),
		gauge("config_samples_delay_seconds",
			"How soon after a sample its message is promised to the APM agents (--samples-delay).",
			func(now *snapshot) float64 { return now.config.SamplesDelay.Seconds() }),
		gauge("config_max_processes",
			"How many processes are served at most (--max-processes).",
			func(now *snapshot) float64 { return float64(now.config.MaxProcesses) }),
	}
}

func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func describeLatency() *prometheus.Desc {
	return describe("sample_to_socket_seconds",
		"Age of the samples sent when the kernel took their message. It is never told too small: samples that waited together "+
			"are as old as the oldest.")
}

func latency(desc *prometheus.Desc, timing messaging.Timing) prometheus.Metric {
	buckets := make(map[float64]uint64)
	for bound, samples := range timing.Buckets() {
		if bound != math.MaxInt64 { // Sent stands for it
			buckets[bound.Seconds()] = samples
		}
	}
	return prometheus.MustNewConstHistogram(desc, timing.Sent, timing.Sum().Seconds(), buckets)
}
