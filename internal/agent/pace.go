package agent

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"correlator/internal/process"
	"correlator/messaging"
	"correlator/tlsdesc"
)

// This file is when a process is looked at, and what is told of it when that goes wrong.

const (
	// recheckInterval is how often a process is looked at that is not on the lookout, and the most often
	// that it is made sure of that its libraries are mapped still.
	recheckInterval = time.Second

	// trustInterval is how often that is made sure of, of a process that is registered, while live events
	// and the lookout would tell.
	trustInterval = 5 * time.Minute

	// A process in trouble is tried again at intervals that double between these.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second

	// A process is connected to at most connectBurst times at once, and once a second in the
	// long run: restarts of its agent are served at once, and one that publishes something new
	// all the time costs no more than that.
	connectBurst    = 5
	connectInterval = time.Second
)

// settle takes down how the last step ended, and answers when to take the next if nothing happens before;
// 0 is when somebody says so: the lookout, a live event, the next sweep.
//
// A process that has all but used up how often it is connected to in a row is looked at no more often
// than it could be connected to in the long run, whatever it does in between.
func (p *servedProcess) settle(err error) time.Duration {
	state := p.show(err)
	if state == process.StateFiltered {
		p.tellFiltered(err)
	}
	retry := time.Duration(0)
	if state == process.StateError {
		p.trouble(err)
		p.retry = min(max(2*p.retry, retryMin), retryMax)
		retry = p.retry
	} else {
		p.retry = 0
	}
	p.connects.refill(time.Now())
	switch {
	case err != nil && p.connects.spent >= connectBurst-1 && retry < connectInterval:
		p.agent.counters.TooOften.Add(1)
		retry = connectInterval
	case errors.Is(err, process.ErrNotTarget), errors.Is(err, process.ErrContainerFiltered):
		retry = retryMax
	case p.looked && p.watch():
		if p.unsampled() {
			return recheckInterval
		}
		return retry
	case retry == 0:
		retry = recheckInterval
	}
	p.agent.lookout.unwatch(p.watched)
	return retry
}

// show puts how the last step ended where others see it.
func (p *servedProcess) show(err error) process.State {
	state, reason := process.StateRegistered, ""
	switch {
	case errors.Is(err, errTooOften):
		state = process.StateReady
	case err != nil:
		state, reason = process.StateOf(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown.view.State, p.shown.view.Reason = state, reason
	p.shown.registered = p.registered
	p.target.Describe(&p.shown.view)
	return state
}

// watch puts the process on the lookout for what it publishes, or for whether it does. One whose loader
// has still to bind the variable is a candidate as well.
func (p *servedProcess) watch() bool {
	candidate := p.born
	_, err := p.target.Rule()
	if p.target.Filtered() || p.target.Publishes() && (!errors.Is(err, tlsdesc.ErrUnresolved) || p.socket != nil && !p.binds.take(time.Now())) {
		candidate = time.Time{}
	}
	return p.agent.lookout.watch(p.watched, p.target.Words().Hold, candidate)
}

// retryTimer is the timer of a process in trouble: the others need none.
type retryTimer struct {
	timer *time.Timer
	due   <-chan time.Time // nil while nothing is due
}

// set has it due after a while, or never when that is 0.
func (t *retryTimer) set(after time.Duration) {
	t.stop()
	if after == 0 {
		t.due = nil
		return
	}
	if t.timer == nil {
		t.timer = time.NewTimer(after)
	} else {
		t.timer.Reset(after)
	}
	t.due = t.timer.C
}

func (t *retryTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

const troubleMessage = "process cannot be served; trying again"

// trouble counts why a process cannot be served, and logs it the first time; what may pass in a moment, only
// when it does not.
func (p *servedProcess) trouble(err error) {
	reason := process.ReasonOf(err)
	if reason == process.ReasonStorageUnreadable && p.retry == 0 { // the loader may be about to map it
		p.takeDown(reason, err.Error())
		return
	}
	if p.took(reason, err.Error()) {
		p.log.Warn(troubleMessage, zap.Stringer("reason", reason), zap.Error(err))
	}
}

// took counts a trouble, and takes it down as the last error. It answers whether it is the first of its
// kind.
func (p *servedProcess) took(reason process.Reason, message string) (first bool) {
	first = !p.logged[reason]
	p.logged[reason] = true
	p.takeDown(reason, message)
	return first
}

// takeDown counts a trouble and has others see it. It may be called by any goroutine.
func (p *servedProcess) takeDown(reason process.Reason, message string) {
	p.agent.counters.Troubles[reason].Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	last := ProcessError{Reason: reason.String(), Message: message, At: time.Now(), Count: 1}
	if p.shown.lastError != nil {
		last.Count += p.shown.lastError.Count
	}
	p.shown.lastError = &last
}

// checkRoom counts when a process let samples become late by leaving no room for them, and logs it the
// first time.
func (p *servedProcess) checkRoom() {
	stats := p.sender.Stats()
	late := stats.Dropped[messaging.ReasonLate] - stats.Lost
	if late == p.late {
		return
	}
	p.late = late
	const message = "process does not read its socket fast enough: its samples become late"
	if p.took(process.ReasonSocketFull, message) {
		p.log.Warn(message, zap.Stringer("reason", process.ReasonSocketFull), zap.Uint64("samples", late))
	}
}

// tokenBucket limits how often something is done: connectBurst times at once, and once per
// connectInterval in the long run.
type tokenBucket struct {
	spent int       // tokens that are out
	since time.Time // when the last of them came back
}

func (b *tokenBucket) refill(now time.Time) {
	if back := int(now.Sub(b.since) / connectInterval); back > 0 {
		b.spent = max(b.spent-back, 0)
		b.since = b.since.Add(time.Duration(back) * connectInterval)
	}
	if b.spent == 0 {
		b.since = now
	}
}

func (b *tokenBucket) take(now time.Time) bool {
	if b.refill(now); b.spent == connectBurst {
		return false
	}
	b.spent++
	return true
}
