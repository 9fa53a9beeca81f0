package lifecycle

import (
	"sync"
	"time"

	"correlator/procscan"
)

// latestMappings holds what was last found that a process maps, until the process's goroutine takes
// it.
type latestMappings struct {
	mu     sync.Mutex
	newest procscan.Found // no mappings: there is nothing to take
	known  time.Time      // when the probe began that found the newest, taken or not
}

// put stores what a probe found, unless there was one that began later.
func (l *latestMappings) put(found procscan.Found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !found.At.Before(l.known) {
		l.newest, l.known = found, found.At
	}
}

// discardBefore drops what was found by probes that began before: the process was probed otherwise.
func (l *latestMappings) discardBefore(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.Before(at) {
		l.newest, l.known = procscan.Found{}, at
	}
}

// take returns what was found and not taken yet.
func (l *latestMappings) take() (found procscan.Found, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, l.newest = l.newest, procscan.Found{}
	return found, len(found.Libraries)+len(found.Contexts) > 0
}
