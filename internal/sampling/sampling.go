package sampling

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elastic/go-freelru"
	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/profile"
)

const (
	// fileEntries is how many mapped files are remembered: a JVM has 20 to 50, and those of one
	// image are shared. It takes 200 KB, and 500 bytes more for each file in use.
	fileEntries = 2048

	// nameEntries is how many raw stacks keep their name: as many as the kernel keeps stacks. It
	// takes 700 KB.
	nameEntries = 8192

	// refreshInterval is how often CPUs that came or went are looked for.
	refreshInterval = time.Second
)

// pace is how soon a process is looked at again: for an address that is not known, at once after a
// quiet time, and less and less often while that tells nothing new; for its age, every ten seconds.
func pace() profile.Pace {
	return profile.Pace{Shortest: 100 * time.Millisecond, Longest: 10 * time.Second}
}

// Options say what to sample, and how often what was counted is fetched.
type Options struct {
	bpf.SamplerOptions
	Interval time.Duration // between two drains
	ProcRoot string        // where the host's procfs is mounted
}

// Sampling samples the programs that were started, names their stacks and hands the samples to
// their receivers. Methods are safe for concurrent use unless they say otherwise.
type Sampling struct {
	counters *Counters
	log      *zap.Logger
	tick     *tick // when to drain
	samples  bool  // are taken; else there is only the table of targets
	keep     process.Keep
	bySpan   bool
	sampler  *bpf.Sampler
	files    *profile.Files
	kernel   *profile.Kernel // nil: stacks have no kernel frames
	hidden   error           // why there is no kernel, if one was asked for
	store    *profile.Store
	names    *freelru.SyncedLRU[rawStack, profile.StackTraceID]

	troubles sync.Map     // what was logged that went wrong
	opened   time.Time    // what drained counts from
	drained  atomic.Int64 // when the last drain without an error began, in ns; 0 before

	mu       sync.RWMutex
	programs map[bpf.Target]*Program
	stopped  []*Program // since the last drain began
	stopping []*Program // before that: what was counted for them is about to be drained

	// Owned by Run.
	held      map[*Program][]PendingSample
	frames    []profile.Frame
	counted   time.Time // until when all was fetched that was counted
	refreshed time.Time
}

// rawStack is what determines the name of a stack. Threads share the keys of stacks, also by thread.
type rawStack struct {
	key           bpf.StackKey
	space, kernel uint64 // versions
}

// Open loads the sampler, and begins to take samples; the caller must Close. The error is a
// *bpf.MissingError when the machine, or the rights of this process, lack something.
func Open(options Options, counters *Counters, log *zap.Logger) (*Sampling, error) {
	now := time.Now()
	s := &Sampling{
		counters: counters,
		samples:  options.SamplesPerSecond > 0,
		opened:   now,
		counted:  now,
		keep:     process.Keep{Unsampled: options.KeepUnsampled, Untraced: options.KeepUntraced},
		bySpan:   options.BySpan,
		log:      log,
		programs: make(map[bpf.Target]*Program),
		held:     make(map[*Program][]PendingSample),
	}
	seed := maphash.MakeSeed() // nobody can choose stacks that share a bucket
	var err error
	s.names, err = freelru.NewSynced[rawStack, profile.StackTraceID](nameEntries, func(raw rawStack) uint32 {
		return uint32(maphash.Comparable(seed, raw))
	})
	if err != nil {
		return nil, err
	}
	if s.files, err = profile.NewFiles(options.ProcRoot, fileEntries); err != nil {
		return nil, err
	}
	if s.store, err = profile.NewStore(profile.StoreStacks, profile.StoreBytes); err != nil {
		return nil, err
	}
	if options.KernelStacks {
		if s.kernel, s.hidden = profile.NewKernel(options.ProcRoot, "/sys", pace(), time.Now()); s.hidden != nil {
			s.kernel, options.KernelStacks = nil, false
		}
	}
	counters.files.Store(s.files)
	counters.kernel.Store(s.kernel)
	counters.store.Store(s.store)
	if s.tick, err = newTick(options.Interval); err != nil {
		return nil, err
	}
	if s.sampler, err = bpf.OpenSampler(options.SamplerOptions); err != nil {
		s.tick.close()
		return nil, err
	}
	return s, nil
}

// KernelHidden is why stacks have no kernel frames though they were asked for, or nil.
func (s *Sampling) KernelHidden() error { return s.hidden }

// Close frees what Open took. Run must have returned, and nothing else be called any more.
func (s *Sampling) Close() error { return errors.Join(s.tick.close(), s.sampler.Close()) }

// Stack returns the frames of a stack by its id, leaf first, as long as they are in the store. The
// caller must not change them; they stay as they are when the stack goes.
//
// Receivers may call it from within Sampled, whatever is locked then: it takes no lock but the store's,
// with which nothing else is called. The stack is the one that was used last, so it is there unless the
// goroutines of other processes have put the thousands that the store has room for in that instant. It
// costs a look-up, and copies nothing.
func (s *Sampling) Stack(id profile.StackTraceID) ([]profile.Frame, bool) { return s.store.Get(id) }

// Run hands samples to their receivers until ctx ends, then stops sampling and hands over the rest.
// It is called once.
func (s *Sampling) Run(ctx context.Context) {
	deferred := make(chan struct{})
	reader := s.sampler.Deferred()
	go func() {
		defer close(deferred)
		s.takeDeferred(reader)
	}()
	stop := context.AfterFunc(ctx, s.tick.stop)
	defer stop()
	err := s.tick.wait()
	for ; err == nil; err = s.tick.wait() {
		s.drain()
		s.maintain(time.Now())
	}
	if ctx.Err() == nil { // it was not us who stopped it
		s.check("waiting for the next drain", err)
	}
	s.check("stopping the sampling clock", s.sampler.Stop())
	s.drain()
	s.count()
	s.check("emptying the ring buffer", reader.Flush())
	<-deferred
}

// LastDrain is when samples were fetched last without an error; the zero time before that.
func (s *Sampling) LastDrain() time.Time {
	if after := s.drained.Load(); after != 0 {
		return s.opened.Add(time.Duration(after))
	}
	return time.Time{}
}

// maintain follows what changes on the machine.
func (s *Sampling) maintain(now time.Time) {
	if now.Sub(s.refreshed) < refreshInterval {
		return
	}
	s.refreshed = now
	s.check("following CPUs", s.sampler.Refresh())
	if s.kernel.Stale(now) {
		s.check("looking at the kernel", s.kernel.Update(now))
	}
	s.count()
}

// count takes down what the kernel has counted.
func (s *Sampling) count() {
	counters, err := s.sampler.Counters()
	s.check("reading counters", err)
	for outcome, samples := range counters {
		if err == nil {
			s.counters.Kernel[outcome].Store(samples)
		}
	}
	s.counters.Missed.Store(s.sampler.Missed())
}

// check takes down an error. The first one of its kind is logged.
func (s *Sampling) check(what string, err error) {
	if err == nil {
		return
	}
	s.counters.Troubles.Add(1)
	if _, known := s.troubles.LoadOrStore(what, nil); !known {
		s.log.Error("sampling is in trouble; counted from here on", zap.String("reason", "sampling_troubles"),
			zap.String("while", what), zap.Error(err))
	}
}

// drain fetches what was counted since the last call.
func (s *Sampling) drain() {
	s.mu.Lock()
	ended := s.stopping
	s.stopping, s.stopped = s.stopped, nil
	s.mu.Unlock()
	s.counters.Drains.Add(1)
	now := newInstant()
	err := s.sampler.Drain(func(count bpf.Count) { s.take(&count, now) })
	s.check("draining counts", err)
	if err == nil { // else the next drain hands over what this one has left
		s.counted = now.Time
		s.drained.Store(int64(now.Sub(s.opened)))
	}
	for program, held := range s.held {
		s.hold(program, held)
		delete(s.held, program)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, program := range ended { // what a CPU was counting when they were stopped was drained by now
		delete(s.programs, program.number)
	}
}

// take hands one count to its receiver, or adds it to those to be held.
func (s *Sampling) take(count *bpf.Count, now instant) {
	program := s.program(count.Stack.Target)
	if program == nil {
		s.counters.Outcomes.Add(process.OutcomeUnknownProcess, uint64(count.Samples))
		return
	}
	h := PendingSample{program: program, sample: newSample(count, now.at(count.First)), key: count.Stack}
	h.sample.Start, h.sample.End = s.counted, now.Time
	if id, ok := s.names.Get(s.rawStack(program, h.key)); ok && !program.space.Lacking(now.Time) && s.store.Touch(id) {
		h.sample.Stack = id
		s.deliver(program, &h.sample)
		return
	}
	var err error
	if h.stack, err = s.sampler.Stack(h.key); err != nil {
		s.check("fetching a stack", err)
		s.counters.Outcomes.Add(process.OutcomeNoStack, h.Samples())
		return
	}
	var named bool
	if s.frames, named = s.takeStack(&h, now.Time, s.frames); !named {
		s.held[program] = append(s.held[program], h)
	}
}

// takeStack hands a sample to its receiver, instead of holding it, if its stack can be named by what is
// known of the process. frames is room for that.
func (s *Sampling) takeStack(h *PendingSample, now time.Time, frames []profile.Frame) ([]profile.Frame, bool) {
	program := h.program
	raw := s.rawStack(program, h.key) // before: the frames are of this version or a later one
	frames = s.appendFrames(frames[:0], program, h.stack)
	if raw.space == program.blank || program.space.Lacking(now) {
		return frames, false
	}
	if len(frames) == 0 { // a stack that begins where no code can be has no name
		s.counters.Outcomes.Add(process.OutcomeNoStack, h.Samples())
		return frames, true
	}
	h.sample.Stack = s.name(raw, frames)
	s.deliver(program, &h.sample)
	return frames, true
}

func (s *Sampling) program(number bpf.Target) *Program {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.programs[number]
}

// hold hands samples to the receiver of a program, unless that was forgotten meanwhile.
func (s *Sampling) hold(program *Program, held []PendingSample) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.programs[program.number] != program {
		for i := range held {
			s.counters.Outcomes.Add(process.OutcomeUnknownProcess, held[i].Samples())
		}
		return
	}
	held = held[program.receiver.Hold(held):]
	for i := range held {
		s.Refuse(&held[i], process.OutcomeBacklog)
	}
}

// deliver hands a sample to the receiver of a program, unless that was forgotten meanwhile.
func (s *Sampling) deliver(program *Program, sample *Sample) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.programs[program.number] != program {
		s.counters.Outcomes.Add(process.OutcomeUnknownProcess, sample.Samples)
		return
	}
	s.handOver(program, sample)
}

// handOver is deliver for the goroutine of the process, which knows that it was not forgotten.
func (s *Sampling) handOver(program *Program, sample *Sample) {
	program.used.Store(true)
	outcome := process.OutcomeCorrelated
	if sample.TraceID == [16]byte{} {
		outcome = process.OutcomeUntraced
	}
	s.counters.Outcomes.Add(outcome, sample.Samples)
	program.receiver.Sampled(*sample)
}

// rawStack is what a stack's name depends on.
func (s *Sampling) rawStack(program *Program, key bpf.StackKey) rawStack {
	return rawStack{key: key, space: program.space.Version(), kernel: s.kernel.Version()}
}

func (s *Sampling) appendFrames(frames []profile.Frame, program *Program, stack bpf.Stack) []profile.Frame {
	frames = s.kernel.AppendFrames(frames, stack.Kernel)
	return program.space.AppendFrames(frames, stack.User)
}

// name names a stack, and keeps its frames.
func (s *Sampling) name(raw rawStack, frames []profile.Frame) profile.StackTraceID {
	id := profile.TraceID(frames)
	s.store.Put(id, frames)
	s.names.Add(raw, id)
	return id
}
