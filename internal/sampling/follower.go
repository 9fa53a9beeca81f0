package sampling

import (
	"errors"
	"sync/atomic"
	"time"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/tlsdesc"
)

// A Follower has a process sampled as what it is: the program that it runs, by the rule that holds for
// that. It belongs to the goroutine that the target belongs to, and blocks like the target.
type Follower struct {
	sampling *Sampling // nil: only the rule is wanted
	target   *process.Target
	receiver func(bpf.ExecID) Receiver
	program  atomic.Pointer[Program]
	contexts process.ContextReader
}

// NewFollower returns a Follower that has nothing sampled yet; receiver answers who gets the samples of a
// program. Without a Sampling it never will, and all that it does is to resolve the rule.
func NewFollower(s *Sampling, t *process.Target, receiver func(bpf.ExecID) Receiver) *Follower {
	return &Follower{sampling: s, target: t, receiver: receiver}
}

// Program is what is sampled now, or nil. It may be called by any goroutine.
func (f *Follower) Program() *Program { return f.program.Load() }

// Follow has the process sampled as what it is now, unless it is already. It answers why that is not
// possible (yet); a rule that is not resolved yet is tlsdesc.ErrUnresolved.
func (f *Follower) Follow() error {
	s := f.sampling
	if s == nil {
		return f.target.Resolve()
	}
	if f.Program() != nil {
		return nil
	}
	if _, err := f.target.Rule(); errors.Is(err, tlsdesc.ErrUnsupported) || errors.Is(err, tlsdesc.ErrMalformed) {
		return err // for good, with this library
	}
	handle := f.target.Handle()
	identity, identityErr := s.Identify(handle.Identity().PID)
	f.target.ForgetRule() // the rule must be of that program
	if err := f.target.Resolve(); err != nil {
		return err
	}
	if identityErr != nil {
		return process.WithReason(process.ReasonSampling, identityErr)
	}
	rule, _ := f.target.Rule()
	program, err := s.Start(identity, rule, handle, f.receiver(identity))
	if err != nil {
		return process.WithReason(process.ReasonSampling, err)
	}
	f.program.Store(program)
	return nil
}

// Unfollow ends the sampling of the process. What was counted before still comes.
func (f *Follower) Unfollow() error {
	program := f.program.Swap(nil)
	if program == nil {
		return nil
	}
	return process.WithReason(process.ReasonSampling, program.Stop())
}

// Runs says whether the process still runs the program that is sampled, as far as its samples tell.
func (f *Follower) Runs() bool {
	program := f.Program()
	return program == nil || program.Runs()
}

// Report reads what is still to be known of samples that were held, and hands them on. Those that are
// older than maxAge by then it does not: looking at the process can take long.
func (f *Follower) Report(held []PendingSample, maxAge time.Duration) {
	outcomes := make([]process.SampleOutcome, len(held)) // OutcomeCorrelated is 0
	for i := range held {                                // first what does not stay as it is
		if held[i].needsContext {
			outcomes[i] = f.readContext(&held[i])
		}
	}
	for i := range held {
		h, outcome := &held[i], outcomes[i]
		if outcome == process.OutcomeCorrelated && time.Since(h.sample.At) > maxAge {
			outcome = process.OutcomeStale
		}
		if outcome == process.OutcomeCorrelated {
			f.sampling.report(h)
		} else {
			f.sampling.Refuse(h, outcome)
		}
	}
}

// readContext reads the context of a sample that the kernel could not read.
func (f *Follower) readContext(h *PendingSample) process.SampleOutcome {
	if process.TooLate(h.sample.At) {
		return process.OutcomeStale
	}
	if h.program != f.Program() || !f.target.Publishes() {
		return process.OutcomeNotRegistered
	}
	if _, err := f.target.Rule(); err != nil {
		return process.OutcomeNoRule
	}
	context, err := f.contexts.ReadPagedOut(f.target, h.threadPointer)
	if err != nil {
		return process.OutcomeUnreadable
	}
	if f.target.Still() != nil {
		return process.OutcomeNotRegistered
	}
	outcome := f.target.Judge(&context, h.tid, h.sample.At, f.sampling.keep)
	if outcome == process.OutcomeCorrelated {
		h.sample.TraceID, h.sample.TransactionID = context.Slot.TraceID, context.Slot.TransactionID
		if f.sampling.bySpan {
			h.sample.SpanID = context.Slot.SpanID
		}
		h.needsContext = false
	}
	return outcome
}
