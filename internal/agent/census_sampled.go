package agent

import "correlator/internal/process"

const (
	// notSampledUnresolved, a word of View.TLS: the loader has not bound the thread-local variable, as with an
	// agent that never wrote a slot.
	notSampledUnresolved = "unresolved"

	// notSampledOther: for a reason that another error has covered, or that passes in a moment.
	notSampledOther = "other"
)

// NotSampledReasons are the reasons that NotSampled gives.
func NotSampledReasons() []string {
	return []string{notSampledUnresolved, process.ReasonTLS.String(), process.ReasonSampling.String(), notSampledOther}
}

// NotSampled counts the processes that are registered and of which no samples are taken, although samples are
// taken, by reason: only what is fed with its trace arrives there.
func (a *Agent) NotSampled() map[string]int {
	count := make(map[string]int)
	if a.sampling == nil {
		return count
	}
	for _, p := range a.allProcesses() {
		if p.follower.Program() != nil {
			continue
		}
		stats := p.sender.Stats()
		p.mu.Lock()
		shown := p.shown
		p.mu.Unlock()
		if state, _ := p.state(&shown.view, &stats); state == process.StateRegistered {
			count[shown.notSampled()]++
		}
	}
	return count
}

// notSampled is why a registered process is not sampled. What prevents it is found again at every look, so it
// is the last error.
func (s *shown) notSampled() string {
	if s.lastError != nil && !s.lastError.At.Before(s.registered) {
		switch s.lastError.Reason {
		case process.ReasonTLS.String(), process.ReasonSampling.String():
			return s.lastError.Reason
		}
	}
	if s.view.TLS == notSampledUnresolved {
		return notSampledUnresolved
	}
	return notSampledOther
}
