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

// End removes samples that were added: the caller says what has become of them. It reports false after
// Abandon, whose caller has said so.
func (h *Held) End(samples uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.abandoned {
		return false
	}
	h.samples -= samples
	return true
}

// Abandon removes all that is held, and returns how many samples that is. Nothing must be added afterwards.
func (h *Held) Abandon() (samples uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	samples, h.samples, h.abandoned = h.samples, 0, true
	return samples
}
