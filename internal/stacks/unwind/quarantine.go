package unwind

import (
	"fmt"
	"time"
)

const (
	// A process that a worker was killed for is left out for quarantineTime, 16 times as long each
	// time after that, at most maxQuarantineTime.
	quarantineTime    = 30 * time.Second
	maxQuarantineTime = 2 * time.Hour
	maxQuarantined    = 1024
)

// quarantine is a program that is left out.
type quarantine struct {
	pid    int
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
	e.quarantined[t.Program] = quarantine{pid: t.ID.PID, reason: reason, until: now.Add(length), length: length}
}

// leftOut returns an error when a target is in quarantine.
func (e *Engine) leftOut(t *Target) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, ok := e.quarantined[t.Program]
	if !ok || time.Now().After(q.until) {
		return nil
	}
	return fmt.Errorf("%w until %s: %s", ErrQuarantined, q.until.Format(time.TimeOnly), q.reason)
}
