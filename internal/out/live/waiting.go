package live

import (
	"time"

	"go.uber.org/zap"

	"correlator/internal/out/agent"
	"correlator/profile"
)

// This file is what is known of threads that do not run: what they work on is read from their
// processes, by a few processes at a time.

// reading is what was read of what a thread works on.
type reading struct {
	readAt time.Time // zero: nothing was
	// waits: it said then that it works on its transaction. It does so until it is read again, however
	// long that takes.
	waits bool
}

// readWork has the tracker know what was found that threads work on, if that is wanted.
func (p *publisher) readWork(w want, now time.Time) {
	if w&wantThreads == 0 {
		p.joinedThreads, p.workRead = time.Time{}, nil
		return
	}
	if p.joinedThreads.IsZero() {
		p.joinedThreads = now
	}
	if passed := now.Sub(p.worked); passed >= 0 && passed < interval/2 {
		return
	}
	p.worked = now
	work, readAt, err := p.source.Work()
	if err != nil && !p.workFailed {
		p.workFailed = true
		p.log.Warn("threads that wait are not shown", zap.Error(err))
	}
	p.workRead = readAt
	p.tracker.Waiting(work)
}

// sampled takes account of what a sample says the thread works on. One that comes late, when that is
// known better, says at most that it has run.
func (th *thread) sampled(sample *profile.Sample, at time.Time) {
	tx := transactionID{sample.TraceID, sample.TransactionID}
	isNews := !at.Before(th.readAt)
	if at.Before(th.lastRun) || !isNews && th.transaction != tx {
		return
	}
	if th.transaction != tx {
		th.transaction, th.since, th.waits = tx, at, false
		if tx == (transactionID{}) {
			th.since = time.Time{}
		}
	} else if at.Before(th.since) && sample.HasTrace() {
		th.since = at
	}
	if th.lastRun = at; isNews {
		th.span, th.context = sample.SpanID, sample.Context
	}
}

// Waiting takes account of what the threads of processes were found to work on. Those that work on
// nothing are forgotten, unless they were seen working later.
func (t *Tracker) Waiting(processes []agent.ProcessWork) {
	if want(t.wanted.Load())&wantThreads == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if want(t.wanted.Load())&wantThreads == 0 || len(processes) == 0 {
		return
	}
	read := make(map[int]*agent.ProcessWork, len(processes)) // the last one of each
	for i := range processes {
		p := &processes[i]
		read[p.Process.PID] = p
	}
	for pid, p := range read {
		for i := range p.Threads {
			t.addWaiting(threadID{pid, p.Threads[i].TID}, p, &p.Threads[i])
		}
	}
	for id, th := range t.threads {
		if p := read[id.pid]; p != nil && th.readAt.Before(p.ReadAt) {
			t.idle(id, th, p)
		}
	}
}

// addWaiting takes account of what a thread of a process was found to work on.
func (t *Tracker) addWaiting(id threadID, p *agent.ProcessWork, work *agent.ThreadWork) {
	th, readAt := t.threads[id], p.ReadAt
	switch {
	case !work.Known && th == nil:
		return
	case !work.Known:
		th.readAt = readAt // nothing new
		return
	case th == nil:
		th = &thread{owner: p.Owner}
		if !th.count(t.ofWaiting) {
			t.unshown++
			return
		}
		t.threads[id] = th
	}
	if readAt.Before(th.lastRun) {
		th.readAt = readAt // it has run since, as is known better
		return
	}
	th.readAt, th.waits = readAt, true
	if work.Name != "" {
		th.name = work.Name
	}
	if tx := (transactionID{work.TraceID, work.TransactionID}); th.transaction != tx {
		th.transaction, th.since, th.lastRun = tx, readAt, time.Time{}
	}
	th.span, th.context = work.SpanID, work.Context
}

// idle takes account of a thread that was not among those of its process that work on something.
func (t *Tracker) idle(id threadID, th *thread, p *agent.ProcessWork) {
	th.readAt = p.ReadAt
	switch {
	case p.ReadAt.Before(th.lastRun), p.Partial: // it has begun something since, or was not looked at
		th.waits = false
	case t.untraced: // it may run
		th.waits, th.transaction, th.span, th.since = false, transactionID{}, [8]byte{}, time.Time{}
	default:
		t.forgetThread(id, th)
	}
}
