package lifecycle

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"correlator/internal/attach/process"
	"correlator/internal/worker"
)

// Status is what is known of a process.
type Status struct {
	View       process.View
	AttachedAt time.Time
	LastError  *ProcessError // also when it has passed; replaced, never changed
}

// ProcessError is what went wrong with a process.
type ProcessError struct {
	Reason  string    `json:"reason"`  // a process.Reason's name, as in logs and counters
	Message string    `json:"message"` // at most maxMessage characters, and a mark where it was cut
	At      time.Time `json:"at"`      // when it was seen last
	Count   uint64    `json:"count"`   // of errors of whichever reason
}

// Status returns what is known of the process. It may be called by any goroutine.
func (p *Process) Status() Status {
	p.mu.Lock()
	status := p.status
	p.mu.Unlock()
	status.View.State, status.View.Reason = p.State()
	return status
}

// State returns the state of the process, and the reason of an error, as in Status. It may be
// called by any goroutine.
func (p *Process) State() (state process.State, reason string) {
	if p.IsStuck() {
		return process.StateError, process.ReasonTimeout.String()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.View.State, p.status.View.Reason
}

// Contexts returns by which standards the process publishes, as in Status. It may be called by any
// goroutine; the slice must not be changed.
func (p *Process) Contexts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.View.Contexts
}

// setState stores how the last probe ended.
func (p *Process) setState(err error) process.State {
	state, reason := process.StateRegistered, ""
	switch {
	case err == nil && !p.target.HasStorage():
		state = process.StateAttached
	case errors.Is(err, errTooOften):
		state = process.StateReady
	case err != nil:
		state, reason = process.StateOf(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.View.State, p.status.View.Reason = state, reason
	p.status.AttachedAt = p.attachedAt
	p.target.Describe(&p.status.View)
	return state
}

// maxMessage bounds what is kept of an error, which may quote a path of 4095 bytes more than once.
const maxMessage = 1024

const troubleMessage = "process cannot be served; trying again"

// RecordError counts why a process cannot be served, and logs it the first time; what may pass in a
// moment, only when it does not. That we end ourselves is no error. It is for the process's
// goroutine.
func (p *Process) RecordError(err error) {
	if errors.Is(err, worker.ErrClosed) {
		return
	}
	reason := process.ReasonOf(err)
	if reason == process.ReasonStorageUnreadable && p.retry == 0 { // the loader may be about to map it
		p.countError(reason, err.Error())
		return
	}
	if p.CountError(reason, err.Error()) {
		p.log.Warn(troubleMessage, zap.Stringer("reason", reason), zap.Error(err))
	}
}

// CountError counts an error and stores it as the last. It reports whether it is the first with its
// reason, and is for the process's goroutine.
func (p *Process) CountError(reason process.Reason, message string) (first bool) {
	first = !p.logged[reason]
	p.logged[reason] = true
	p.countError(reason, message)
	return first
}

// countError is CountError for any goroutine.
func (p *Process) countError(reason process.Reason, message string) {
	p.manager.counters.Errors[reason].Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	last := ProcessError{Reason: reason.String(), Message: cut(message, maxMessage), At: time.Now(), Count: 1}
	if p.status.LastError != nil {
		last.Count += p.status.LastError.Count
	}
	p.status.LastError = &last
}

// reportFiltered counts a process, and logs it, when the filter first leaves it out: at once by its
// container, and then nothing of the process is opened, or by what it publishes, and then that is
// probed again like that of a process that is served.
func (p *Process) reportFiltered(why error) {
	if p.filtered {
		return
	}
	p.filtered = true
	p.manager.counters.Filtered.Add(1)
	cgroup := p.target.Cgroup()
	p.log.Info("process filtered", reason("processes_filtered"), zap.NamedError("by", why),
		zap.String("service", p.target.Service().Name),
		zap.String("container", cgroup.ContainerID), zap.String("cgroup", cgroup.Path))
}
