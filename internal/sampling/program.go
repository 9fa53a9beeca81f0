package sampling

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/procscan"
	"correlator/profile"
	"correlator/tlsdesc"
)

// Sample is samples of a program of which everything is known.
type Sample struct {
	TraceID       [16]byte
	TransactionID [8]byte // with KeepUntraced, all ids may be 0: without a trace
	SpanID        [8]byte // with BySpan, what the thread's slot said, which may be 0; else 0
	Stack         profile.StackTraceID
	TID           int // with ByThread, whose they are, as our own pid namespace calls it; else 0
	Samples       uint64
	At            time.Time // when the first was taken; all count as taken then

	// Start and End are the interval in which they were counted: from the drain before to the one that
	// fetched them, which all that it fetched share. What is counted while a drain begins can be either's,
	// so At may lie some microseconds outside. A sample that was not counted in the kernel has its own
	// time for all three.
	Start, End time.Time
}

// newSample is a count without its interval and the name of its stack.
func newSample(count *bpf.Count, at time.Time) Sample {
	return Sample{
		TraceID: count.TraceID, TransactionID: count.TransactionID, SpanID: count.SpanID, TID: count.TID,
		Samples: uint64(count.Samples), At: at,
	}
}

// A Receiver takes the samples of a program. Its methods must not block, nor call what starts, stops or
// forgets a program: locks are held meanwhile.
type Receiver interface {
	// Sampled takes samples. The frames of their stack are in the store at that moment: Sampling.Stack
	// answers them.
	Sampled(sample Sample)
	// Hold takes samples for which the process has to be looked at first, the first ones if there is
	// no room for all, and answers how many. Each of them must come back with Follower.Report or Refuse.
	Hold(held []PendingSample) int
	// Refused is told of samples that were held, or to be held, and ended otherwise.
	Refused(outcome process.SampleOutcome, samples uint64)
}

// A Program is what one process runs, from one exec to the next.
type Program struct {
	sampling *Sampling
	identity bpf.ExecID
	receiver Receiver
	process  executable
	space    *profile.AddressSpace
	number   bpf.Target
	blank    uint64      // version of space while no mapping of a file is known
	used     atomic.Bool // samples were handed over since the last look at the process
	seen     uint64      // stale samples when the identity was last made sure of
}

// Identify answers which program a process runs now, or bpf.ErrGone.
func (s *Sampling) Identify(pid int) (bpf.ExecID, error) { return s.sampler.Identify(pid) }

// Start has the threads of a program sampled that work on a trace, and its samples handed to
// receiver. The rule must have been found out after Identify gave the identity; then it is never
// applied to another program of the process.
func (s *Sampling) Start(identity bpf.ExecID, rule tlsdesc.Rule, handle *procscan.Handle, receiver Receiver) (*Program, error) {
	p := &Program{
		sampling: s,
		identity: identity,
		receiver: receiver,
		process:  executable{handle},
		space:    profile.NewAddressSpace(s.files, pace()),
		seen:     s.counters.Kernel[bpf.Stale].Load(),
	}
	p.blank = p.space.Version()
	s.mu.Lock() // the first samples may be drained before SetTarget has returned
	defer s.mu.Unlock()
	var err error
	if p.number, err = s.sampler.SetTarget(identity, rule); err != nil {
		return nil, err
	}
	s.programs[p.number] = p
	return p, nil
}

// Stop ends the sampling of a program. What was counted before still comes, with the next two drains.
func (p *Program) Stop() error {
	s := p.sampling
	err := s.sampler.RemoveTarget(p.number) // before a drain that comes to know of it begins
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, p)
	return err
}

// Forget sees to it that Run does not call some receivers any more, from when it returns. It does not stop
// the sampling of their programs.
func (s *Sampling) Forget(which func(Receiver) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, program := range s.programs {
		if which(program.receiver) {
			delete(s.programs, number)
		}
	}
}

// Runs says whether the process still runs the program. It is asked for again and again, so the kernel
// has to find out only when there were samples, of whichever process, that no program fits; or when
// none are taken at all. It is for one goroutine at a time.
func (p *Program) Runs() bool {
	stale := p.sampling.counters.Kernel[bpf.Stale].Load()
	if stale == p.seen && p.sampling.samples {
		return true
	}
	now, err := p.sampling.sampler.Identify(p.identity.PID)
	if errors.Is(err, bpf.ErrGone) {
		return true // its end is noticed otherwise
	}
	if err != nil {
		p.sampling.check("identifying a program", err)
		return true
	}
	p.seen = stale
	return now == p.identity
}

// LookDue says whether Look would look at the process.
func (p *Program) LookDue() bool { return p.used.Load() && p.space.Stale(time.Now()) }

// Look looks at the process's executable memory again if the last look is long ago and samples came
// since. It blocks as long as the process makes the kernel wait, and is for one goroutine at a time.
func (p *Program) Look() {
	if p.LookDue() {
		p.look(time.Now())
	}
}

// look answers whether it was the program that it looked at. After an exec, it was another one: then
// nothing is named any more before the next look.
func (p *Program) look(now time.Time) bool {
	p.used.Store(false)
	if err := p.space.Update(now, p.process); err != nil {
		p.sampling.counters.LooksFailed.Add(1) // what was known before stays
	}
	identity, err := p.sampling.sampler.Identify(p.identity.PID)
	if err == nil && identity == p.identity {
		return true
	}
	p.space.Invalidate()
	return false
}

// Invalidate has the process's executable memory looked at again when its next samples come. Callers
// know that it has changed.
func (p *Program) Invalidate() { p.space.Invalidate() }

// report hands on what was held, after a look at the process's executable memory if that may tell more
// of the stack. It blocks as long as the process makes the kernel wait, and is for the goroutine that
// calls Look, and Forget at the end.
func (s *Sampling) report(held *PendingSample) {
	p, now := held.program, time.Now()
	if p.space.Lacking(now) || p.space.Version() == p.blank && p.space.Stale(now) {
		if !p.look(now) {
			s.Refuse(held, process.OutcomeUnknownProcess)
			return
		}
	}
	raw := s.rawStack(p, held.key)
	if raw.space == p.blank { // nothing is known that a stack could be named by
		s.Refuse(held, process.OutcomeNoStack)
		return
	}
	frames := s.appendFrames(nil, p, held.stack)
	if len(frames) == 0 {
		s.Refuse(held, process.OutcomeNoStack)
		return
	}
	held.sample.Stack = s.name(raw, frames)
	s.handOver(p, &held.sample)
}

// executable is the executable memory of a process, for package profile.
type executable struct{ handle *procscan.Handle }

func (e executable) ExecutableMappings() ([]procscan.Mapping, error) {
	found, err := e.handle.ExecutableMemory()
	if err != nil && len(found) == 0 {
		return nil, err
	}
	return found, nil // the first ones, if there are too many
}

func (e executable) Open(m procscan.Mapping) (*os.File, error) {
	file, err := e.handle.OpenMapped(m)
	if err != nil {
		return nil, fmt.Errorf("opening mapped file %q: %w", m.Path, err)
	}
	return file, nil
}
