package unwind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/host/resident"
	"correlator/internal/worker"
	"correlator/procscan"
)

const (
	// How long requests may take. A JVM is synchronized in 0.2 s, most of it for libjvm, once; frames
	// of a stack take some milliseconds at most.
	startTimeout       = 5 * time.Second
	synchronizeTimeout = 5 * time.Second
	removeTimeout      = 2 * time.Second
	framesTimeout      = time.Second

	// killedTime is what a request has taken, besides, because of which a worker was killed: each process
	// is walked by frame pointers until it was synchronized again.
	killedTime = 5 * time.Second
)

var (
	// ErrGone: the process has ended, or runs another program than the one that was synchronized.
	ErrGone = procscan.ErrGone
	// ErrNotReady: the process's JVM or other runtime is still starting, or of a kind that cannot be unwound.
	ErrNotReady = errors.New("runtime is not ready to be unwound")
	// ErrNotSynchronized: Synchronize has to be called, again if it was.
	ErrNotSynchronized = errors.New("process is not synchronized")
	// ErrOverQuota: the process needs more of the engine's tables than its user's processes may
	// have.
	ErrOverQuota = errors.New("the user's quota of unwinding is used up")
	// ErrQuarantined: the process is left out: a worker was killed because of it, or hangs because of another
	// one of its user.
	ErrQuarantined = errors.New("process is left out")
	// ErrKilled: the worker that served the request was killed.
	ErrKilled = errors.New("unwinding worker was killed")
	// ErrBusy: too many requests of the user wait.
	ErrBusy = errors.New("too many unwinding requests wait")
	// ErrUnavailable: there is no worker.
	ErrUnavailable = errors.New("no unwinding worker")
	// ErrClosed: the Engine is closed.
	ErrClosed = errors.New("unwinding has ended")
)

// Target is a program that a process runs.
type Target struct {
	ID        procscan.ProcessID // in our own pid namespace
	KernelPID uint32             // in the initial one
	// Program is comparable, and another one after an exec of the process.
	Program any
	// User is who has the same rights as the process. What the engine finds in files and in memory of a
	// user's processes, it uses for these alone.
	User worker.User
}

// Engine unwinds stacks. It is safe for concurrent use; requests are served one at a time, those of
// users in turn.
type Engine struct {
	options  Options
	chain    *chain
	spawner  *worker.Spawner
	counters *Counters
	queue    *queue
	blame    worker.Blame

	// Of the request that is served.
	worker     *worker.Process // nil: none
	tableBytes uint64          // that the worker has got
	asked      map[int]bool    // the kinds of runtimes for which the worker has asked
	startedAt  time.Time       // when the worker was
	retryAt    time.Time       // when the next may be started
	retryAfter time.Duration
	starved    time.Duration // in which there was no CPU for the worker

	mu          sync.Mutex
	closed      bool            // no request is served any more
	unloaded    bool            // Close was called
	serving     *worker.Process // to be interrupted
	onReset     func()
	onServed    func(worker.User, time.Duration)
	generation  uint64
	known       map[uint32]known // by KernelPID
	quarantined map[any]quarantine
	failure     error                  // why there is no worker
	broken      error                  // why there will be none
	runtimes    map[*runtimeKind]error // why those that processes have cannot be unwound, nil if they can
	noWaits     error                  // see NoWaits
}

// known is a target of which the worker may have stored something.
type known struct {
	Target
	ready bool       // it is synchronized
	code  []sentCode // of files; nil: it is not known, or changes just now
	runtimes
}

// runtimes is what is known of the runtimes of a target.
type runtimes struct{ refused, unknown string }

// Options say how to unwind.
type Options struct {
	ProcRoot string // a procfs of our own pid namespace
	// Signatures has the names of Java methods include return type and arguments. Ids made of names are
	// others then.
	Signatures bool
	Types      *KernelTypes // nil: they are read when the engine is loaded
}

// Open loads the programs and tables, starts a worker and unwinds a stack of this process, which
// takes some tenths of a second, or until ctx ends. The caller must close the Engine. The error says what
// the machine lacks, or is that of ctx. The program's main function must call worker.Main.
func Open(ctx context.Context, options Options, counters *Counters) (*Engine, error) {
	// Without it the worker cannot read other processes, although it can read our own.
	err := checkCapability("CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE)
	if err != nil {
		return nil, fmt.Errorf("unwinding: %w", err)
	}
	e, err := openTested(ctx, options, counters, Kind())
	if err != nil {
		return nil, fmt.Errorf("unwinding: %w", err)
	}
	freeLater(options.ProcRoot)
	return e, nil
}

// freeDelay is when what was needed for a moment only is given back to the system, which takes 10 ms or more: what
// follows, mostly at once, need not wait for that, and may need it.
const freeDelay = 5 * time.Second

// freeLater gives back memory: loading programs takes several MB, and most of our program.
func freeLater(procRoot string) {
	time.AfterFunc(freeDelay, func() {
		debug.FreeOSMemory()
		_ = resident.Trim(procRoot)
	})
}

// openTested is Open with a kind of worker.
func openTested(ctx context.Context, options Options, counters *Counters, kind worker.Kind) (*Engine, error) {
	e, err := open(ctx, options, counters, kind)
	if err != nil {
		return nil, err
	}
	goOn := context.AfterFunc(ctx, e.interrupt)
	if err = e.selfTest(ctx, options.ProcRoot); err != nil {
		err = fmt.Errorf("testing it with this process: %w", err)
	}
	if !goOn() {
		err = ctx.Err() // whatever came of that
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// open is openTested without the test.
func open(ctx context.Context, options Options, counters *Counters, kind worker.Kind) (*Engine, error) {
	chain, err := loadUntil(ctx, options.Types)
	if err != nil {
		return nil, err
	}
	spawner, err := worker.NewSpawner(options.ProcRoot, kind)
	if err != nil {
		chain.close()
		return nil, err
	}
	e := &Engine{
		options: options, chain: chain, spawner: spawner, counters: counters, queue: newQueue(),
		known: make(map[uint32]known), quarantined: make(map[any]quarantine),
		runtimes: make(map[*runtimeKind]error),
	}
	return e, nil
}

// Unwinder returns the programs for a sampler, which sets their last one. They are closed by Close: the
// sampler must have no unwinder then.
func (e *Engine) Unwinder() *bpf.Unwinder {
	l := e.chain.layout
	u := &bpf.Unwinder{
		Entry:   e.chain.programs[entryProgram],
		Records: e.chain.maps[recordsMap],
		Layout: bpf.RecordLayout{
			Words: l.words, WordCount: l.wordCount, KernelFrames: l.kernelFrames, Error: l.failure, Size: l.size,
		},
		SetLast: e.chain.setLast,
	}
	if u.WaitError = e.NoWaits(); u.WaitError == nil && e.chain.waits != nil {
		u.WaitEntry, u.SetWaitLast = e.chain.waits.programs[entryProgram], e.chain.waits.setLast
	}
	return u
}

// LoadWaits loads the programs for threads that have waited, too, unless that was tried: what Unwinder returns has them
// from then on, or NoWaits says why not. It takes as long as loading the others, which are of use before. The
// error is ErrBusy, ErrClosed, or that of ctx.
func (e *Engine) LoadWaits(ctx context.Context) error {
	if err := e.queue.enter(ctx, selfUser); err != nil {
		return err
	}
	defer e.queue.leave()
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return ErrClosed
	}
	e.chain.loadWaits()
	time.AfterFunc(freeDelay, debug.FreeOSMemory)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noWaits = e.chain.noWaits
	return nil
}

// NoWaits returns why stacks of waits are to be walked by frame pointers after LoadWaits, or nil. A process
// of a runtime for which that is so is not synchronized before.
func (e *Engine) NoWaits() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.noWaits
}

// Close ends the worker, without waiting for that, and unloads the programs. Requests under way
// return.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.unloaded {
		e.mu.Unlock()
		return nil
	}
	e.unloaded = true
	e.mu.Unlock()
	e.spawner.Close()
	e.interrupt()
	e.queue.enterLast() // no request is served after this one
	defer e.queue.leave()
	if e.worker != nil {
		e.worker.Kill()
		e.worker = nil
	}
	e.chain.close()
	return nil
}

// interrupt has requests under way, and all after these, return ErrClosed.
func (e *Engine) interrupt() {
	e.mu.Lock()
	e.closed = true
	serving := e.serving
	e.mu.Unlock()
	if serving != nil {
		serving.Interrupt()
	}
}

// OnServed sets what is called after each request that was served, with the time that took, without that of starting a
// worker, and in which there was no CPU for it; more than that when the worker was killed because of it. It must not
// call the Engine.
func (e *Engine) OnServed(f func(user worker.User, took time.Duration)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onServed = f
}

// OnReset sets what is called whenever a worker was killed, before anything that it has written is
// deleted: nothing may enter the programs when it returns. It must not call the Engine. All targets
// have to be synchronized again after it. It is called once at a time, by the goroutine whose request
// was served.
func (e *Engine) OnReset(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onReset = f
}

// Generation grows with every reset. A target that was synchronized in an older one no longer is.
func (e *Engine) Generation() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.generation
}

// Synchronize reads the executable mappings of a target, and what they contain, so that its stacks
// can be unwound; it is repeated when mappings have changed. It returns the Generation for which
// that is so. Errors are ErrGone, ErrNotReady and ErrOverQuota, after which it may be tried again,
// ErrQuarantined, ErrKilled, ErrBusy, ErrUnavailable, ErrClosed, that of ctx, and others, of the
// process.
func (e *Engine) Synchronize(ctx context.Context, t Target) (generation uint64, err error) {
	err = e.serve(ctx, t.User, &t, func() error {
		e.mu.Lock()
		other, found := e.known[t.KernelPID]
		e.mu.Unlock()
		if found && other.Program != t.Program {
			if err := e.remove(&other.Target); err != nil {
				return err
			}
		}
		e.setKnown(&t, found && other.Program == t.Program && other.ready, nil, other.runtimes)
		answer, err := e.call(&t, synchronizeTimeout, opSynchronize,
			synchronize{ID: t.ID, KernelPID: t.KernelPID, User: t.User})
		if err != nil {
			return err
		}
		var s synchronized
		if json.Unmarshal(answer, &s) != nil || s.Outcome < 0 || s.Outcome >= outcomes {
			return e.kill(&t, errAnswer)
		}
		code, err := decodeSentCode(s.Code)
		if err != nil {
			return e.kill(&t, err)
		}
		e.counters.FilesSkipped.Add(min(s.Skipped, maxRanges))
		e.counters.Uncorrected.Add(min(s.Uncorrected, maxRanges))
		e.counters.MapErrors.Add(min(s.MapErrors, 1<<20))
		if s.Full && time.Since(e.startedAt) >= minWorkerLife {
			return e.kill(&t, errExhausted)
		}
		err = e.outcome(&s)
		e.setKnown(&t, err == nil, code, runtimes{text(s.Refused), text(s.Unknown)})
		generation = e.Generation()
		return err
	})
	return generation, err
}

func (e *Engine) setKnown(t *Target, ready bool, code []sentCode, of runtimes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[t.KernelPID] = known{*t, ready, code, of}
}

// Runtimes returns why the functions of a runtime of a target that is synchronized have no names, and what is to be
// said of a runtime in a version that was not tried; "" for neither.
func (e *Engine) Runtimes(t *Target) (refused, unknown string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k := e.known[t.KernelPID]; k.ready && k.Program == t.Program {
		return k.refused, k.unknown
	}
	return "", ""
}

// ready reports whether a target is synchronized.
func (e *Engine) ready(t *Target) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.known[t.KernelPID]
	return k.ready && k.Program == t.Program
}

// text bounds a worker's text.
func text(of string) string { return strings.ToValidUTF8(of[:min(len(of), maxFailureBytes)], "\uFFFD") }

// outcome returns what a synchronization came to, counted unless it succeeded.
func (e *Engine) outcome(s *synchronized) error {
	failure := text(s.Failure)
	switch s.Outcome {
	case outcomeReady:
		e.counters.Synchronized.Add(1)
		return nil
	case outcomeGone:
		e.counters.Gone.Add(1)
		return ErrGone
	case outcomeNotReady:
		e.counters.NotReady.Add(1)
		return notReady(failure)
	case outcomeOverQuota:
		e.counters.OverQuota.Add(1)
		return fmt.Errorf("%w: %q", ErrOverQuota, failure)
	}
	e.counters.Failed.Add(1)
	return unreadable(failure)
}

func notReady(failure string) error {
	if failure == "" {
		return ErrNotReady
	}
	return fmt.Errorf("%w: %q", ErrNotReady, failure)
}

func unreadable(failure string) error {
	return fmt.Errorf("reading a process's code for unwinding: %q", failure)
}

// Remove deletes what Synchronize has stored of a target. It is called when the process has ended or
// runs another program, and when its stacks are not to be unwound any more.
func (e *Engine) Remove(ctx context.Context, t Target) error {
	isKnown := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.known[t.KernelPID].Program == t.Program
	}
	if !isKnown() {
		return nil
	}
	return e.serve(ctx, t.User, nil, func() error {
		if !isKnown() {
			return nil // a worker was killed since
		}
		return e.remove(&t)
	})
}

// remove has the worker remove a target.
func (e *Engine) remove(t *Target) error {
	answer, err := e.call(t, removeTimeout, opRemove, remove{KernelPID: t.KernelPID})
	if err != nil {
		return err
	}
	if len(answer) != 0 {
		return e.kill(t, errAnswer)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, t.KernelPID)
	return nil
}

// Frames returns the frames of stacks, given by their words, leaf first: of the first at least, and of
// as many more as it takes little time and room for. A CutFrame says where a stack could not be named.
// A part of a stack may be given, too: the frames of a stack are those of its words (see NextWord), one after the
// other, up to a CutFrame. The error is ErrNotSynchronized, or one of those of Synchronize.
func (e *Engine) Frames(ctx context.Context, t Target, stacks [][]uint64) (named []Named, err error) {
	for _, words := range stacks {
		if len(words) > maxWords {
			return nil, fmt.Errorf("naming a stack of %d words: %w", len(words), unix.EMSGSIZE)
		}
	}
	err = e.serve(ctx, t.User, &t, func() error {
		if !e.ready(&t) {
			return ErrNotSynchronized
		}
		answer, err := e.exchange(&t, framesTimeout, appendFramesRequest(nil, t.KernelPID, stacks))
		if err != nil {
			return err
		}
		if named, err = decodeFrames(answer, len(stacks)); err != nil {
			return e.kill(&t, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return named, nil
}

// serve calls a function for a user while no other request is served, with a worker. t is the
// target that is served, nil when what it did before does not matter.
func (e *Engine) serve(ctx context.Context, user worker.User, t *Target, do func() error) error {
	if t != nil {
		if err := e.leftOut(t); err != nil {
			e.counters.LeftOut.Add(1)
			return err
		}
	}
	if err := e.queue.enter(ctx, user); err != nil {
		e.counters.Busy.Add(1)
		return err
	}
	defer e.queue.leave()
	if t != nil { // while it waited, a worker may have been killed for it
		err := e.leftOut(t)
		if err == nil && e.blame.HungOf(user) > 0 {
			err = fmt.Errorf("%w: a worker hangs because of a process of its user", ErrQuarantined)
		}
		if err != nil {
			e.counters.LeftOut.Add(1)
			return err
		}
	}
	if err := e.ensureWorker(); err != nil {
		e.counters.Unavailable.Add(1)
		return err
	}
	e.starved = 0
	began := time.Now()
	err := do()
	took := max(0, time.Since(began)-e.starved)
	if errors.Is(err, ErrKilled) && !isNobodys(err) {
		took += killedTime
	}
	e.mu.Lock()
	onServed := e.onServed
	e.mu.Unlock()
	if onServed != nil {
		onServed(user, took)
	}
	return err
}
