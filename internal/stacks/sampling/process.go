package sampling

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/worker/access"
	"correlator/tlsdesc"
)

// A ProcessSampler keeps one process sampled as the program that it runs, by the rule that holds
// for that. It belongs to the goroutine that the target belongs to, and blocks like the target.
type ProcessSampler struct {
	sampling *Sampling // nil: only the rule is wanted
	target   *process.Target
	sink     func(bpf.ExecID) Sink
	inbox    *inbox
	program  atomic.Pointer[program]
}

// NewProcessSampler returns a ProcessSampler that samples nothing yet. sink returns the sink of a
// program that is about to be sampled; active is set when samples were taken. Samples that have
// waited longer than maxAge are refused; 0 is no limit. Without a Sampling, Start only resolves the
// rule.
func NewProcessSampler(s *Sampling, t *process.Target, sink func(bpf.ExecID) Sink, active *atomic.Bool,
	maxAge time.Duration) *ProcessSampler {
	return &ProcessSampler{sampling: s, target: t, sink: sink, inbox: newInbox(active, maxAge)}
}

// IsRunning reports whether a program is sampled now. It may be called by any goroutine.
func (p *ProcessSampler) IsRunning() bool { return p.program.Load() != nil }

// Pending returns how many samples wait for Serve. It may be called by any goroutine.
func (p *ProcessSampler) Pending() int { return p.inbox.len() }

// Start has the process sampled as what it is now, by the rules that are known; called again, by those
// that have become known since, too. The error says why that is not possible (yet), or why one of two
// rules cannot be made; a rule that is not resolved yet is tlsdesc.ErrUnresolved. A process whose
// samples would be of no use is not sampled, which is no error.
func (p *ProcessSampler) Start() error {
	s := p.sampling
	if s == nil {
		return p.target.ResolveElastic() // for samples that are fed
	}
	if program := p.program.Load(); program != nil {
		return p.refine(program)
	}
	if err := p.target.Unsupported(); err != nil && !p.target.NeedsNothing() {
		return err
	}
	if s.elasticOnly && !p.target.HasStorage() {
		return unlessPending(p.target.Resolve()) // for who looks at it
	}
	handle := p.target.Handle()
	identity, identityErr := s.sampler.Identify(handle.Identity().PID)
	p.target.ForgetRules() // the rules must be of that program
	err := p.resolve()
	rules := p.rules()
	traced := isTraced(&rules)
	switch {
	case process.IsGone(err), !traced && !((s.keep.Untraced || s.obi.Load()) &&
		(p.target.HasContext() || p.target.NeedsNothing())):
		return err
	case identityErr != nil:
		return process.WithReason(process.ReasonSampling, identityErr)
	}
	memory := executableMemory{handle, p.target.Access()}
	program, startErr := s.start(identity, rules, p.recordKeys(), memory, p.sink(identity), p.inbox)
	if startErr != nil {
		return process.WithReason(process.ReasonSampling, startErr)
	}
	p.program.Store(program)
	return unlessPending(err)
}

// unlessPending returns the error that keeps a process that is sampled by one rule from being sampled by
// another, too, unless that may pass.
func unlessPending(err error) error {
	if errors.Is(err, tlsdesc.ErrUnresolved) {
		return nil
	}
	return err
}

// isTraced reports whether rules lead to contexts.
func isTraced(rules *bpf.TargetRules) bool {
	return hasContexts(rules) || rules.Labels != bpf.GoLayout{}
}

// resolve finds out the rules that are of use.
func (p *ProcessSampler) resolve() error {
	if p.sampling.elasticOnly {
		return p.target.ResolveElastic()
	}
	err := p.target.Resolve()
	return cmp.Or(err, p.sampling.resolveLabels(p.target))
}

// rules returns the rules that are known, and of use.
func (p *ProcessSampler) rules() bpf.TargetRules {
	rules := p.target.Rules(p.sampling.attributes)
	if p.sampling.elasticOnly {
		return bpf.TargetRules{Elastic: rules.Elastic, Owner: rules.Owner}
	}
	return rules
}

// recordKeys returns the key map of the process's context.
func (p *ProcessSampler) recordKeys() []string {
	if context := p.target.Context(); context != nil {
		return context.Keys
	}
	return nil
}

// refine has a program sampled by a rule that was not known before, too.
func (p *ProcessSampler) refine(program *program) error {
	if !p.target.IsPending() && p.target.SearchPause() == 0 {
		return unlessPending(p.resolve()) // what is known
	}
	identity, err := p.sampling.sampler.Identify(program.identity.PID)
	if err != nil || identity != program.identity { // IsCurrent notices
		return nil
	}
	err = p.resolve()
	rules := p.rules()
	if rules.Elastic == program.rules.Elastic && rules.OTel == program.rules.OTel &&
		rules.Labels == program.rules.Labels {
		return unlessPending(err)
	}
	if err := p.sampling.setTarget(program, rules, p.recordKeys()); err != nil {
		return process.WithReason(process.ReasonSampling, err)
	}
	return unlessPending(err)
}

// Stop ends the sampling of the process. What was counted before still comes.
func (p *ProcessSampler) Stop() error {
	program := p.program.Swap(nil)
	if program == nil {
		return nil
	}
	return process.WithReason(process.ReasonSampling, program.stop())
}

// Close ends the sampling. When it returns, the sinks are not called any more, and what waited was
// refused.
func (p *ProcessSampler) Close() error {
	if p.sampling == nil {
		return nil
	}
	err := p.Stop()
	p.sampling.forget(p.inbox)
	p.sampling.endPiecesOf(p.inbox)
	for _, sample := range p.inbox.take() {
		p.sampling.finish(&sample, process.OutcomeUnknownProcess)
	}
	return err
}

// Abandon ends all samples that wait, or that the goroutine of the process is at, and returns how many those are:
// whoever calls it waits no longer for that, and what becomes of them there has no effect. Samples must not
// come any more. It may be called by any goroutine.
func (p *ProcessSampler) Abandon() (samples uint64) {
	if p.sampling == nil {
		return 0
	}
	p.inbox.waits.Abandon(&p.sampling.counters.Waits)
	return p.inbox.held.Abandon(&p.sampling.counters.Outcomes)
}

// RunsSampled reports whether the process still runs the program that is sampled, as the kernel says now; false if
// none is, or that is not known.
func (p *ProcessSampler) RunsSampled() bool {
	program := p.program.Load()
	if program == nil {
		return false
	}
	now, err := p.sampling.sampler.Identify(program.identity.PID)
	return err == nil && now == program.identity
}

// IsCurrent reports whether the process still runs the program that is sampled, so far as its
// samples show.
func (p *ProcessSampler) IsCurrent() bool {
	program := p.program.Load()
	return program == nil || program.isCurrent()
}

// Ready has a token when there is work for Serve.
func (p *ProcessSampler) Ready() <-chan struct{} { return p.inbox.ready }

// Serve hands on the samples that wait. It reports whether the process should be probed: samples came, and
// the last Probe is long ago.
func (p *ProcessSampler) Serve() (probe bool) {
	if pending := p.inbox.take(); len(pending) > 0 {
		p.report(pending)
	}
	program := p.program.Load()
	if program == nil {
		return false
	}
	p.target.SetOBI(program.ofOBI.Load())
	return program.probeDue(time.Now())
}

// Probe reads the process's executable memory again if the last time is long ago and samples came
// since.
func (p *ProcessSampler) Probe() {
	now := time.Now()
	program := p.program.Load()
	if program == nil {
		return
	}
	if program.probeDue(now) {
		program.probe(now)
	}
}

// Invalidate has the process's executable memory read again when its next samples come: it is known
// to have changed. It may be called by any goroutine.
func (p *ProcessSampler) Invalidate() {
	if program := p.program.Load(); program != nil {
		program.space.Invalidate()
		p.sampling.unwinding.changed(program)
	}
}

// Outdate has it read again likewise: it may have changed. It may be called by any goroutine.
func (p *ProcessSampler) Outdate() {
	if program := p.program.Load(); program != nil {
		program.space.Invalidate()
	}
}

const (
	// maxNaming is how long a sample waits for the name of its stack when samples are of use at any
	// age: after a worker was killed, programs are synchronized again in some seconds.
	maxNaming = 10 * time.Second

	// namingTime is how long the goroutine of a process waits for the names of stacks before it does
	// what else is to be done.
	namingTime = 250 * time.Millisecond

	// minNamingTime is how long it waits in any case.
	minNamingTime = 20 * time.Millisecond
)

// report reads what is still unknown of samples that waited, and hands them on, unless they have
// become too old: reading can take long. Those whose stacks cannot be named yet wait again, or are handed
// on with what is known of them when there is no time left.
func (p *ProcessSampler) report(pending []pendingSample) {
	outcomes := make([]process.SampleOutcome, len(pending)) // OutcomeCorrelated is 0
	for i := range pending {                                // first what does not stay as it is
		if pending[i].needsContext {
			outcomes[i] = p.readContext(&pending[i])
		}
	}
	began := time.Now()
	var inTime []*pendingSample
	for i := range pending {
		if outcomes[i] == process.OutcomeCorrelated && !p.inbox.isLate(&pending[i], began) {
			inTime = append(inTime, &pending[i])
		}
	}
	named := p.sampling.nameUnwound(inTime, p.inbox.namingDeadline(inTime, began))
	var again []pendingSample
	for i := range pending {
		outcome, sample := outcomes[i], &pending[i]
		if outcome == process.OutcomeCorrelated && p.inbox.isLate(sample, time.Now()) {
			outcome = process.OutcomeStale
		}
		if outcome == process.OutcomeCorrelated {
			var later bool
			switch outcome, later = p.sampling.resolve(sample, named); {
			case later && (p.sampling.isOver(time.Now()) || p.inbox.isLast(sample, time.Now())):
				sample.sample.Stack = p.sampling.cutStack(sample)
			case later:
				sample.tried = cmp.Or(sample.tried, began)
				again = append(again, *sample)
				continue
			}
		}
		p.sampling.finish(sample, outcome)
	}
	for i := range pending { // mostly of one program
		if i == 0 || pending[i].program != pending[i-1].program {
			pending[i].program.sink.Flush()
		}
	}
	p.inbox.giveBack(again)
}

// readContext reads the context of a sample that the kernel could not read.
func (p *ProcessSampler) readContext(pending *pendingSample) process.SampleOutcome {
	if process.TooLate(pending.sample.At) {
		return process.OutcomeStale
	}
	if pending.program != p.program.Load() || !p.target.HasStorage() || p.target.Filtered() {
		return process.OutcomeNotRegistered
	}
	if _, err := p.target.Rule(); err != nil {
		return process.OutcomeNoRule
	}
	context, err := process.ReadPagedOut(p.target, pending.threadPointer)
	if err != nil {
		return process.OutcomeUnreadable
	}
	if err := p.target.CheckPublishing(); access.TellsNothing(err) {
		return process.OutcomeUnreadable
	} else if err != nil {
		return process.OutcomeNotRegistered
	}
	outcome := p.target.Judge(&context, pending.tid, pending.sample.At, p.sampling.keep)
	if outcome == process.OutcomeCorrelated {
		pending.sample.TraceID, pending.sample.TransactionID = context.Slot.TraceID, context.Slot.TransactionID
		if p.sampling.bySpan {
			pending.sample.SpanID = context.Slot.SpanID
		}
		pending.needsContext = false
	}
	return outcome
}
