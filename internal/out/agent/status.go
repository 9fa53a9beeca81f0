package agent

import (
	"cmp"
	"slices"
	"time"

	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/host/seconds"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker"
	"correlator/internal/worker/cost"
	"correlator/messaging"
)

// Status is the agent at one moment, as `status` shows it. Its JSON is an interface.
type Status struct {
	At           time.Time `json:"at"`
	StartedAt    time.Time `json:"started_at"`
	HostID       string    `json:"host_id"`
	SamplesDelay Seconds   `json:"samples_delay_seconds"`
	// SamplesPerSecond is of every CPU, 0 when the agent takes none itself.
	SamplesPerSecond int `json:"samples_per_second"`
	// NoSamples: nor are any fed.
	NoSamples bool `json:"no_samples,omitempty"`

	NotReady     string `json:"not_ready,omitempty"` // why Ready fails
	Unhealthy    string `json:"unhealthy,omitempty"` // why Health fails
	LiveEvents   bool   `json:"live_events"`         // new processes are reported by the kernel, not found by sweeps alone
	MappingsFrom string `json:"mappings_from"`       // a procscan.Source's name

	Workers worker.Stats `json:"workers"` // that access processes
	Cost    cost.Cost    `json:"cost"`    // of the agent with all its workers

	// Unwinding is how stacks are unwound, nil when all are walked by frame pointers because of
	// Unwinder, or because no samples are taken.
	Unwinder  sampling.Unwinder         `json:"unwinder"`
	Unwinding *sampling.UnwindingStatus `json:"unwinding,omitempty"`
	// ChainOnly is why stacks that are walked by frame pointers lack callers, empty when they do not.
	ChainOnly string `json:"chain_only,omitempty"`

	// Waits is whether it is accounted what transactions wait for, nil if nobody asked for that.
	Waits *sampling.WaitsStatus `json:"waits,omitempty"`

	Processes    []ProcessStatus   `json:"processes"` // by pid
	Silent       []process.View    `json:"silent"`    // JVMs whose agent has not loaded its library, by pid
	WithoutPlace WithoutPlace      `json:"without_place"`
	Latency      Latency           `json:"sample_to_socket"` // of all samples sent, since the start
	Counters     map[string]uint64 `json:"counters"`         // since the start, also of processes that are gone
}

// Seconds is a duration that JSON shows as a number of seconds.
type Seconds = seconds.Seconds

// Latency is how old samples were when the kernel took their message.
type Latency struct {
	P50 Seconds `json:"p50_seconds"`
	P99 Seconds `json:"p99_seconds"`
	Max Seconds `json:"max_seconds"`
}

func newLatency(t messaging.Timing) Latency {
	return Latency{P50: Seconds(t.Quantile(0.5)), P99: Seconds(t.Quantile(0.99)), Max: Seconds(t.Quantile(1))}
}

// ProcessStatus is one process that takes part, or would but for the filter. Samples are those that
// the kernel took of threads with a trace (or could not find out whether they have one), and those
// that were fed.
//
//	Samples = Sent + Queued + WithoutTrace + Late + the sum of Dropped
//
// Samples in a context of OpenTelemetry's are none of these, but Exported.
type ProcessStatus struct {
	process.View
	RegisteredSince *time.Time `json:"registered_since,omitempty"` // only with StateRegistered or StateAttached

	Samples      uint64 `json:"samples"`
	Sent         uint64 `json:"sent"`
	Queued       uint64 `json:"queued"`
	WithoutTrace uint64 `json:"without_trace"` // read later, there was no trace, or one that is not sampled
	Late         uint64 `json:"late"`          // could not be sent within the samples-delay
	// Exported counts samples in contexts of OpenTelemetry's, or in none, which are not sent to the process.
	Exported uint64 `json:"exported"`
	// Dropped has the other reasons: those of messaging, and the process.Outcomes of samples that
	// were not queued.
	Dropped map[string]uint64 `json:"dropped"`

	LastError *ProcessError `json:"last_error,omitempty"` // also when it has passed
}

// ProcessError is what went wrong with a process.
type ProcessError = lifecycle.ProcessError

// Cost is what the agent and its workers take of the machine.
func (a *Agent) Cost() cost.Cost { return a.meter.Read() }

// Status is what is known now.
func (a *Agent) Status() Status {
	s := Status{
		At:               time.Now(),
		StartedAt:        a.started,
		HostID:           a.config.HostID,
		SamplesDelay:     Seconds(a.config.SamplesDelay),
		SamplesPerSecond: a.config.SamplesPerSecond,
		NoSamples:        a.config.Filter.Nothing,
		LiveEvents:       a.manager.LiveEvents(),
		MappingsFrom:     a.manager.MappingsFrom().String(),
		Workers:          a.access.Stats(),
		Cost:             a.Cost(),
		Unwinder:         a.config.Unwinder,
		Unwinding:        a.Unwinding(),
		Waits:            a.Waits(),
		Processes:        a.processStatuses(),
		Silent:           a.agentNotLoadedViews(),
		WithoutPlace:     a.withoutPlace(),
		Latency:          newLatency(a.counters.Messages.Timing()),
		Counters:         make(map[string]uint64),
	}
	if err := a.Ready(); err != nil {
		s.NotReady = err.Error()
	}
	if err := a.Health(); err != nil {
		s.Unhealthy = err.Error()
	}
	if a.sampling != nil && a.sampling.ChainOnly() != nil {
		s.ChainOnly = a.sampling.ChainOnly().Error()
	}
	a.counters.Each(func(name string, n uint64) { s.Counters[name] = n })
	return s
}

func (a *Agent) processStatuses() []ProcessStatus {
	registrations := a.registrations.All()
	slices.SortFunc(registrations, func(a, b *registration) int { return cmp.Compare(a.pid, b.pid) })
	processes := make([]ProcessStatus, 0, len(registrations))
	for _, r := range registrations {
		if status, ok := r.status(); ok {
			processes = append(processes, status)
		}
	}
	return processes
}

// status returns what is known of the process; ok is false when it takes no part.
func (r *registration) status() (status ProcessStatus, ok bool) {
	known, stats := r.process.Status(), r.sender.Stats()
	status = ProcessStatus{View: known.View, LastError: known.LastError, Dropped: make(map[string]uint64)}
	status.State = stateOf(status.State, &stats)
	if status.State == process.StateRegistered || status.State == process.StateAttached {
		status.RegisteredSince = &known.AttachedAt
	}
	status.count(&stats, &r.refused)
	status.Exported = r.exported.Load()
	return status, status.State != ""
}

// stateOf returns the state of a process whose life is in a state, and its sender has those stats.
func stateOf(state process.State, stats *messaging.Stats) process.State {
	if state == process.StateRegistered && !stats.Registered {
		return process.StateReady // the registration still waits for room in its queue
	}
	return state
}

// count fills in the samples: those that the sender was given, and those that it was not.
func (s *ProcessStatus) count(stats *messaging.Stats, refused *process.SampleOutcomes) {
	s.Samples, s.Sent, s.Queued = stats.Added, stats.Sent, stats.Queued
	for r, samples := range stats.Dropped {
		switch reason := messaging.DropReason(r); {
		case samples == 0:
		case reason == messaging.DropLate, reason == messaging.DropAddedLate:
			s.Late += samples
		default:
			s.Dropped[reason.String()] += samples
		}
	}
	for o := range refused {
		samples := refused[o].Load()
		s.Samples += samples
		switch outcome := process.SampleOutcome(o); {
		case samples == 0:
		case outcome.WithoutTrace():
			s.WithoutTrace += samples
		default:
			s.Dropped[outcome.String()] += samples
		}
	}
}
