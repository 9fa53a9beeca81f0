package process

import "sync"

// Held is how many samples the goroutine of a process has, or is to get, that have not ended as anything yet.
// It may be used by any goroutine.
type Held struct {
	mu        sync.Mutex
	samples   uint64
	abandoned bool
}

// Add adds samples.
func (h *Held) Add(samples uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples += samples
}

// End counts what has become of samples that were added. It reports false after Abandon, which has counted them.
func (h *Held) End(outcomes *SampleOutcomes, outcome SampleOutcome, samples uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.abandoned {
		return false
	}
	h.samples -= samples
	outcomes.Add(outcome, samples)
	return true
}

// Abandon counts all that is held as abandoned, and returns how many samples that is. None must be added
// afterwards.
func (h *Held) Abandon(outcomes *SampleOutcomes) (samples uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	samples, h.samples, h.abandoned = h.samples, 0, true
	outcomes.Add(OutcomeAbandoned, samples)
	return samples
}
