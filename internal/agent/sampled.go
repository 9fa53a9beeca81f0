package agent

import (
	"errors"
	"slices"
	"sync"
	"time"

	"correlator/internal/sampling"
	"correlator/internal/target"
	"correlator/messaging"
	"correlator/tlsdesc"
)

// This file is a process as the receiver of the samples that are taken of it.

// Sampled queues samples of which all is known. They may tell that it is time to look at the process.
func (p *process) Sampled(key messaging.Key, samples uint64, at time.Time) {
	p.sender.Add(key, samples, at)
	p.watched.sampled.Store(true)
	if program := p.sampled.Load(); program != nil && program.LookDue() {
		p.stir()
	}
}

// Hold passes samples on to the goroutine that may look at the process, as long as not too many wait.
// It gives up those that became late meanwhile: the goroutine cannot while the process makes it hang,
// and many processes that do so would make us keep gigabytes.
func (p *process) Hold(held []sampling.Held) int {
	n, late := p.held.add(held, time.Now().Add(-p.agent.config.SamplesDelay))
	for i := range late {
		p.agent.sampling.Refuse(&late[i], target.OutcomeStale)
	}
	return n
}

// heldQueue holds samples on their way to the goroutine of a process.
type heldQueue struct {
	ready chan struct{} // has a token when there are some

	mu      sync.Mutex
	samples []sampling.Held
}

func newHeldQueue() heldQueue { return heldQueue{ready: make(chan struct{}, 1)} }

// add takes as many as there is room for, and answers how many. It takes out those that were taken
// before a time, when they are most of all: then what waits is never copied more than once.
func (q *heldQueue) add(held []sampling.Held, before time.Time) (n int, late []sampling.Held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := 0 // they come about in the order of their age
	for first < len(q.samples) && q.samples[first].At().Before(before) {
		first++
	}
	if first > len(q.samples)/2 {
		late, q.samples = q.samples[:first], slices.Clone(q.samples[first:])
	}
	n = min(len(held), maxHeld-len(q.samples))
	q.samples = append(q.samples, held[:n]...)
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return n, late
}

func (q *heldQueue) take() (held []sampling.Held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	held, q.samples = q.samples, nil
	return held
}

// report reads what is still to be known of samples, and hands them in again. Those that became late
// meanwhile it does not: looking at the process can take long.
func (p *process) report(held []sampling.Held) {
	p.busySince.Store(time.Now().UnixNano())
	defer p.busySince.Store(0)
	outcomes := make([]target.Outcome, len(held)) // OutcomeCorrelated is 0
	for i := range held {                         // first what does not stay as it is
		if _, _, needed := held[i].NeedsContext(); needed {
			outcomes[i] = p.readDeferred(&held[i])
		}
	}
	for i := range held {
		h, outcome := &held[i], outcomes[i]
		if outcome == target.OutcomeCorrelated && time.Since(h.At()) > p.agent.config.SamplesDelay {
			outcome = target.OutcomeStale
		}
		if outcome == target.OutcomeCorrelated {
			p.agent.sampling.Report(h)
		} else {
			p.agent.sampling.Refuse(h, outcome)
		}
	}
}

// readDeferred reads the context of a sample that the kernel could not read.
func (p *process) readDeferred(h *sampling.Held) target.Outcome {
	tid, threadPointer, _ := h.NeedsContext()
	if isStale(h.At()) {
		return target.OutcomeStale
	}
	if h.Program() != p.program || !p.target.Publishes() {
		return target.OutcomeNotRegistered
	}
	if _, err := p.target.Rule(); err != nil {
		return target.OutcomeNoRule
	}
	context, err := p.contexts.ReadPagedOut(p.target, threadPointer)
	if err != nil {
		return target.OutcomeUnreadable
	}
	if p.target.Still() != nil {
		return target.OutcomeNotRegistered
	}
	outcome := p.judge(&context, tid, h.At())
	if outcome == target.OutcomeCorrelated {
		h.SetContext(context.Slot.TraceID, context.Slot.TransactionID)
	}
	return outcome
}

// refuseSamples gives the samples that still wait for a process that is gone their outcome. None
// come any more: the process is off the registry and forgotten as a receiver.
func (p *process) refuseSamples() {
	for {
		select {
		case waiting := <-p.samples:
			p.agent.refuse(waiting, target.OutcomeUnknownProcess)
		default:
			held := p.held.take()
			for i := range held {
				p.agent.sampling.Refuse(&held[i], target.OutcomeUnknownProcess)
			}
			return
		}
	}
}

// runs says whether the process still runs the program that is sampled, as far as its samples tell.
// Another program has another agent, which must be told of us, also when all else looks the same.
func (p *process) runs() bool { return p.program == nil || p.program.Runs() }

// follow has the process sampled as what it is now, unless it is already: the program that it runs, by
// the rule that holds for it. It answers why that is not possible (yet); a rule that is not resolved yet
// is tlsdesc.ErrUnresolved.
func (p *process) follow() error {
	s := p.agent.sampling
	if s == nil {
		return p.target.Resolve()
	}
	if p.program != nil {
		return nil
	}
	if _, err := p.target.Rule(); errors.Is(err, tlsdesc.ErrUnsupported) || errors.Is(err, tlsdesc.ErrMalformed) {
		return err // for good, with this library
	}
	identity, identityErr := s.Identify(p.id.PID)
	p.target.ForgetRule() // the rule must be of that program
	if err := p.target.Resolve(); err != nil {
		return err
	}
	if identityErr != nil {
		return target.WithReason(target.ReasonSampling, identityErr)
	}
	rule, _ := p.target.Rule()
	program, err := s.Start(identity, rule, p.target.Handle(), p)
	if err != nil {
		return target.WithReason(target.ReasonSampling, err)
	}
	p.program = program
	p.sampled.Store(program)
	return nil
}

// unfollow ends the sampling of the process.
func (p *process) unfollow() {
	if p.program == nil {
		return
	}
	if err := p.program.Stop(); err != nil {
		p.trouble(target.WithReason(target.ReasonSampling, err))
	}
	p.program = nil
	p.sampled.Store(nil)
}
