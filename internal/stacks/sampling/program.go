package sampling

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker/access"
	"correlator/procscan"
	"correlator/profile"
)

// A program is what one process runs, from one exec to the next, while it is sampled.
type program struct {
	sampling *Sampling
	identity bpf.ExecID
	rules    bpf.TargetRules
	keys     []string // of attributes, by their index in records of OpenTelemetry's; fixed by keyed
	keyed    bool     // rules have been of records
	sink     Sink
	inbox    *inbox
	memory   executableMemory
	space    *profile.AddressSpace
	number   bpf.Target
	blank    uint64      // version of space while no mapping of a file is known
	used     atomic.Bool // samples were handed over since the last probe of the process
	stale    uint64      // stale samples when the identity was last checked
	unwound  unwound
	served   atomic.Pointer[[2]served] // the last times that unwound.on was true, the latest first; nil: never
	synced   atomic.Uint64             // how often the engine may have learnt anew what the process maps
	waiting  []pendingSample           // of the drain that Run is at
	unseen   atomic.Bool               // its stacks are to be unwound from its first samples on, and there were none
	idle     idleWaits
	pieces   pieces
	flushing bool        // it is in Sampling.flushing
	ofOBI    atomic.Bool // samples had a context of OBI
	traced   atomic.Bool // samples had another one
}

// start has the threads of a program sampled that work on a trace, and its samples handed to sink.
// The rules must have been resolved after the program was identified; then they are never applied to
// another program of the process.
func (s *Sampling) start(identity bpf.ExecID, rules bpf.TargetRules, keys []string, memory executableMemory,
	sink Sink, inbox *inbox) (*program, error) {
	p := &program{
		sampling: s,
		identity: identity,
		sink:     sink,
		inbox:    inbox,
		memory:   memory,
		pieces:   pieces{count: &s.pieces},
		space:    profile.NewAddressSpace(s.files, s.processPace()),
		stale:    s.counters.Kernel[bpf.Stale].Load(),
	}
	p.blank = p.space.Version()
	p.unwound.target = unwind.Target{
		ID: memory.handle.Identity(), KernelPID: identity.KernelPID(), Program: identity, User: memory.access.Owner(),
	}
	p.unseen.Store(s.lazy && !hasContexts(&rules))
	if err := s.setTarget(p, rules, keys); err != nil {
		return nil, err
	}
	s.unwinding.add(p)
	return p, nil
}

// hasContexts reports whether rules are of what a tracer publishes. Labels may be of none.
func hasContexts(rules *bpf.TargetRules) bool { return rules.Elastic.Kind != 0 || rules.OTel.Kind != 0 }

// setTarget has a program sampled by rules, the first or others, with keys of records' attributes. Those
// that there were with the first rules of records stay: samples that are not drained yet have their numbers.
func (s *Sampling) setTarget(p *program, rules bpf.TargetRules, keys []string) error {
	if hasContexts(&rules) && !s.traced.Swap(true) {
		s.switchWaits() // else what its threads do until the next drain would be lost
	}
	s.mu.Lock() // the first samples may be drained before SetTarget has returned
	defer s.mu.Unlock()
	if p.keyed {
		keys, rules.Keys, rules.KnownKeys = p.keys, p.rules.Keys, p.rules.KnownKeys
	}
	rules.Unseen = s.lazy
	number, err := s.sampler.SetTarget(p.identity, rules)
	if err != nil {
		return err // one that was set before goes on
	}
	p.number, p.rules = number, rules
	if !p.keyed {
		p.keys, p.keyed = keys, rules.OTel.Kind != 0
	}
	s.programs[p.number] = p
	return nil
}

// stop ends the sampling of a program. What was counted before still comes, with the next two
// drains.
func (p *program) stop() error {
	s := p.sampling
	err := s.sampler.RemoveTarget(p.number) // before a drain that comes to know of it begins
	s.unwinding.remove(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, p)
	return err
}

// forget forgets the programs of one process. When it returns, their sinks are not called by Run
// any more. It does not stop their sampling.
func (s *Sampling) forget(inbox *inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inbox.forgotten = true
}

// isKnown reports whether samples of a program are still handed on. s.mu must be held.
func (s *Sampling) isKnown(p *program) bool { return s.programs[p.number] == p && !p.inbox.forgotten }

// isCurrent reports whether the process still runs the program. It is called again and again, so
// the kernel is asked only when there were samples, of whichever process, that no program fits; or
// when none are taken at all. It is for one goroutine at a time.
func (p *program) isCurrent() bool {
	stale := p.sampling.counters.Kernel[bpf.Stale].Load()
	if stale == p.stale && p.sampling.samples {
		return true
	}
	now, err := p.sampling.sampler.Identify(p.identity.PID)
	if errors.Is(err, bpf.ErrGone) {
		return true // its end is noticed otherwise
	}
	if err != nil {
		p.sampling.recordError("identifying a program", err)
		return true
	}
	p.stale = stale
	return now == p.identity
}

// probeDue reports whether samples came since the last probe, and that is long ago.
func (p *program) probeDue(now time.Time) bool { return p.used.Load() && p.space.Stale(now) }

// probe reads the process's executable memory. It blocks as long as the process makes the kernel
// wait, and is for one goroutine at a time. It reports whether it was the program that it read.
// After an exec, it was another one: then nothing is named any more before the next probe.
func (p *program) probe(now time.Time) bool {
	p.used.Store(false)
	before := p.space.Version()
	if err := p.space.Update(now, p.memory); err != nil {
		p.sampling.counters.ProbesFailed.Add(1) // what was known before stays
	}
	if before != p.blank && p.space.Version() != before {
		p.sampling.unwinding.changed(p)
	}
	identity, err := p.sampling.sampler.Identify(p.identity.PID)
	if err == nil && identity == p.identity {
		return true
	}
	p.space.Invalidate()
	return false
}

// resolve names the stack of a sample that waited, after a probe of the process's executable memory if that
// may explain more of it. It blocks like probe. named has what nameUnwound has returned for the sample.
// OutcomeCorrelated: the sample has its stack, and may be handed on; unless later is set, since the engine could
// not be asked yet.
func (s *Sampling) resolve(pending *pendingSample, named namedWords) (_ process.SampleOutcome, later bool) {
	p, now := pending.program, time.Now()
	if p.space.Lacking(now) || p.space.Version() == p.blank && p.space.Stale(now) {
		if !p.probe(now) {
			return process.OutcomeUnknownProcess, false
		}
	}
	var stack *profile.Stack
	if pending.key.Unwound() {
		var err error
		stack, err = s.resolveUnwound(pending, now, named)
		if errors.Is(err, errLater) {
			return process.OutcomeCorrelated, true
		} else if err != nil && !isExpected(err) {
			s.recordError("naming an unwound stack", err)
		}
	} else {
		var frames []profile.Frame
		stack, _ = s.stacks.resolve(pending, now, true, &frames)
	}
	if stack == nil && pending.key.Unwound() {
		stack = s.cutStack(pending)
	}
	if stack == nil {
		return process.OutcomeNoStack, false
	}
	pending.sample.Stack = stack
	return process.OutcomeCorrelated, false
}

// resolveKnown resolves a stack that was unwound if all that it takes is known; else it returns nil.
func (s *Sampling) resolveKnown(pending *pendingSample, now time.Time, scratch *scratch) *profile.Stack {
	p := pending.program
	raw, whole := nameable(pending, now)
	if !whole || s.unwinding == nil || p.space.Version() == p.blank || p.space.Lacking(now) {
		return nil
	}
	name := s.stacks.rawStack(pending) // before: the frames are of this version or a later one
	named, err := s.join(scratch.named[:0], p, pending.key.Target, raw.Words, namedWords{}, now)
	scratch.named = named
	if err != nil {
		return nil
	}
	frames := s.stacks.kernel.AppendFrames(scratch.frames[:0], raw.Kernel)
	frames = s.unwinding.appendFrames(frames, p, named, raw.Error)
	scratch.frames = frames
	if len(frames) == 0 || p.space.Lacking(now) || p.space.Version() != name.space {
		return nil
	}
	s.unwinding.count(named, raw.Error != 0)
	return s.stacks.put(name, frames, isLasting(raw, named))
}

// resolveUnwound resolves a stack that was unwound, and perhaps named, after a probe if that may explain more
// of it.
func (s *Sampling) resolveUnwound(pending *pendingSample, now time.Time, words namedWords) (*profile.Stack, error) {
	p := pending.program
	raw, whole := nameable(pending, now)
	if stack := s.stacks.known(pending, now); stack != nil && whole { // several waited
		return stack, nil
	}
	named, err := s.join(nil, p, pending.key.Target, raw.Words, words, now)
	if err != nil {
		return nil, err
	}
	name := s.stacks.rawStack(pending) // before: the frames are of this version or a later one
	kernel := s.stacks.kernel.AppendFrames(nil, raw.Kernel)
	frames := s.unwinding.appendFrames(kernel, p, named, raw.Error)
	if p.space.Lacking(now) && p.probe(now) {
		name = s.stacks.rawStack(pending)
		frames = s.unwinding.appendFrames(kernel, p, named, raw.Error)
	}
	if len(frames) == 0 {
		return nil, nil
	}
	s.unwinding.count(named, raw.Error != 0)
	if !whole { // it was named too late, and may be named whole the next time
		pending.unnamed = true
		return s.stacks.store.Put(profile.TraceID(frames), frames), nil
	}
	return s.stacks.put(name, frames, isLasting(raw, named)), nil
}

// isLasting reports whether a stack's words have these frames as long as the program runs. A function of PHP that was
// not found may be the next time.
func isLasting(raw *bpf.Stack, named []namedFrame) bool {
	return unwind.Lasting(raw.Words) && !slices.ContainsFunc(named, func(f namedFrame) bool {
		return f.Kind == unwind.PHPFrame && f.Function == ""
	})
}

// cutStack returns the stack of a sample that cannot be named any more, or has no time left to wait for that:
// what is known without the engine.
func (s *Sampling) cutStack(pending *pendingSample) *profile.Stack {
	pending.unnamed = true
	frames := append(s.stacks.kernel.AppendFrames(nil, pending.raw.Kernel), profile.NewCutFrame())
	return s.stacks.store.Put(profile.TraceID(frames), frames)
}

// isExpected reports whether a stack could not be named because of what the engine counts and shows
// itself: its process has ended, or is left out.
func isExpected(err error) bool {
	return errors.Is(err, unwind.ErrQuarantined) || errors.Is(err, unwind.ErrNotSynchronized) ||
		errors.Is(err, unwind.ErrGone) || errors.Is(err, unwind.ErrClosed)
}

// executableMemory is the executable memory of a process, for package profile.
type executableMemory struct {
	handle *procscan.Handle
	access *access.Process
}

func (e executableMemory) ExecutableMappings() ([]procscan.Mapping, error) {
	return e.handle.ExecutableMemory()
}

func (e executableMemory) Files(mappings []procscan.Mapping) []profile.FileResult {
	return e.access.Files(mappings)
}
