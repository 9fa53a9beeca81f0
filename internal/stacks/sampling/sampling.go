package sampling

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/timerfd"
	"correlator/internal/stacks/unwind"
	"correlator/profile"
)

const (
	// fileEntries is how many mapped files are remembered: a JVM has 20 to 50, and those of one
	// image are shared. It takes 200 KB, and 500 bytes more for each file in use.
	fileEntries = 2048

	// lastNaming is how long samples may wait for the names of their stacks when Run has ended.
	lastNaming = 1500 * time.Millisecond

	// refreshInterval is how often CPUs that came or went are looked for.
	refreshInterval = time.Second
)

// probePace is how soon the executable memory of a process is read again: for an address that is
// not known, at once after a quiet time, and less and less often while that finds nothing new; for
// its age, every ten seconds, or much later while all changes are told.
func probePace() profile.Pace {
	return profile.Pace{Shortest: 100 * time.Millisecond, Longest: 10 * time.Second}
}

// processPace is that of a process.
func (s *Sampling) processPace() profile.Pace {
	pace := probePace()
	pace.Told = &s.told
	return pace
}

// SetTold says whether [ProcessSampler.Invalidate] is called from now on whenever a process maps code.
func (s *Sampling) SetTold(told bool) { s.told.Store(told) }

// MaxAttributes is how many attributes of a thread context are read at most.
const MaxAttributes = process.MaxAttributes

// Options say what to sample, and how often the counts are drained.
type Options struct {
	bpf.SamplerOptions
	Interval time.Duration // between two drains
	ProcRoot string        // where the host's procfs is mounted

	// Waits says whether accounts are kept of what threads do that have a context. It is no error of Open
	// where they cannot be: see Waits.
	Waits bool
	// WaitsWanted reports whether somebody takes accounts and waits now. It is called before each drain and where the
	// first program has contexts, and does not wait; nil: always.
	WaitsWanted func() bool
	// WaitsByThread: accounts and waits are of threads, whatever context they have, or none, and of
	// idle ones, too. Then accounts end with Run.
	WaitsByThread bool
	// Unwinder says whether an engine walks stacks, of programs that it can serve. It is loaded when
	// the first one is started; at once when it must work. The program's main function must call
	// worker.Main.
	Unwinder Unwinder
	// ElasticOnly: samples in contexts of OpenTelemetry's are of no use.
	ElasticOnly bool
	// Attributes are the keys of the attributes that are wanted of OpenTelemetry's thread contexts, at
	// most MaxAttributes.
	Attributes []string
	// Lazy has the stacks of a program without a rule unwound from its first samples on: most processes of a host run
	// rarely. Nor are accounts kept before one has contexts, unless they are of threads.
	Lazy bool
	// JavaSignatures has the names of Java methods include return type and arguments.
	JavaSignatures bool
}

// A Sink receives the samples of one program. Its methods must not block, nor call methods of
// Sampling, Program or ProcessSampler: locks are held meanwhile.
type Sink interface {
	// Sampled is called with complete samples.
	Sampled(sample profile.Sample)
	// Waited is called with complete samples that have a Wait.
	Waited(sample profile.Sample)
	// Flush is called when Sampled was, and will not be at once again: what was handed over is to be handed on. Nothing
	// is locked, and the program may have been forgotten.
	Flush()
	// Accounted is called with accounts; the account stays the caller's.
	Accounted(account *profile.Account)
	// Refused is called with the number of samples that were to wait for the process's goroutine,
	// or did, and ended otherwise; not with those that ProcessSampler.Abandon returns.
	Refused(outcome process.SampleOutcome, samples uint64)
}

// Sampling samples the programs that were started, names their stacks and hands the samples to
// their sinks. Methods are safe for concurrent use unless they say otherwise.
type Sampling struct {
	counters    *Counters
	log         *zap.Logger
	tick        *timerfd.Timer // when to drain
	clock       *clock
	samples     bool // are taken; else there is only the table of targets
	keep        process.Keep
	elasticOnly bool     // see Options
	attributes  []string // the same
	bySpan      bool
	lazy        bool // the same
	sampler     *bpf.Sampler
	told        atomic.Bool // see SetTold
	files       *profile.Files
	stacks      stacks
	words       *wordCache
	unwinding   *unwinding // nil: all stacks are walked by frame pointers
	hidden      error      // why stacks have no kernel frames, if they were asked for
	labels      []bpf.LabelKey
	obi         atomic.Bool // contexts of OBI are read
	threads     lazyThreads
	waits       *bpf.Waits // nil: no accounts are kept
	unaccounted error      // why not, if they were asked for
	waitsWanted func() bool
	traced      atomic.Bool           // a program has contexts, or had one
	waitsIdle   atomic.Bool           // nobody wants them now, or notResumed
	pieces      atomic.Int64          // of waits, that are held
	byThread    bool                  // Options.WaitsByThread
	since       atomic.Int64          // when accounts were resumed, after opened in ns; 0: they were not
	notResumed  atomic.Pointer[error] // why none are kept that are wanted
	resume      func() error          // of waits
	switching   sync.Mutex            // held while that is done, or the reverse
	resumed     time.Time             // when it was tried in vain

	troubles sync.Map                  // what was logged that went wrong
	opened   time.Time                 // what drained counts from
	ended    atomic.Pointer[time.Time] // when Run did
	drained  atomic.Int64              // when the last drain without an error began, in ns; 0 before

	mu       sync.RWMutex
	programs map[bpf.Target]*program
	stopped  []*program // since the last drain began
	stopping []*program // before that: what was counted for them is about to be drained

	// Owned by Run.
	waiting   []*program // that have counts whose samples are to wait for their process
	flushing  []*program // whose sinks have samples of the drain
	scratch   scratch
	counted   bpf.Instant // until which all was drained that was counted
	refreshed time.Time
}

// Open loads the sampler, and begins to take samples; the caller must Close. The error is a
// *bpf.MissingError when the machine, or the rights of this process, lack something.
func Open(options Options, counters *Counters, log *zap.Logger) (*Sampling, error) {
	now := time.Now()
	s := &Sampling{
		counters:    counters,
		samples:     options.SamplesPerSecond > 0,
		opened:      now,
		clock:       newClock(options.Interval),
		lazy:        options.Lazy,
		keep:        process.Keep{Unsampled: options.KeepUnsampled, Untraced: options.KeepUntraced},
		bySpan:      options.BySpan,
		elasticOnly: options.ElasticOnly,
		attributes:  options.Attributes,
		log:         log,
		programs:    make(map[bpf.Target]*program),
		words:       newWordCache(),
		labels:      options.Labels,
	}
	options.SamplerOptions.Attributes = options.Attributes
	if options.OBI == "" && s.samples && !s.elasticOnly {
		options.OBI = bpf.OBIContexts
	}
	s.counted = s.clock.last
	var err error
	if s.files, err = profile.NewFiles(options.ProcRoot, fileEntries); err != nil {
		return nil, err
	}
	if s.stacks, err = newStacks(); err != nil {
		return nil, err
	}
	if options.KernelStacks {
		if s.stacks.kernel, s.hidden = profile.NewKernel(options.ProcRoot, "/sys", probePace(), now); s.hidden != nil {
			s.stacks.kernel, options.KernelStacks = nil, false
		}
	}
	counters.files.Store(s.files)
	counters.kernel.Store(s.stacks.kernel)
	counters.store.Store(s.stacks.store)
	if s.tick, err = timerfd.NewTicker(options.Interval); err != nil {
		return nil, err
	}
	if s.sampler, err = bpf.OpenSampler(options.SamplerOptions); err != nil {
		s.tick.Close()
		return nil, err
	}
	if err := s.ChainOnly(); err != nil {
		log.Warn("stacks that are walked by frame pointers lack callers", zap.String("reason", "sampler_refused"),
			zap.Error(err))
	}
	s.followOBI()
	if options.Waits && s.samples {
		if s.waitsWanted = options.WaitsWanted; s.waitsWanted == nil {
			s.waitsWanted = func() bool { return true }
		}
		s.byThread = options.WaitsByThread
		s.waitsIdle.Store(!s.wantsWaits())
		waits := bpf.WaitOptions{Paused: s.waitsIdle.Load(), ByThread: s.byThread}
		if s.waits, s.unaccounted = s.sampler.OpenWaits(waits); s.unaccounted != nil {
			log.Warn("what transactions wait for is not known", zap.String("reason", "waits_unavailable"),
				zap.Error(s.unaccounted))
		} else if err := s.waits.Walkless(); err != nil {
			log.Warn("where transactions wait is not known", zap.String("reason", "waits_unavailable"), zap.Error(err))
		}
		s.resume = s.waits.Resume
	}
	if options.Unwinder.Unwinds() && s.samples {
		eager := options.Unwinder == FullUnwinder
		types, _ := unwind.ReadKernelTypes() // at hand since the sampler is; else loading the engine says what is wrong
		s.unwinding = newUnwinding(s.sampler, &counters.Unwinding,
			unwind.Options{ProcRoot: options.ProcRoot, Signatures: options.JavaSignatures, Types: types}, eager,
			s.waits != nil && s.waits.Walkless() == nil, log)
	}
	return s, nil
}

// ChainOnly returns why stacks that are walked by frame pointers lack callers: see [bpf.Sampler.ChainOnly].
func (s *Sampling) ChainOnly() error { return s.sampler.ChainOnly() }

// AwaitUnwinder waits until the engine is loaded that must work: FullUnwinder. The error is why there is
// none, or that of ctx.
func (s *Sampling) AwaitUnwinder(ctx context.Context) error {
	if s.unwinding == nil {
		return nil
	}
	select {
	case <-s.unwinding.loaded:
		return s.UnwindingError()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// UnwindingError returns why all stacks are walked by frame pointers although an engine was asked
// for: it is not loaded yet though there are processes to sample, or cannot work. It returns nil
// otherwise.
func (s *Sampling) UnwindingError() error {
	if status := s.Unwinding(); status != nil {
		return status.Err()
	}
	return nil
}

// Unwinding returns how stacks are walked, nil when an engine was not asked for.
func (s *Sampling) Unwinding() *UnwindingStatus {
	if s.unwinding == nil {
		return nil
	}
	status := s.unwinding.status()
	return &status
}

// Settle waits until the stacks of each program that was started are unwound, or cannot be, for now or
// at all; or until the context ends. It returns at once when an engine was not asked for.
func (s *Sampling) Settle(ctx context.Context) {
	if s.unwinding != nil {
		s.unwinding.settle(ctx)
	}
}

// KernelHidden returns why stacks have no kernel frames though they were asked for, or nil.
func (s *Sampling) KernelHidden() error { return s.hidden }

// KernelUnsampled returns why threads are not sampled while they are in the kernel, or nil.
func (s *Sampling) KernelUnsampled() error {
	if !s.samples {
		return nil
	}
	return bpf.ReadsInKernel()
}

// Close frees what Open opened. Run must have returned, and no other method may be called any more.
func (s *Sampling) Close() error {
	errs := []error{s.unwinding.close(), s.tick.Close()}
	if s.waits != nil {
		errs = append(errs, s.waits.Close())
	}
	if s.threads.opened != nil {
		errs = append(errs, s.threads.opened.Close())
	}
	return errors.Join(append(errs, s.sampler.Close())...)
}

var errNoLabelKeys = errors.New("no keys are to be read")

// resolveLabels is process.Target.ResolveLabels for a target whose labels can be read.
func (s *Sampling) resolveLabels(t *process.Target) error {
	if !t.HasLabels() {
		return t.LabelsError()
	}
	if len(s.labels) == 0 {
		t.RefuseLabels(errNoLabelKeys)
		return t.LabelsError()
	}
	if err := s.sampler.LoadLabels(); err != nil {
		s.recordError("loading what reads labels of goroutines", err)
		t.RefuseLabels(err)
		return t.LabelsError()
	}
	threads, err := s.threads.open()
	if err != nil {
		s.recordError("listing threads", err)
		t.RefuseLabels(err)
		return t.LabelsError()
	}
	return t.ResolveLabels(threads)
}

// lazyThreads are opened for the first process whose threads are to be known.
type lazyThreads struct {
	once   sync.Once
	opened *bpf.Threads
	err    error
}

func (l *lazyThreads) open() (*bpf.Threads, error) {
	l.once.Do(func() { l.opened, l.err = bpf.OpenThreads() })
	return l.opened, l.err
}

// Run hands samples to their sinks until ctx ends, then stops sampling and hands over the rest. It
// is called once.
func (s *Sampling) Run(ctx context.Context) {
	deferred := make(chan struct{})
	reader := s.sampler.Deferred()
	go func() {
		defer close(deferred)
		s.readDeferred(reader)
	}()
	stop := context.AfterFunc(ctx, s.tick.Stop)
	defer stop()
	err := s.tick.Wait()
	for ; err == nil; err = s.tick.Wait() {
		s.drain()
		s.readCounters()
		s.maintain(time.Now())
	}
	if ctx.Err() == nil { // it was not us who stopped it
		s.recordError("waiting for the next drain", err)
	}
	s.recordError("stopping the sampling clock", s.sampler.Stop())
	if s.byThread && s.waits != nil {
		s.recordError("pausing accounts", s.waits.Pause())
	}
	s.drain()
	s.endPieces(time.Time{}) // no more come
	s.flush()
	s.readCounters()
	s.recordError("emptying the ring buffer", reader.Flush())
	<-deferred
	now := time.Now()
	s.ended.Store(&now)
}

// isOver reports whether Run has ended so long ago that nothing waits for the engine any more.
func (s *Sampling) isOver(now time.Time) bool {
	ended := s.ended.Load()
	return ended != nil && now.Sub(*ended) > lastNaming
}

// LastDrain returns when the last drain without an error began; the zero time before that.
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
	s.recordError("following CPUs", s.sampler.Refresh())
	s.followOBI()
	if s.stacks.kernel.Stale(now) {
		s.recordError("looking at the kernel", s.stacks.kernel.Update(now))
	}
}

// followOBI has contexts of OBI read while there are any.
func (s *Sampling) followOBI() {
	reads, err := s.sampler.FollowOBI()
	s.recordError("following OBI", err)
	if s.obi.Swap(reads) != reads {
		s.log.Info("contexts of OBI", zap.Bool("read", reads))
	}
}

// readCounters copies what the kernel has counted, from shared memory.
func (s *Sampling) readCounters() {
	counters, err := s.sampler.Counters()
	s.recordError("reading counters", err)
	for outcome, samples := range counters {
		if err == nil {
			s.counters.Kernel[outcome].Store(samples)
		}
	}
	side, err := s.sampler.SideCounters()
	s.recordError("reading counters", err)
	for counter, sum := range map[*atomic.Uint64]uint64{
		&s.counters.Walked: side.WalkedInstead, &s.counters.AttributesCut: side.AttributesCut,
		&s.counters.UnknownKeys: side.UnknownKeys, &s.counters.LabelsRefused: side.LabelsRefused,
		&s.counters.LabelsUnread: side.LabelsUnread,
	} {
		counter.Store(max(sum, counter.Load()))
	}
	s.counters.Missed.Store(s.sampler.Missed())
	if s.waits == nil {
		return
	}
	waits, err := s.waits.Counters()
	s.recordError("reading counters", err)
	for counter, sum := range map[*atomic.Uint64]uint64{
		&s.counters.AccountsLost:   waits.Lost,
		&s.counters.AccountsUnread: waits.Unknown, &s.counters.AccountsUnprepared: waits.Stateless,
		&s.counters.AccountsUnwoken: waits.Unwoken, &s.counters.AccountsUnseen: waits.Unseen,
		&s.counters.WalksUnasked:   waits.Unasked,
		&s.counters.WalksUnaskedNS: waits.UnaskedNS, &s.counters.WalksUnrung: waits.Unrung,
		&s.counters.WalksMissed: waits.Missed, &s.counters.WalksUnfinished: waits.Unfinished,
		&s.counters.WalksUnsent: waits.Unsent,
	} {
		counter.Store(max(sum, counter.Load()))
	}
}

// recordError counts an error, if it is one. The first while doing the same thing is logged.
func (s *Sampling) recordError(while string, err error) {
	if err == nil {
		return
	}
	s.counters.Errors.Add(1)
	if _, known := s.troubles.LoadOrStore(while, nil); !known {
		s.log.Error("sampling is in trouble; counted from here on", zap.String("reason", "sampling_troubles"),
			zap.String("while", while), zap.Error(err))
	}
}
