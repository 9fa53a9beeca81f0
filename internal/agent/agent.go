package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/sampling"
	"correlator/internal/target"
	"correlator/messaging"
	"correlator/messaging/feed"
	"correlator/procscan"
)

const (
	// maxProcesses bounds the processes that are served. Each can make its goroutine hang in a
	// system call and so take a thread, of which Go allows 10,000, and each takes two descriptors.
	maxProcesses = 4096

	// hangTimeout is how long one look at a process may take before it is told that it hangs.
	hangTimeout = 2 * time.Second

	// shutdownGrace is added to the samples-delay when the agent ends: what a process's own
	// goroutine needs to notice. One that is stuck in a system call does not hold up the end.
	shutdownGrace = 200 * time.Millisecond
)

// Agent finds processes, registers with them, and sends them what is sampled of them and fed to it.
type Agent struct {
	config   Config
	log      *zap.Logger
	counters Counters

	scanner  *procscan.Scanner
	files    *elfsym.Cache
	exits    *procscan.ExitWatcher
	poller   *messaging.Poller  // of all processes' senders
	threads  *bpf.Threads       // nil without a feed, or when this kernel or our rights do not allow it
	feed     *feed.Server       // nil without a feed socket
	sampling *sampling.Sampling // nil when we take no samples

	mu        sync.RWMutex
	processes map[int]*process // by pid
	running   sync.WaitGroup
}

// New opens what the agent needs; Run closes it. The configuration must be valid.
func New(cfg Config, log *zap.Logger) (*Agent, error) {
	if err := messaging.Supported(); err != nil {
		return nil, err
	}
	a := &Agent{config: cfg, log: log, processes: make(map[int]*process)}
	var err error
	if a.files, err = elfsym.NewCache(target.LibraryCacheEntries); err != nil {
		return nil, err
	}
	if a.scanner, err = procscan.NewScanner(cfg.ProcRoot); err != nil {
		return nil, err
	}
	if a.exits, err = procscan.NewExitWatcher(); err != nil {
		return nil, fmt.Errorf("watching for exits: %w", err)
	}
	if a.poller, err = messaging.NewPoller(); err != nil {
		a.exits.Close()
		return nil, fmt.Errorf("watching for room in sockets: %w", err)
	}
	if err := a.open(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// open opens where samples come from.
func (a *Agent) open() (err error) {
	if a.config.FeedSocket != "" {
		if a.feed, err = feed.Listen(a.config.FeedSocket, &a.counters.Feed); err != nil {
			return fmt.Errorf("opening feed socket: %w", err)
		}
		if a.threads, err = bpf.OpenThreads(); err != nil {
			a.log.Warn("samples fed without context cannot be used", zap.Error(err))
		}
	}
	if !a.config.needsSampler() {
		return nil
	}
	a.sampling, err = sampling.Open(sampling.Options{
		SamplerOptions: bpf.SamplerOptions{
			SamplesPerSecond: a.config.SamplesPerSecond,
			KernelStacks:     a.config.KernelStacks,
			KeepUnsampled:    a.config.Unsampled,
			MaxTargets:       maxProcesses,
			PinDir:           a.config.PinMaps,
		},
		Interval: a.config.ReportInterval,
		ProcRoot: a.config.ProcRoot,
	}, &a.counters.Sampling, a.log)
	if err != nil && a.config.PinMaps != "" {
		return fmt.Errorf("opening sampler: %w", err)
	}
	if err != nil {
		return fmt.Errorf("opening sampler (--samples-per-second 0 with --feed-socket does without): %w", err)
	}
	if a.config.SamplesPerSecond > 0 && a.config.FeedSocket != "" {
		a.log.Warn("samples are taken here and fed, too: the same CPU time is told twice, unless --samples-per-second is 0")
	}
	if err := a.sampling.KernelHidden(); err != nil {
		a.log.Warn("stacks have no kernel frames", zap.Error(err))
	}
	return nil
}

func (a *Agent) close() {
	if a.feed != nil {
		a.feed.Close()
	}
	if a.threads != nil {
		a.threads.Close()
	}
	if a.sampling != nil {
		a.sampling.Close()
	}
	a.exits.Close()
	a.poller.Close()
}

// Run serves until ctx ends, then sends what is queued within the samples-delay, and returns nil.
// It is called once.
func (a *Agent) Run(ctx context.Context) error {
	a.log.Info("correlator runs", zap.String("host_id", a.config.HostID), zap.Duration("samples_delay", a.config.SamplesDelay),
		zap.Int("samples_per_second", a.config.SamplesPerSecond), zap.String("feed_socket", a.config.FeedSocket))
	feeding, stopFeeding := context.WithCancel(ctx)
	defer stopFeeding()
	fed := a.serveFeed(feeding, stopFeeding)
	sampled := a.sample(feeding)
	go a.watchPromise(feeding)
	serving, stopServing := context.WithCancel(context.Background())
	defer stopServing()

	swept := make(chan struct{})
	go func() {
		defer close(swept)
		a.sweepUntilDone(feeding, serving)
	}()
	<-feeding.Done() // ctx has ended, or the feed failed
	err := <-fed
	<-sampled // all samples are with their processes now
	stopServing()
	a.shutDown(swept)
	return err
}

// sweepUntilDone sweeps at once and then every scan interval, until sweeping ends. The processes
// that it finds are served until serving ends.
func (a *Agent) sweepUntilDone(sweeping, serving context.Context) {
	ticker := time.NewTicker(a.config.ScanInterval)
	defer ticker.Stop()
	for sweeping.Err() == nil {
		a.sweep(serving)
		select {
		case <-sweeping.Done():
		case <-ticker.C:
		}
	}
}

// serveFeed serves the feed socket, if there is one, until stop is called or it fails; in either
// case the channel then has the outcome.
func (a *Agent) serveFeed(ctx context.Context, stop func()) <-chan error {
	ended := make(chan error, 1)
	if a.feed == nil {
		ended <- nil
		return ended
	}
	go func() {
		err := a.feed.Serve(ctx, a.route)
		ended <- err
		stop()
	}()
	return ended
}

// sample takes samples until ctx ends. The channel is closed when the last of them are with their
// processes.
func (a *Agent) sample(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if a.sampling != nil {
			a.sampling.Run(ctx)
		}
	}()
	return ended
}

// sweep looks at all processes once: those that are new get their goroutine, the others hear
// what they map now.
func (a *Agent) sweep(serving context.Context) {
	report, err := a.scanner.Sweep(func(found procscan.Found) { a.found(serving, found) })
	a.counters.Sweeps.Add(1)
	if err != nil {
		a.counters.SweepsFailed.Add(1)
		a.log.Error("sweep ended early", zap.Error(err))
	}
	for _, process := range report.Unreadable {
		a.counters.ProcessesDenied.Add(1)
		a.log.Warn("process cannot be looked into", zap.Int("pid", process.PID), zap.Error(process.Err))
	}
	a.tellStuck()
}

func (a *Agent) found(serving context.Context, found procscan.Found) {
	a.mu.RLock()
	known, processes := a.processes[found.PID], len(a.processes)
	a.mu.RUnlock()
	if known != nil && known.id == found.Identity {
		a.tellTruncated(known, found)
		known.maps(found.Libraries)
		return
	}
	if serving.Err() != nil {
		return
	}
	if processes >= maxProcesses {
		a.refuseProcess(found, fmt.Errorf("serving %d processes already", processes))
		return
	}
	p, err := a.newProcess(found)
	if errors.Is(err, procscan.ErrGone) {
		return
	}
	if err != nil {
		a.refuseProcess(found, err)
		return
	}
	a.tellTruncated(p, found)
	a.mu.Lock()
	a.processes[found.PID] = p // one with the same pid has ended, and forgets itself
	a.mu.Unlock()
	a.running.Add(1)
	go func() {
		defer a.running.Done()
		p.run(serving)
	}()
}

// refuseProcess tells of a process that cannot be served for a reason of our own. It is found again by
// the next sweep; the first time is logged, all are counted.
func (a *Agent) refuseProcess(found procscan.Found, err error) {
	if a.counters.ProcessesRefused.Add(1) == 1 {
		a.log.Error("processes are not served; counted from here on", zap.Int("pid", found.PID), zap.Error(err))
	}
}

// tellTruncated counts a process, and logs it, that maps more libraries than are looked at: if the
// agent in it uses one of the others, it is not found.
func (a *Agent) tellTruncated(p *process, found procscan.Found) {
	if found.Truncated && !p.truncated {
		p.truncated = true
		a.counters.Truncated.Add(1)
		p.log.Warn("process maps too many libraries: only the first are looked at", zap.Int("libraries", len(found.Libraries)))
	}
}

// tellStuck counts the processes that make their goroutines hang, and logs each once.
func (a *Agent) tellStuck() {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, p := range a.processes {
		if p.stuck() && !p.stuckTold {
			p.stuckTold = true
			a.counters.Troubles[target.ReasonTimeout].Add(1)
			p.log.Warn(troubleMessage, zap.Stringer("reason", target.ReasonTimeout))
		}
	}
}

func (a *Agent) newProcess(found procscan.Found) (*process, error) {
	t, err := target.Open(a.config.ProcRoot, found)
	if err != nil {
		return nil, err
	}
	p := &process{
		agent:    a,
		id:       found.Identity,
		log:      a.log.With(zap.Int("pid", found.PID)),
		sender:   messaging.NewSender(&a.counters.Messages, a.poller),
		mappings: make(chan []procscan.Mapping, 1),
		samples:  make(chan []sample, backlogBatches),
		held:     newHeldQueue(),
		exited:   make(chan struct{}),
		target:   t,
		view:     target.NewView(found.Identity),
	}
	if err := a.exits.Add(t.Handle(), func() { close(p.exited) }); err != nil {
		t.Close()
		return nil, err
	}
	return p, nil
}

// forget takes a process off the registry, unless its pid is another's by now. When it returns, no
// more samples come for the process.
func (a *Agent) forget(p *process) {
	if a.sampling != nil {
		a.sampling.Forget(p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.processes[p.id.PID] == p {
		delete(a.processes, p.id.PID)
	}
}

func (a *Agent) registration() messaging.Registration {
	return messaging.Registration{SamplesDelay: a.config.SamplesDelay, HostID: a.config.HostID}
}

// shutDown waits for the processes to send what is queued, and closes what they share. What is
// stuck in a system call, a process or the sweep, is left behind, and what it uses stays open.
func (a *Agent) shutDown(swept <-chan struct{}) {
	if a.feed != nil {
		a.feed.Close()
	}
	ended := make(chan struct{})
	go func() {
		<-swept // no more processes
		a.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		a.close()
	case <-time.After(a.config.SamplesDelay + shutdownGrace):
		a.mu.RLock()
		a.log.Warn("not everything let go of us", zap.Ints("pids", slices.Sorted(maps.Keys(a.processes))))
		a.mu.RUnlock()
	}
	a.log.Info("correlator ends", zap.Object("counters", &a.counters),
		zap.Object("sample_to_socket", timing(a.counters.Messages.Timing())))
}

// Processes is what is known of the processes that take part, by pid.
func (a *Agent) Processes() []target.View {
	a.mu.RLock()
	defer a.mu.RUnlock()
	views := make([]target.View, 0, len(a.processes))
	for _, p := range a.processes {
		if view, ok := p.snapshot(); ok {
			views = append(views, view)
		}
	}
	slices.SortFunc(views, func(a, b target.View) int { return cmp.Compare(a.PID, b.PID) })
	return views
}

// Counters is what the agent has counted so far.
func (a *Agent) Counters() *Counters { return &a.counters }
