package agent

import (
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
)

const (
	// notSampledUnresolved, a word of View.TLSText: the loader has not bound the thread-local variable,
	// as with an agent that never wrote a slot, or no file that is mapped has it.
	notSampledUnresolved = "unresolved"

	// notSampledOther: for a reason that another error has covered, or that passes in a moment.
	notSampledOther = "other"
)

// NotSampledReasons returns the reasons that NotSampled counts by.
func NotSampledReasons() []string {
	return []string{notSampledUnresolved, process.ReasonTLS.String(), process.ReasonSampling.String(), notSampledOther}
}

// NotSampled counts the processes whose threads publish what they work on, to which is attached, and of
// which no samples are taken, although samples are taken, by reason.
func (a *Agent) NotSampled() map[string]int {
	count := make(map[string]int)
	if a.sampling == nil {
		return count
	}
	for _, r := range a.registrations.All() {
		if r.process.IsSampled() {
			continue
		}
		known, stats := r.process.Status(), r.sender.Stats()
		state, otel := stateOf(known.View.State, &stats), known.View.OTel
		publishes := otel != nil && otel.TLS != "" && !a.elasticOnly()
		if state == process.StateRegistered || state == process.StateAttached && publishes {
			count[notSampled(&known)]++
		}
	}
	return count
}

// notSampled returns why a registered process is not sampled. What prevents it is found at every
// probe, so it is the last error.
func notSampled(s *lifecycle.Status) string {
	if s.LastError != nil && !s.LastError.At.Before(s.AttachedAt) {
		switch s.LastError.Reason {
		case process.ReasonTLS.String(), process.ReasonSampling.String():
			return s.LastError.Reason
		}
	}
	if s.View.TLSText() == notSampledUnresolved {
		return notSampledUnresolved
	}
	return notSampledOther
}
