package sampling

import (
	"errors"
	"os"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/profile"
)

// drain fetches what was counted since the last call.
func (s *Sampling) drain() {
	s.mu.Lock()
	ended := s.stopping
	s.stopping, s.stopped = s.stopped, nil
	s.mu.Unlock()
	s.counters.Drains.Add(1)
	now := s.clock.now()
	err := s.sampler.Drain(func(count bpf.Count) { s.handleCount(&count, now) })
	s.recordError("draining counts", err)
	if err == nil { // else the next drain hands over what this one has left
		s.counted = now.Instant
		s.drained.Store(int64(now.Sub(s.opened)))
	}
	s.drainWalks(now) // which say what accounts have too much
	s.endPieces(now.Time)
	s.drainAccounts(now)
	for _, program := range s.waiting {
		s.enqueue(program, program.waiting, now.Time)
		program.waiting = nil
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
	s.flush()
	s.switchWaits() // which takes a while
	if len(ended) == 0 {
		return
	}
	s.mu.RLock()
	for _, program := range ended { // what a CPU was counting when they were stopped is drained
		if s.isKnown(program) {
			s.handPieces(program, time.Time{})
		}
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, program := range ended {
		delete(s.programs, program.number)
	}
}

// flush flushes the sinks of programs that got something.
func (s *Sampling) flush() {
	for _, program := range s.flushing {
		program.flushing = false
		program.sink.Flush()
	}
	clear(s.flushing)
	s.flushing = s.flushing[:0]
}

// handleCount hands one count to its sink, or adds it to the pending samples.
func (s *Sampling) handleCount(count *bpf.Count, now instant) {
	program := s.program(count.Stack.Target)
	if program == nil {
		s.counters.Outcomes.Add(process.OutcomeUnknownProcess, uint64(count.Samples))
		return
	}
	p := pendingSample{program: program, sample: program.newSample(count, now), key: count.Stack}
	p.sample.Start, p.sample.End = now.interval(s.counted, count.Last)
	if s.deliverKnown(&p, now) {
		return
	}
	var err error
	if p.raw, err = s.sampler.Stack(p.key); err != nil {
		s.recordError("fetching a stack", err)
		s.counters.Outcomes.Add(process.OutcomeNoStack, p.Samples())
		return
	}
	s.deliverOrWait(&p, now)
}

// deliverKnown delivers a sample of the drain whose stack was resolved before. It reports whether that is so.
func (s *Sampling) deliverKnown(p *pendingSample, now instant) bool {
	stack := s.stacks.known(p, now.Time)
	if stack == nil {
		return false
	}
	p.sample.Stack = stack
	s.deliver(p.program, &p.sample, now.Time)
	s.flushLater(p.program)
	return true
}

// deliverOrWait delivers a sample of the drain, or has it wait for its process after the drain.
func (s *Sampling) deliverOrWait(p *pendingSample, now instant) {
	if s.deliverResolved(p, now.Time, &s.scratch) {
		s.flushLater(p.program)
		return
	}
	if len(p.program.waiting) == 0 {
		s.waiting = append(s.waiting, p.program)
	}
	p.program.waiting = append(p.program.waiting, *p)
}

// flushLater has the sink of a program flushed at the end of the drain.
func (s *Sampling) flushLater(program *program) {
	if !program.flushing {
		program.flushing = true
		s.flushing = append(s.flushing, program)
	}
}

// readDeferred hands on the samples that found no place in the kernel's tables, or whose context
// could not be read there, until the ring buffer was flushed.
func (s *Sampling) readDeferred(reader *bpf.DeferredReader) {
	var scratch scratch
	for {
		d, err := reader.Read()
		if errors.Is(err, bpf.ErrFlushed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if errors.Is(err, bpf.ErrMalformed) {
			s.recordError("decoding a deferred sample", err)
			s.counters.Outcomes.Add(process.OutcomeUnreadable, 1)
			continue
		}
		if err != nil {
			s.recordError("reading the ring buffer", err)
			return
		}
		program := s.program(d.Count.Stack.Target)
		if program == nil {
			s.counters.Outcomes.Add(process.OutcomeUnknownProcess, 1)
			continue
		}
		now := s.clock.now()
		p := pendingSample{
			program: program, sample: program.newSample(&d.Count, now), key: d.Count.Stack, raw: d.Frames,
			needsContext: d.Outcome == bpf.Unreadable, tid: d.TID, threadPointer: d.ThreadPointer,
		}
		p.sample.Start, p.sample.End = p.sample.At, p.sample.At
		if p.needsContext || !s.deliverResolved(&p, now.Time, &scratch) {
			s.enqueue(program, []pendingSample{p}, now.Time)
		}
		program.sink.Flush()
	}
}

// newSample is a count without its interval and stack.
func (p *program) newSample(count *bpf.Count, now instant) profile.Sample {
	if p.unseen.Load() && p.unseen.Swap(false) {
		p.sampling.unwinding.want(p)
	}
	sample := profile.Sample{
		TraceID: count.TraceID, TransactionID: count.TransactionID, SpanID: count.SpanID, TID: count.TID,
		Thread: count.Thread, Count: uint64(count.Samples), At: now.at(count.First), Last: now.at(count.Last),
		Unwound: count.Stack.Unwound(),
	}
	sample.Served = sample.Unwound || p.wasServed(count.First)
	if count.OfOBI && !p.ofOBI.Load() {
		p.ofOBI.Store(true)
		p.inbox.notify()
	}
	if sample.HasTrace() && !count.OfOBI && !p.traced.Load() && !p.traced.Swap(true) {
		p.sampling.traced.Store(true)
		p.sampling.recordError("a program with contexts", p.sampling.sampler.SawTrace(count.Stack.Target))
	}
	if count.OTel {
		sample.Context = profile.OTelContext
		keys := bpf.LabelAttributes
		if !count.OfLabels && len(count.Attributes) > 0 { // else p.keys may be about to change
			keys = p.keys
		}
		sample.Attributes, sample.TransactionID = decodeAttributes(count.Attributes, keys)
		if !sample.HasTrace() { // labels of goroutines may lack the trace alone
			sample.TransactionID = [8]byte{}
		}
	}
	return sample
}

func (s *Sampling) program(number bpf.Target) *program {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.programs[number]; p != nil && !p.inbox.forgotten {
		return p
	}
	return nil
}

// deliverResolved delivers a sample if its stack can be named by what is known of the process, or
// is known to be empty. It reports false when the process must be probed first.
func (s *Sampling) deliverResolved(p *pendingSample, now time.Time, scratch *scratch) bool {
	var stack *profile.Stack
	var final bool
	if p.key.Unwound() {
		stack = s.resolveKnown(p, now, scratch)
		final = stack != nil
	} else {
		stack, final = s.stacks.resolve(p, now, false, &scratch.frames)
	}
	switch {
	case stack != nil:
		p.sample.Stack = stack
		s.deliver(p.program, &p.sample, now)
	case final:
		s.outcomes(&p.sample).Add(process.OutcomeNoStack, p.Samples())
	}
	return final
}

// enqueue has samples wait for the goroutine of their process, unless the program was forgotten
// meanwhile.
func (s *Sampling) enqueue(program *program, pending []pendingSample, now time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.isKnown(program) {
		for i := range pending {
			s.outcomes(&pending[i].sample).Add(process.OutcomeUnknownProcess, pending[i].Samples())
		}
		return
	}
	n, late := program.inbox.add(pending, now)
	for i := range late {
		s.finish(&late[i], process.OutcomeStale)
	}
	for i := range pending[n:] {
		p := &pending[n+i]
		s.outcomes(&p.sample).Add(process.OutcomeBacklog, p.Samples())
		p.refuse(process.OutcomeBacklog)
	}
}

// deliver hands a sample to the sink of a program, unless that was forgotten meanwhile.
func (s *Sampling) deliver(program *program, sample *profile.Sample, now time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.isKnown(program) {
		s.outcomes(sample).Add(process.OutcomeUnknownProcess, sample.Count)
		return
	}
	s.outcomes(sample).Add(delivered(sample), sample.Count)
	s.handOver(program, sample, now)
}

// delivered returns the outcome of a sample that is handed to its sink.
func delivered(sample *profile.Sample) process.SampleOutcome {
	switch {
	case !sample.HasTrace():
		return process.OutcomeUntraced
	case sample.Context == profile.OTelContext:
		return process.OutcomeOTel
	}
	return process.OutcomeCorrelated
}

// finish ends a sample that has waited: it is handed on when it is correlated, with its stack, else refused; or was
// abandoned. It is for the goroutine of the process, which knows that the program was not forgotten; refusing
// is for any.
func (s *Sampling) finish(p *pendingSample, outcome process.SampleOutcome) {
	hasStack := outcome == process.OutcomeCorrelated
	if hasStack {
		outcome = delivered(&p.sample)
	}
	switch {
	case !p.program.inbox.heldOf(p).End(s.outcomes(&p.sample), outcome, p.Samples()):
	case hasStack:
		if p.unnamed && p.sample.Wait == nil {
			s.counters.Unnamed.Add(p.Samples())
		}
		s.handOver(p.program, &p.sample, time.Now())
	default:
		p.refuse(outcome)
	}
}

// refuse tells the sink that samples of its program end; waits are none.
func (p *pendingSample) refuse(outcome process.SampleOutcome) {
	if p.sample.Wait == nil {
		p.program.sink.Refused(outcome, p.Samples())
	}
}

// outcomes are those of what a sample is: a wait, or not.
func (s *Sampling) outcomes(sample *profile.Sample) *process.SampleOutcomes {
	if sample.Wait != nil {
		return &s.counters.Waits
	}
	return &s.counters.Outcomes
}

// handOver hands a sample that was counted to its sink.
func (s *Sampling) handOver(program *program, sample *profile.Sample, now time.Time) {
	if sample.Wait != nil && !s.byThread && profile.InPool(sample.Stack.Frames) {
		s.counters.WaitsIdleLate.Add(uint64(program.idle.add(sample)))
		s.counters.WaitsIdle.Add(sample.Count)
		return
	}
	if sample.Wait == nil {
		s.handOn(program, sample, now)
		return
	}
	for _, over := range program.pieces.next(*sample) {
		s.handOn(program, &over, now)
	}
}

// handOn is handOver of what is over.
func (s *Sampling) handOn(program *program, sample *profile.Sample, now time.Time) {
	if sample.Stack != nil && sample.Stack.Cut {
		cut := &s.counters.Cut
		if sample.Wait != nil {
			cut = &s.counters.WaitsCut
		}
		cut.Add(sample.Count)
	}
	sample.Space = program.space
	program.used.Store(true)
	if sample.Wait != nil {
		program.sink.Waited(*sample)
	} else {
		program.sink.Sampled(*sample)
	}
	program.inbox.active.Store(true)
	if program.space.Stale(now) {
		program.inbox.notify()
	}
}
