package agent

import (
	"slices"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/worker/access"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// fedSample is a record without context on its way to the goroutine of its process.
type fedSample struct {
	tid          int
	stackTraceID [16]byte
	count        uint64
	sampledAt    time.Time
}

// route takes the records of one datagram: those with context go to their sender, the others to the
// goroutine of their process, which reads the context. It never blocks.
func (a *Agent) route(records []feed.Record) {
	now := bpf.ReadInstant()
	a.registrations.View(func(find func(pid int) *registration) {
		for len(records) > 0 {
			pid := records[0].PID
			n := 1 // records of one process usually come together
			for n < len(records) && records[n].PID == pid {
				n++
			}
			a.routeProcess(find(int(pid)), records[:n], now)
			records = records[n:]
		}
	})
}

func (a *Agent) routeProcess(r *registration, records []feed.Record, now bpf.Instant) {
	if r != nil {
		r.process.MarkActive()
	}
	var waiting []fedSample
	for i := range records {
		record := &records[i]
		count := uint64(record.Count)
		a.counters.FeedSamples.Add(count)
		sampledAt := record.SampledAt(now.Time, now.MonotonicNs)
		switch {
		case r == nil:
			a.counters.Fed.Add(process.OutcomeUnknownProcess, count)
		case record.HasContext && !r.connected.Load():
			r.refuse(process.OutcomeNotRegistered, count)
		case record.HasContext && record.TraceID == [16]byte{}: // what W3C calls invalid
			r.refuse(process.OutcomeNoTrace, count)
		case record.HasContext:
			a.counters.Fed.Add(process.OutcomeCorrelated, count)
			r.sender.Add(messaging.Key{
				TraceID: record.TraceID, TransactionID: record.TransactionID, StackTraceID: record.StackTraceID,
			}, count, sampledAt)
		case a.threads == nil:
			r.refuse(process.OutcomeUnsupported, count)
		case process.TooLate(sampledAt):
			r.refuse(process.OutcomeStale, count)
		default:
			waiting = append(waiting, fedSample{
				tid: int(record.TID), stackTraceID: record.StackTraceID, count: count, sampledAt: sampledAt,
			})
		}
	}
	if len(waiting) > 0 {
		r.wait(waiting)
	}
}

// maxFedWaiting is how many fed samples of a process may wait for its goroutine: three datagrams
// full. They wait only while it does something else, and soon are of no use: process.TooLate.
const maxFedWaiting = 4096

// wait has samples wait for the goroutine of the process, which reads the contexts of all that wait
// together.
func (r *registration) wait(samples []fedSample) {
	r.fed.Lock()
	first := len(r.fed.waiting) == 0
	n := min(len(samples), maxFedWaiting-len(r.fed.waiting))
	r.fed.waiting = append(r.fed.waiting, samples[:n]...)
	for i := range samples[:n] {
		r.fed.held.Add(samples[i].count)
	}
	r.fed.Unlock()
	if first && !r.process.Post(r.attribute) {
		r.endAll(r.takeFed(), process.OutcomeBacklog)
	}
	for i := range samples[n:] {
		r.refuse(process.OutcomeBacklog, samples[n+i].count)
	}
}

func (r *registration) takeFed() []fedSample {
	r.fed.Lock()
	defer r.fed.Unlock()
	waiting := r.fed.waiting
	r.fed.waiting = nil
	return waiting
}

func (r *registration) refuse(outcome process.SampleOutcome, samples uint64) {
	r.agent.counters.Fed.Add(outcome, samples)
	r.refused.Add(outcome, samples)
}

// end ends samples that have waited, of one record, with an outcome; one with a trace is queued. Those that were
// abandoned have ended before.
func (r *registration) end(s *fedSample, c *process.Context, outcome process.SampleOutcome) {
	switch {
	case !r.fed.held.End(&r.agent.counters.Fed, outcome, s.count):
	case outcome == process.OutcomeCorrelated:
		r.sender.Add(messaging.Key{
			TraceID:       c.Slot.TraceID,
			TransactionID: c.Slot.TransactionID,
			StackTraceID:  s.stackTraceID,
		}, s.count, s.sampledAt)
	default:
		r.refused.Add(outcome, s.count)
	}
}

// endAll ends samples that have waited, and of which nobody knows the context.
func (r *registration) endAll(samples []fedSample, outcome process.SampleOutcome) {
	for i := range samples {
		r.end(&samples[i], nil, outcome)
	}
}

// attribute reads what the threads of the samples that wait work on, and queues what has a trace.
func (r *registration) attribute() {
	samples := r.takeFed()
	if r.closed {
		r.endAll(samples, process.OutcomeUnknownProcess)
		return
	}
	samples = slices.DeleteFunc(samples, func(s fedSample) bool {
		stale := process.TooLate(s.sampledAt)
		if stale {
			r.end(&s, nil, process.OutcomeStale)
		}
		return stale
	})
	if len(samples) == 0 {
		return
	}
	contexts, outcome, err := r.readContexts(samples)
	if err != nil && !process.IsGone(err) {
		r.process.RecordError(err)
	}
	if contexts == nil {
		r.endAll(samples, outcome)
		return
	}
	for i := range samples {
		s, c := &samples[i], &contexts[i]
		keep := process.Keep{Unsampled: r.agent.config.Unsampled}
		r.end(s, c, r.process.Target().Judge(c, s.tid, s.sampledAt, keep))
	}
}

// readContexts returns what the thread of each sample works on, or what becomes of all of them when
// that cannot be known. The contexts are valid until the next call.
func (r *registration) readContexts(samples []fedSample) ([]process.Context, process.SampleOutcome, error) {
	target := r.process.Target()
	if !target.HasStorage() || target.Filtered() {
		return nil, process.OutcomeNotRegistered, nil
	}
	if target.ResolveElastic() != nil {
		return nil, process.OutcomeNoRule, nil
	}
	if _, err := r.contexts.FindThreads(r.agent.threads, r.pid); err != nil {
		return nil, process.OutcomeUnreadable, err
	}
	contexts, err := r.contexts.ReadThreads(target, len(samples), func(i int) int { return samples[i].tid })
	if err != nil {
		return nil, process.OutcomeUnreadable, process.WithReason(process.ReasonStorageUnreadable, err)
	}
	// Only now it is certain that what was read is what this process, by this library, says.
	if err := target.CheckPublishing(); access.TellsNothing(err) {
		return nil, process.OutcomeUnreadable, nil
	} else if err != nil {
		return nil, process.OutcomeNotRegistered, nil
	}
	return contexts, process.OutcomeCorrelated, nil
}
