package lifecycle

import (
	"fmt"
	"sync/atomic"
	"time"
)

// stuckAfter is how long a loop that iterates at least once a second may take before the Manager
// counts as not healthy. Only a fault of ours, or a machine that has stopped, makes one take a
// tenth of that.
const stuckAfter = 30 * time.Second

// heartbeat is when a loop iterated last.
type heartbeat struct {
	began time.Time // has a monotonic reading
	after atomic.Int64
}

func (h *heartbeat) beat() { h.after.Store(int64(time.Since(h.began))) }

// last is the zero time before the first beat.
func (h *heartbeat) last() time.Time {
	after := h.after.Load()
	if after == 0 {
		return time.Time{}
	}
	return h.began.Add(time.Duration(after))
}

// overdue returns an error when a loop that iterated last at a time has not done so for too long;
// it may not have begun.
func overdue(what string, last time.Time, limit time.Duration) error {
	if since := time.Since(last); !last.IsZero() && since > limit {
		return fmt.Errorf("%s has not gone on for %v", what, since.Round(time.Second))
	}
	return nil
}

// Health returns why the Manager should be started again: a loop of its own has stopped. Processes
// that cannot be served are no reason. It may block when everything else does, which a caller may
// take for an answer. drainInterval is that of Options.Sampling.
func (m *Manager) Health(drainInterval time.Duration) error {
	m.table.Len() // what blocks everything else does not go unnoticed
	if err := overdue("looking for processes", m.discovery.round.last(), stuckAfter); err != nil {
		return err
	}
	if m.options.Sampling == nil {
		return nil
	}
	return overdue("fetching samples", m.options.Sampling.LastDrain(), stuckAfter+drainInterval)
}
