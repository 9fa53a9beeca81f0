// Package record samples the processes that take part for a while, in transactions and outside: a
// Recording. It sends nothing.
package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
	"correlator/profile"
)

// defaultMaxProcesses is more than a host of any size runs of JVMs. Each of them takes two
// descriptors until it has ended.
const defaultMaxProcesses = 4096

const (
	// drainInterval is how often samples are fetched. What a process has to be probed for is probed
	// then, and it may end before.
	drainInterval = 100 * time.Millisecond

	// sweepInterval is how often processes are searched that live events did not report. Where those of any kind are
	// recorded, that is done as often, and all are looked at again every allSweepInterval.
	sweepInterval    = time.Second
	allSweepInterval = 30 * time.Second

	// linger is how long samples of a process may come after its end: two drains, and some more.
	linger = 5 * drainInterval

	// remapGrace is how long a process that executes another program may take to map the library
	// again and still be the same in the recording: a JVM that starts on a busy host, and loads its
	// agent, needs some seconds.
	remapGrace = 10 * time.Second

	// attachGrace is how long recording waits at most for processes that were found at first to be
	// sampled: one that hangs does not hold it up. It takes some hundredths of a second of CPU time for each.
	attachGrace = 10 * time.Second

	// lookAround is how long to find out, where processes of any kind are recorded, which of them run.
	lookAround = 3 * drainInterval

	// drainGrace is how long it waits then for the drain from which samples count.
	drainGrace = 2 * time.Second

	// endGrace is how long the processes' goroutines, and Learners, may take to end. One that is
	// stuck in a system call does not hold up the end.
	endGrace = 2 * time.Second
)

// Options say what to record.
type Options struct {
	ProcRoot         string // where the host's procfs is mounted
	SamplesPerSecond int    // of every CPU, from 1 to bpf.MaxSamplesPerSecond
	KernelStacks     bool   // stacks begin with the kernel's frames
	Unwinder         sampling.Unwinder
	Waits            bool           // of threads with a trace are recorded, too
	Accounts         bool           // of all threads: waits are of each, and Recording.Accounts is there
	Moments          bool           // Recording.Moments is there
	JavaSignatures   bool           // names of Java methods have return type and arguments
	Labels           []bpf.LabelKey // of goroutines that are read, see bpf.SamplerOptions
	Attributes       []string       // of OpenTelemetry's thread contexts that are recorded, see sampling.Options
	PID              int            // the only process, whatever it publishes; 0: all that Filter selects
	Filter           process.Filter
	Selection        Selection     // other samples are not in the Recording, but for how many they are
	Duration         time.Duration // how long to record, from Recording.Start on; 0: until the context ends
	MaxProcesses     int           // that run at a time, and that have ended; 0: DefaultMaxProcesses
	Learner          Learner       // may be nil
	Searched         func()        // called by Run when there may be something to record; may be nil

	// While is called by Run when the recording has begun, with a context that ends with it. The recording ends
	// when it returns, if not before. nil: there is nothing to be done.
	While func(ctx context.Context)
}

// A Learner learns what is sampled while processes live.
type Learner interface {
	// Learn is called with the first sample, or wait, of each stack of a process, and its Space. Each process has its
	// own goroutine for that; Learn may block as long as it likes, and may still do so when the recording has ended.
	// It must not change the frames.
	Learn(process *Process, sample *profile.Sample)
}

// Progress is how far a recording is.
type Progress struct {
	Start     time.Time // Recording.Start; zero: not begun yet
	Samples   uint64
	WithTrace uint64 // of them
	Processes int    // that are, or were, sampled, whatever programs they executed
}

// Recorder samples the CPU time of processes that take part, in transactions and outside, for a
// while. It is no agent: it connects to no socket, and sends nothing.
type Recorder struct {
	options  Options
	log      *zap.Logger
	access   *access.Client
	manager  *lifecycle.Manager
	sampling *sampling.Sampling // the manager's
	accounts atomic.Bool        // are wanted, with Options.Accounts: from when the recording begins
	counters struct {
		lifecycle.Counters
		Sampling sampling.Counters
	}
	aggregate *aggregate
	stop      context.CancelFunc // ends the recording; set by Run
	swept     chan error         // how the first sweep ended
	grace     time.Duration      // unwindGrace, longer in tests
	learning  sync.WaitGroup     // of handlers, and of goroutines that call the Learner

	mu        sync.Mutex
	taken     int                             // processes
	processes map[procscan.ProcessID]*handler // those that run
	failed    []Failure                       // those that were not sampled, or not to the end
	refused   map[procscan.ProcessID]error    // why they are not recorded (yet)

	// ended has the handlers of processes that have ended, and were sampled. A process that mapped
	// no library for longer than remapGrace has several.
	ended map[procscan.ProcessID][]*handler

	sweeps      int
	sweepFailed bool // was logged
}

// sampling returns what to sample.
func (o *Options) sampling() sampling.Options {
	return sampling.Options{
		SamplerOptions: bpf.SamplerOptions{
			SamplesPerSecond: o.SamplesPerSecond,
			KernelStacks:     o.KernelStacks,
			KeepUnsampled:    true,
			KeepUntraced:     true,
			ByThread:         true,
			BySpan:           true,
			MaxTargets:       o.MaxProcesses,
			Labels:           o.Labels,
		},
		Interval:       drainInterval,
		ProcRoot:       o.ProcRoot,
		Unwinder:       o.Unwinder,
		Waits:          o.Waits || o.Accounts,
		WaitsByThread:  o.Accounts,
		JavaSignatures: o.JavaSignatures,
		Attributes:     o.Attributes,
		Lazy:           o.Filter.All && o.PID == 0,
	}
}

// Open opens what the recorder needs; Run closes it. The error is a *bpf.MissingError when the
// machine, or the rights of this process, lack something.
func Open(options Options, log *zap.Logger) (*Recorder, error) {
	if options.SamplesPerSecond < 1 {
		return nil, fmt.Errorf("recording %d samples per second: not from 1 to %d", options.SamplesPerSecond,
			bpf.MaxSamplesPerSecond)
	}
	if options.MaxProcesses == 0 {
		options.MaxProcesses = defaultMaxProcesses
	}
	var err error
	if options.Filter, err = options.Filter.Resolve(options.ProcRoot); err != nil {
		return nil, err
	}
	options.Filter.All = options.Filter.All || options.PID != 0
	r := &Recorder{
		options: options, log: log, aggregate: newAggregate(), swept: make(chan error, 1),
		grace:     unwindGrace,
		processes: make(map[procscan.ProcessID]*handler),
		ended:     make(map[procscan.ProcessID][]*handler),
		refused:   make(map[procscan.ProcessID]error),
	}
	r.aggregate.selection, r.aggregate.timed = options.Selection, options.Moments
	if options.Waits || options.Accounts {
		r.aggregate.waits = make(map[WaitKey]profile.StateTimes)
	}
	if options.Accounts {
		r.aggregate.accounts = make(map[thread]*ThreadAccount)
	}

	if r.access, err = access.Open(options.ProcRoot, new(worker.Counters)); err != nil {
		return nil, err
	}
	sampled := options.sampling()
	if options.Accounts {
		sampled.WaitsWanted = r.accounts.Load
	}
	r.sampling, err = sampling.Open(sampled, &r.counters.Sampling, log)
	if err != nil {
		r.access.Close()
		return nil, fmt.Errorf("opening sampler: %w", err)
	}
	if waits := r.sampling.Waits(); waits != nil && !waits.Stacks && (waits.Error != "" || !options.Accounts) {
		r.sampling.Close()
		r.access.Close()
		return nil, fmt.Errorf("recording waits: %w", noWaits(cmp.Or(waits.Error, waits.StacksError)))
	}
	if err := r.sampling.KernelHidden(); err != nil {
		log.Warn("stacks have no kernel frames", zap.Error(err))
	}
	if err := r.sampling.KernelUnsampled(); err != nil {
		log.Warn("threads are not sampled while they are in the kernel", zap.Error(err))
	}
	interval := sweepInterval
	if options.Filter.All && options.PID == 0 {
		interval = allSweepInterval
	}
	r.manager, err = lifecycle.Open(lifecycle.Options{
		Access: r.access, ProcRoot: options.ProcRoot, Filter: options.Filter, PID: options.PID,
		SweepInterval: interval,
		Sampling:      r.sampling, Linger: linger, RemapGrace: remapGrace, Counters: &r.counters.Counters, Log: log,
	}, r)
	if err != nil {
		r.sampling.Close()
		r.access.Close()
		return nil, err
	}
	return r, nil
}

// noWaits is why waits cannot be recorded on this host.
type noWaits string

func (w noWaits) Error() string { return string(w) }

func (noWaits) Is(target error) bool { return target == errors.ErrUnsupported }

// Progress returns how far the recording is. It may be called by any goroutine, while Run runs.
func (r *Recorder) Progress() Progress {
	progress := r.aggregate.progress()
	r.mu.Lock()
	defer r.mu.Unlock()
	progress.Processes = len(r.ended)
	for id, h := range r.processes {
		if len(r.ended[id]) == 0 && len(h.sampled()) > 0 {
			progress.Processes++
		}
	}
	return progress
}

// Run records until ctx ends, or Options.Duration is over, or the only process that is to be
// recorded has ended; the caller must Close the recording. It is an error when that process takes
// no part, or could not be sampled, or when no process can be searched. Run is called once.
func (r *Recorder) Run(ctx context.Context) (*Recording, error) {
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		r.manager.Run(ctx)
	}()
	err := r.record(ctx)
	r.stop()
	ended := time.Now()
	<-sampled // all samples are with their processes now
	recording := &Recording{SamplesPerSecond: r.options.SamplesPerSecond}
	if status := r.sampling.Unwinding(); status != nil {
		recording.Engine = status.Loaded
		recording.Failures, recording.Refused = r.running(status.Failures), r.running(status.Unread())
	}
	r.end(recording, ended)
	if err == nil {
		err = r.verify(recording)
	}
	if err != nil {
		recording.Close()
		return nil, err
	}
	return recording, nil
}

// record counts samples until ctx ends, or an error prevents it.
func (r *Recorder) record(ctx context.Context) error {
	select {
	case err := <-r.swept:
		if err := r.checkFirstSweep(err); err != nil {
			return err
		}
	case <-ctx.Done():
		return nil
	}
	if r.options.Searched != nil {
		r.options.Searched()
	}
	if r.options.Unwinder == sampling.FullUnwinder {
		if err := r.sampling.AwaitUnwinder(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("unwinding stacks (--unwinder auto does without): %w", err)
		}
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.options.Duration > 0 {
		over := time.AfterFunc(time.Until(r.Progress().Start.Add(r.options.Duration)), r.stop)
		defer over.Stop()
	}
	if r.options.While != nil && ctx.Err() == nil {
		r.options.While(ctx)
		return nil
	}
	<-ctx.Done()
	return nil
}

// checkFirstSweep returns an error if there is nothing to record after the first sweep, which ended
// with err, because of an error.
func (r *Recorder) checkFirstSweep(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid := r.options.PID
	switch {
	case r.taken > 0:
		r.recordSweepError(err)
		return nil
	case pid == 0:
		return err
	case err == nil:
		err = procscan.ErrGone
		for _, refused := range r.refused {
			err = refused
		}
	}
	return fmt.Errorf("recording process %d: %w", pid, err)
}

// begin has samples counted as soon as each process that is there was probed, and its stacks are
// unwound if they can be, from a drain on: what was counted together is from before, or from after. It
// does nothing when ctx ends. The error is that accounts cannot be begun.
func (r *Recorder) begin(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, attachGrace)
	defer cancel()
	r.mu.Lock()
	first := slices.Collect(maps.Values(r.processes))
	r.mu.Unlock()
	for _, h := range first {
		select {
		case <-h.probed:
		case <-waiting.Done():
		}
	}
	if r.options.Filter.All && r.options.PID == 0 { // only those are unwound that had samples
		r.awaitDrain(ctx, time.Now().Add(lookAround))
	}
	settle(ctx, r.sampling, r.grace, r.log)
	start, err := r.awaitStart(ctx)
	if err == nil && ctx.Err() == nil {
		r.aggregate.begin(start)
	}
	return err
}

// awaitStart waits for the drain from which samples count, and has accounts begin then.
func (r *Recorder) awaitStart(ctx context.Context) (start time.Time, err error) {
	if !r.options.Accounts {
		return r.awaitDrain(ctx, time.Now()), nil
	}
	r.accounts.Store(true)
	for start.IsZero() && ctx.Err() == nil {
		r.awaitDrain(ctx, time.Now())
		start = r.sampling.WaitsSince()
		if waits := r.sampling.Waits(); waits.Error != "" {
			return start, fmt.Errorf("recording waits: %s", waits.Error)
		}
	}
	return start, nil
}

// awaitDrain waits for a drain that begins after a time, and returns when it began.
func (r *Recorder) awaitDrain(ctx context.Context, after time.Time) time.Time {
	poll := time.NewTicker(drainInterval / 10)
	defer poll.Stop()
	for {
		if start := r.sampling.LastDrain(); start.After(after) {
			return start
		}
		if late := time.Now(); late.Sub(after) > drainGrace { // sampling is in trouble, and counts that
			return late
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return time.Time{}
		}
	}
}

var errTooManyProcesses = errors.New("too many processes")

// Admit returns an error when as many processes are recorded as may be, or have ended. It is for
// the Manager.
func (r *Recorder) Admit(id procscan.ProcessID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.PID != 0 && r.taken > 0 { // another process may have its pid
		return procscan.ErrGone
	}
	_, again := r.ended[id]
	if limit := r.options.MaxProcesses; len(r.processes) >= limit || !again && len(r.ended) >= limit {
		return fmt.Errorf("%w: %d are recorded already, and %d have ended", errTooManyProcesses, len(r.processes),
			len(r.ended))
	}
	return nil
}

// NewHandler returns the handler of a process that was admitted. It is for the Manager.
func (r *Recorder) NewHandler(p *lifecycle.Process) (lifecycle.Handler, lifecycle.Sampler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &handler{recorder: r, process: p, id: p.Identity(), probed: make(chan struct{})}
	for _, earlier := range r.ended[h.id] {
		h.earlier += len(earlier.sampled())
	}
	r.learning.Add(1) // until Close: it may start a goroutine for the Learner at any time before
	r.processes[h.id] = h
	delete(r.refused, h.id)
	r.taken++
	h.sampler = sampling.NewProcessSampler(r.sampling, p.Target(), h.sink, p.Active(), 0)
	return h, h.sampler
}

// Refused records that a process is not recorded for a reason of our own, as long as it is not. It
// is for the Manager.
func (r *Recorder) Refused(id procscan.ProcessID, _ lifecycle.RefusalReason, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.refused[id]; known || len(r.refused) < r.options.MaxProcesses {
		r.refused[id] = err
	}
}

// Swept reports how the first sweep ended, and records the first error. It is for the Manager.
func (r *Recorder) Swept(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sweeps++; r.sweeps == 1 {
		r.swept <- err
	} else if r.options.PID == 0 { // else its end is noticed otherwise
		r.recordSweepError(err)
	}
}

// recordSweepError records the first error of a sweep. Later ones have the same reason, as a rule,
// every second. It is called with mu held.
func (r *Recorder) recordSweepError(err error) {
	if err != nil && !r.sweepFailed {
		r.sweepFailed = true
		r.failed = append(r.failed, Failure{Err: fmt.Errorf("looking for processes: %w", err)})
		r.log.Error("sweep ended early", zap.String("reason", "sweeps_failed"), zap.Error(err))
	}
}

// running returns what is said of pids, of the programs that processes with these run.
func (r *Recorder) running(said map[int]string) map[*Process]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := make(map[*Process]string)
	for id, h := range r.processes {
		if programs := h.recorded(); len(programs) > 0 && said[id.PID] != "" {
			of[programs[len(programs)-1]] = said[id.PID]
		}
	}
	return of
}

// sampled returns all processes that are, or were, sampled. It is called with mu held.
func (r *Recorder) sampled() (processes []*Process) {
	for _, handlers := range r.ended {
		for _, h := range handlers {
			processes = append(processes, h.recorded()...)
		}
	}
	for _, h := range r.processes {
		processes = append(processes, h.recorded()...)
	}
	slices.SortFunc(processes, func(a, b *Process) int { return cmp.Compare(a.PID, b.PID) })
	return processes
}
