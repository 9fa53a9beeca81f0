package agent

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// stuckAfter is how long a loop that goes round at least once a second may take before the agent counts
// as not healthy. Only a fault of ours, or a machine that has stopped, makes one take a tenth of that.
const stuckAfter = 30 * time.Second

var (
	errStarting = errors.New("the first sweep of all processes has not ended")
	errEnding   = errors.New("the agent ends")
)

// pulse is when a loop went round last.
type pulse struct {
	began time.Time // has a monotonic reading
	after atomic.Int64
}

func newPulse() pulse { return pulse{began: time.Now()} }

func (p *pulse) beat() { p.after.Store(int64(time.Since(p.began))) }

// last is the zero time before the first beat.
func (p *pulse) last() time.Time {
	after := p.after.Load()
	if after == 0 {
		return time.Time{}
	}
	return p.began.Add(time.Duration(after))
}

// uptime is how long the agent has been there, in ns of the monotonic clock: times that are compared are
// kept so, whatever happens to the time of day.
func (a *Agent) uptime() int64 { return int64(time.Since(a.started)) }

// overdue is an error when a loop that went round last at a time has not done so for too long; it may not
// have begun.
func overdue(what string, last time.Time, limit time.Duration) error {
	if since := time.Since(last); !last.IsZero() && since > limit {
		return fmt.Errorf("%s has not gone on for %v", what, since.Round(time.Second))
	}
	return nil
}

// Health is why the agent should be started anew: it has stopped to do what it has to do all the time.
// Processes that cannot be served are no reason; a machine that lacks something is told by New. A
// caller for whom it takes long may take that for an answer.
func (a *Agent) Health() error {
	a.mu.RLock() // what blocks everything else does not go unnoticed
	defer a.mu.RUnlock()
	if err := overdue("looking for processes", a.discovery.round.last(), stuckAfter); err != nil {
		return err
	}
	if a.sampling == nil {
		return nil
	}
	return overdue("fetching samples", a.sampling.LastDrain(), stuckAfter+a.config.ReportInterval)
}

// Ready is why the agent does not serve all processes that it could, yet or any more: it has not seen all
// that were there when it started, or ends.
func (a *Agent) Ready() error {
	if a.ending.Load() {
		return errEnding
	}
	if a.counters.Sweeps.Load() == 0 {
		return errStarting
	}
	return a.Health()
}
