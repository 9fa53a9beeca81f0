package agent

import (
	"slices"
	"time"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// sample is a record without context on its way to the goroutine of its process.
type sample struct {
	tid          int
	stackTraceID [16]byte
	count        uint64
	sampledAt    time.Time
}

// route takes the records of one datagram: those with context go to their sender, the others to
// the goroutine of their process, which reads the context. It never blocks.
func (a *Agent) route(records []feed.Record) {
	now, nowNs := time.Now(), bpf.Now()
	a.mu.RLock()
	defer a.mu.RUnlock()
	for len(records) > 0 {
		pid := records[0].PID
		n := 1 // records of one process usually come together
		for n < len(records) && records[n].PID == pid {
			n++
		}
		a.routeProcess(a.processes[int(pid)], records[:n], now, nowNs)
		records = records[n:]
	}
}

func (a *Agent) routeProcess(p *servedProcess, records []feed.Record, now time.Time, nowNs uint64) {
	var waiting []sample
	for i := range records {
		r := &records[i]
		count := uint64(r.Count)
		a.counters.FedSamples.Add(count)
		if p != nil {
			p.watched.sampled.Store(true)
		}
		sampledAt := r.SampledAt(now, nowNs)
		switch {
		case p == nil:
			a.counters.Fed.Add(process.OutcomeUnknownProcess, count)
		case r.HasContext && !p.connected.Load():
			p.refuse(process.OutcomeNotRegistered, count)
		case r.HasContext && r.TraceID == [16]byte{}: // what W3C calls invalid
			p.refuse(process.OutcomeNoTrace, count)
		case r.HasContext:
			a.counters.Fed.Add(process.OutcomeCorrelated, count)
			p.sender.Add(messaging.Key{TraceID: r.TraceID, TransactionID: r.TransactionID, StackTraceID: r.StackTraceID}, count, sampledAt)
		case a.threads == nil:
			p.refuse(process.OutcomeUnsupported, count)
		case process.TooLate(sampledAt):
			p.refuse(process.OutcomeStale, count)
		default:
			waiting = append(waiting, sample{tid: int(r.TID), stackTraceID: r.StackTraceID, count: count, sampledAt: sampledAt})
		}
	}
	if len(waiting) == 0 {
		return
	}
	select {
	case p.samples <- waiting:
	default:
		p.refuseAll(waiting, process.OutcomeBacklog)
	}
}

// refuse ends samples that were fed with an outcome.
func (p *servedProcess) refuse(outcome process.SampleOutcome, samples uint64) {
	p.agent.counters.Fed.Add(outcome, samples)
	p.refused.Add(outcome, samples)
}

func (p *servedProcess) refuseAll(samples []sample, outcome process.SampleOutcome) {
	for i := range samples {
		p.refuse(outcome, samples[i].count)
	}
}

// attribute reads what the threads of the samples work on, and queues what has a trace.
func (p *servedProcess) attribute(samples []sample) {
	p.busySince.Store(p.agent.uptime())
	defer p.busySince.Store(0)
	samples = slices.DeleteFunc(samples, func(s sample) bool {
		stale := process.TooLate(s.sampledAt)
		if stale {
			p.refuse(process.OutcomeStale, s.count)
		}
		return stale
	})
	if len(samples) == 0 {
		return
	}
	contexts, outcome, err := p.readContexts(samples)
	if err != nil && !process.IsGone(err) {
		p.trouble(err)
	}
	if contexts == nil {
		p.refuseAll(samples, outcome)
		return
	}
	for i := range samples {
		s, c := &samples[i], &contexts[i]
		outcome := p.target.Judge(c, s.tid, s.sampledAt, process.Keep{Unsampled: p.agent.config.Unsampled})
		if outcome != process.OutcomeCorrelated {
			p.refuse(outcome, s.count)
			continue
		}
		p.agent.counters.Fed.Add(outcome, s.count)
		p.sender.Add(messaging.Key{
			TraceID:       c.Slot.TraceID,
			TransactionID: c.Slot.TransactionID,
			StackTraceID:  s.stackTraceID,
		}, s.count, s.sampledAt)
	}
}

// readContexts answers what the thread of each sample works on, or what becomes of all of them
// when that cannot be known. The answer is valid until the next call.
func (p *servedProcess) readContexts(samples []sample) ([]process.Context, process.SampleOutcome, error) {
	if !p.target.Publishes() {
		return nil, process.OutcomeNotRegistered, nil
	}
	if p.target.Resolve() != nil {
		return nil, process.OutcomeNoRule, nil
	}
	if _, err := p.contexts.FindThreads(p.agent.threads, p.id.PID); err != nil {
		return nil, process.OutcomeUnreadable, err
	}
	contexts, err := p.contexts.ReadThreads(p.target, len(samples), func(i int) int { return samples[i].tid })
	if err != nil {
		return nil, process.OutcomeUnreadable, process.WithReason(process.ReasonStorageUnreadable, err)
	}
	// Only now it is certain that what was read is what this process, by this library, says.
	if p.target.Still() != nil {
		return nil, process.OutcomeNotRegistered, nil
	}
	return contexts, process.OutcomeCorrelated, nil
}
