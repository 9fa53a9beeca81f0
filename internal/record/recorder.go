package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/procscan"
	"correlator/procscan/watch"
	"correlator/profile"
)

// DefaultMaxProcesses is more than a host of any size runs of JVMs. Each of them takes three descriptors,
// and one when it has ended.
const DefaultMaxProcesses = 4096

const (
	// drainInterval is how often samples are fetched. What a process has to be looked at for is looked at
	// then, and it may end before.
	drainInterval = 100 * time.Millisecond

	// sweepInterval is how often processes that were started meanwhile are looked for.
	sweepInterval = time.Second

	// attachGrace is how long recording waits at most for processes that were found at first to be sampled:
	// one that hangs does not hold it up. A busy host needs some tenths of a second.
	attachGrace = 2 * time.Second

	// endGrace is how long the processes' goroutines, and Learners, may take to end. One that is stuck in a
	// system call does not hold up the end.
	endGrace = 2 * time.Second
)

// Options say what to record.
type Options struct {
	ProcRoot         string // where the host's procfs is mounted
	SamplesPerSecond int    // of every CPU, from 1 to bpf.MaxSamplesPerSecond
	KernelStacks     bool   // stacks begin with the kernel's frames
	PID              int    // the only process; 0: all
	Filter           process.Filter
	Duration         time.Duration // how long to record, from Recording.Start on; 0: until the context ends
	MaxProcesses     int           // that run at a time, and that have ended; 0: DefaultMaxProcesses
	Learner          Learner       // may be nil
}

// A Learner wants to know what is sampled while processes live.
type Learner interface {
	// Learn is told the frames of each stack of a process when that is first seen. Each process has its
	// own goroutine for that; Learn may block as long as it likes, and may still do so when the recording
	// is there. It must not change the frames.
	Learn(process *Process, frames []profile.Frame)
}

// Progress is how far a recording is.
type Progress struct {
	Start     time.Time // Recording.Start; zero: not begun yet
	Samples   uint64
	WithTrace uint64 // of them
	Processes int    // that are, or were, sampled, whatever programs they executed
}

// Recorder samples the CPU time of processes that take part, in transactions and outside, for a while. It
// is no agent: it connects to no socket, and sends nothing.
type Recorder struct {
	options   Options
	log       *zap.Logger
	scanner   *procscan.Scanner
	files     *elfsym.Cache
	exits     *watch.ExitWatcher
	sampling  *sampling.Sampling
	counters  sampling.Counters
	tally     *tally
	originals process.Claims[process.Original] // what is published
	over      chan struct{}                    // closed when the only process to be recorded has ended
	denied    map[procscan.ProcessID]struct{}  // could not be looked into; owned by find
	running   sync.WaitGroup

	mu        sync.Mutex
	processes map[procscan.ProcessID]*subject // those that run
	recorded  []*subject                      // those that have ended, and were sampled
	failed    []Failure                       // those that were not, or not to the end
	refused   map[procscan.ProcessID]error    // why they are not recorded (yet)

	sweepFailed bool // which is told once
}

// Open opens what the recorder needs; Run closes it. The error is a *bpf.MissingError when the machine, or
// the rights of this process, lack something.
func Open(options Options, log *zap.Logger) (*Recorder, error) {
	if options.SamplesPerSecond < 1 {
		return nil, fmt.Errorf("recording %d samples per second: not from 1 to %d", options.SamplesPerSecond, bpf.MaxSamplesPerSecond)
	}
	if options.MaxProcesses == 0 {
		options.MaxProcesses = DefaultMaxProcesses
	}
	r := &Recorder{
		options: options, log: log, over: make(chan struct{}),
		processes: make(map[procscan.ProcessID]*subject),
		refused:   make(map[procscan.ProcessID]error),
		denied:    make(map[procscan.ProcessID]struct{}),
	}
	var err error
	if r.scanner, err = procscan.NewScanner(options.ProcRoot); err != nil {
		return nil, err
	}
	if r.files, err = elfsym.NewCache(process.LibraryCacheEntries); err != nil {
		return nil, err
	}
	if r.exits, err = watch.NewExitWatcher(); err != nil {
		return nil, fmt.Errorf("watching for exits: %w", err)
	}
	r.sampling, err = sampling.Open(sampling.Options{
		SamplerOptions: bpf.SamplerOptions{
			SamplesPerSecond: options.SamplesPerSecond,
			KernelStacks:     options.KernelStacks,
			KeepUnsampled:    true,
			KeepUntraced:     true,
			ByThread:         true,
			MaxTargets:       options.MaxProcesses,
		},
		Interval: drainInterval,
		ProcRoot: options.ProcRoot,
	}, &r.counters, log)
	if err != nil {
		r.exits.Close()
		return nil, fmt.Errorf("opening sampler: %w", err)
	}
	if err := r.sampling.KernelHidden(); err != nil {
		log.Warn("stacks have no kernel frames", zap.Error(err))
	}
	r.tally = newTally(r.sampling.Stack)
	return r, nil
}

// Progress is how far the recording is. It may be called by any goroutine, while Run runs.
func (r *Recorder) Progress() Progress {
	progress := r.tally.progress()
	r.mu.Lock()
	defer r.mu.Unlock()
	progress.Processes = len(r.recorded)
	for _, s := range r.processes {
		if len(s.sampled()) > 0 {
			progress.Processes++
		}
	}
	return progress
}

// Run records until ctx ends, or Options.Duration is over, or the only process that is to be recorded has
// ended; the caller must Close the recording. It is an error when that process takes no part, or could not be
// sampled, or when nothing can be found. Run is called once.
func (r *Recorder) Run(ctx context.Context) (*Recording, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serving, stopServing := context.WithCancel(context.Background())
	defer stopServing()

	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		r.sampling.Run(ctx)
	}()
	found := make(chan error, 1)
	r.running.Go(func() { found <- r.find(ctx, serving, stop) })
	var err error
	select {
	case err = <-found: // before ctx has ended only with an error
	case <-r.over:
	case <-ctx.Done():
	}
	stop()
	ended := time.Now()
	<-sampled // all samples are with their processes now
	stopServing()
	recording := &Recording{SamplesPerSecond: r.options.SamplesPerSecond}
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

// sampled are all processes that are, or were, sampled. It is called with mu held.
func (r *Recorder) sampled() (processes []*Process) {
	for _, s := range r.recorded {
		processes = append(processes, s.recorded()...)
	}
	for _, s := range r.processes {
		processes = append(processes, s.recorded()...)
	}
	slices.SortFunc(processes, func(a, b *Process) int { return cmp.Compare(a.PID, b.PID) })
	return processes
}
