package lifecycle

import (
	"errors"
	"time"

	"golang.org/x/time/rate"

	"correlator/internal/attach/process"
	"correlator/internal/host/share"
	"correlator/tlsdesc"
)

// This file is when a process is probed again.

const (
	// recheckInterval is how often a process is probed that the memory poller does not poll, and
	// the most often that its libraries are checked to be mapped still.
	recheckInterval = time.Second

	// trustInterval is how often that is checked of a process that is attached, while live events
	// and the memory poller would report a change.
	trustInterval = 5 * time.Minute

	// After an error a process is tried again at intervals that double between these.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second

	// A process is attached to at most attachBurst times at once, and once a second in the long
	// run: restarts of its agent are served at once, and one that publishes something new all the
	// time costs no more than that.
	attachBurst    = 5
	attachInterval = time.Second
)

// A process whose probes fail again and again, at once after each change that the memory poller sees, is probed no
// more often than that in the long run.
const (
	failureBurst    = 20
	failureInterval = 200 * time.Millisecond
)

// newFailureLimiter returns what limits how often a failed probe is followed by another at once.
func newFailureLimiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(failureInterval), failureBurst)
}

// newAttachLimiter returns what limits how often something is done with a process.
func newAttachLimiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(attachInterval), attachBurst)
}

// nextRetry stores how the last probe ended, and returns when to probe next if nothing happens
// before; 0 is when requested: by the memory poller, a live event, the next sweep.
//
// A process that has all but used up how often it is attached to in a row is probed no more often
// than it could be attached to in the long run, whatever it does in between.
func (p *Process) nextRetry(err error) time.Duration {
	state := p.setState(err)
	trouble := err
	if state != process.StateError {
		trouble = p.target.Trouble()
	}
	if state == process.StateFiltered {
		p.reportFiltered(err)
	}
	p.manager.admission.exclude(p, state == process.StateFiltered || errors.Is(err, process.ErrNotTarget) ||
		p.isUnused())
	retry := time.Duration(0)
	if state == process.StateError || trouble != nil && err == nil {
		p.RecordError(trouble)
		p.retry = share.Backoff{Min: retryMin, Max: retryMax}.Next(p.retry)
		retry = p.retry
	} else {
		p.retry = 0
	}
	switch {
	case err != nil && p.attaches.Tokens() < 2 && retry < attachInterval:
		p.manager.counters.TooOften.Add(1)
		retry = attachInterval
	case errors.Is(err, process.ErrNotTarget), process.IsFiltered(err) && !errors.Is(err, process.ErrServiceFiltered):
		retry = retryMax
	case err != nil && retry < attachInterval && !p.failures.Allow():
		p.manager.counters.TooOften.Add(1)
		retry = attachInterval
	case p.probed && p.startPolling():
		if p.couldBeSampled() {
			return recheckInterval
		}
		if err == nil && p.attached {
			return shortest(retry, p.target.SearchPause())
		}
		return retry
	case retry == 0:
		retry = recheckInterval
	}
	p.manager.poller.Stop(p.poll)
	return retry
}

// startPolling has the memory poller watch what the process publishes, or whether it does. One
// whose loader has still to bind the variable is polled like a candidate.
func (p *Process) startPolling() bool {
	words := p.target.Words()
	if p.unpolled = words.Empty() && p.target.NeedsNothing(); p.unpolled { // events tell what it maps
		p.manager.poller.Stop(p.poll)
		return true
	}
	candidate := p.born
	if p.target.Filtered() || p.target.Publishes() && (!p.target.IsPending() || p.attached &&
		!p.binds.Allow()) {
		candidate = time.Time{}
	}
	return p.manager.poller.Start(p.poll, words, candidate)
}

// couldBeSampled reports whether the process is attached and is not sampled for a reason that may
// pass.
func (p *Process) couldBeSampled() bool {
	return p.attached && p.manager.options.Sampling != nil && !p.sampler.IsRunning() && p.unsampled != nil &&
		!errors.Is(p.unsampled, tlsdesc.ErrUnresolved) && !errors.Is(p.unsampled, tlsdesc.ErrUnsupported) &&
		!errors.Is(p.unsampled, tlsdesc.ErrMalformed)
}

// shortest returns the shorter of two times until something is due, 0: never.
func shortest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// after is time.After, and never for 0: only a process in trouble has a timer.
func after(pause time.Duration) <-chan time.Time {
	if pause == 0 {
		return nil
	}
	return time.After(pause)
}
