package unwind

import (
	"fmt"
	"time"

	"correlator/internal/worker"
)

const (
	// A process that a worker was killed for is left out for quarantineTime, 16 times as long each
	// time after that, at most maxQuarantineTime.
	quarantineTime    = 30 * time.Second
	maxQuarantineTime = 2 * time.Hour
	maxQuarantined    = 1024

	// maxQuarantinedOfUser is how many programs of a user are left out before all of the user's are: each new
	// one costs all processes the worker, and with it their tables.
	maxQuarantinedOfUser = 8
)

// quarantine is a program that is left out.
type quarantine struct {
	pid    int
	user   worker.User
	reason string
	until  time.Time
	length time.Duration
}

// quarantine leaves a target out for a while.
func (e *Engine) quarantine(t *Target, reason string) {
	e.counters.Quarantined.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	length := max(quarantineTime, min(16*e.quarantined[t.Program].length, maxQuarantineTime))
	if len(e.quarantined) >= maxQuarantined {
		var first any
		for program, q := range e.quarantined {
			if first == nil || q.until.Before(e.quarantined[first].until) {
				first = program
			}
		}
		delete(e.quarantined, first)
	}
	e.quarantined[t.Program] = quarantine{pid: t.ID.PID, user: t.User, reason: reason, until: now.Add(length),
		length: length}
}

// leftOut returns an error when a target is in quarantine, or is new and too many of its user's programs are.
func (e *Engine) leftOut(t *Target) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if q, ok := e.quarantined[t.Program]; ok && now.Before(q.until) {
		return fmt.Errorf("%w until %s: %s", ErrQuarantined, q.until.Format(time.TimeOnly), q.reason)
	}
	if k := e.known[t.KernelPID]; k.ready && k.Program == t.Program {
		return nil // what is there is used
	}
	ofUser := 0
	for _, q := range e.quarantined {
		if q.user == t.User && now.Before(q.until) {
			ofUser++
		}
	}
	if ofUser >= maxQuarantinedOfUser {
		return fmt.Errorf("%w, as all of its user: %d of them are", ErrQuarantined, ofUser)
	}
	return nil
}
