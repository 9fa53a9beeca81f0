package agent

import (
	"sync"
	"time"

	"correlator/procscan"
)

// mailbox holds the newest word of what a process maps.
type mailbox struct {
	mu     sync.Mutex
	newest procscan.Found // no libraries: there is none
	known  time.Time      // when the look began whose word was newest, taken or not
}

// put takes the word of a look, unless there was one of a look that began later.
func (m *mailbox) put(found procscan.Found) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !found.At.Before(m.known) {
		m.newest, m.known = found, found.At
	}
}

// seen says that the process was looked at otherwise: older word is of no interest any more.
func (m *mailbox) seen(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known.Before(at) {
		m.newest, m.known = procscan.Found{}, at
	}
}

// take empties it.
func (m *mailbox) take() (found procscan.Found, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, m.newest = m.newest, procscan.Found{}
	return found, len(found.Libraries) > 0
}
