package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/memread"
	"correlator/messaging"
	"correlator/messaging/feed"
	"correlator/procscan"
	"correlator/procscan/watch"
)

const (
	// hangTimeout is how long one look at a process may take before it is told that it hangs.
	hangTimeout = 2 * time.Second

	// shutdownGrace is added to the samples-delay when the agent ends: what a process's own
	// goroutine needs to notice. One that is stuck in a system call does not hold up the end.
	shutdownGrace = 200 * time.Millisecond
)

// Agent finds processes, registers with them, and sends them what is sampled of them and fed to it.
type Agent struct {
	config   Config
	exporter Exporter // nil: nothing is exported
	log      *zap.Logger
	counters Counters

	discovery *discovery
	files     *elfsym.Cache
	exits     *watch.ExitWatcher
	lookout   *lookout
	originals process.Claims[process.Original]   // what is published
	sockets   process.Claims[messaging.SocketID] // that we are connected to
	poller    *messaging.Poller                  // of all processes' senders
	threads   *bpf.Threads                       // nil without a feed, or when this kernel or our rights do not allow it
	feed      *feed.Server                       // nil without a feed socket
	sampling  *sampling.Sampling                 // nil when we take no samples

	started time.Time
	ending  atomic.Bool
	patient context.Context // ends when the end is not to wait
	hurry   context.CancelFunc

	mu        sync.RWMutex
	processes map[int]*servedProcess // by pid
	running   sync.WaitGroup
}

// New opens what the agent needs; Run closes it. The configuration must be valid. The exporter gets what the
// agent samples by itself, until Run has ended; nil: nobody does.
func New(cfg Config, exporter Exporter, log *zap.Logger) (*Agent, error) {
	if err := messaging.Supported(); err != nil {
		return nil, err
	}
	a := &Agent{config: cfg, exporter: exporter, log: log, started: time.Now(), processes: make(map[int]*servedProcess)}
	a.patient, a.hurry = context.WithCancel(context.Background())
	var err error
	if a.files, err = elfsym.NewCache(process.LibraryCacheEntries); err != nil {
		return nil, err
	}
	if a.discovery, err = newDiscovery(cfg.ProcRoot); err != nil {
		return nil, err
	}
	if a.exits, err = watch.NewExitWatcher(); err != nil {
		return nil, fmt.Errorf("watching for exits: %w", err)
	}
	if a.poller, err = messaging.NewPoller(); err != nil {
		a.exits.Close()
		return nil, fmt.Errorf("watching for room in sockets: %w", err)
	}
	a.lookout = newLookout(&a.counters.LookoutHangs)
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
			return err
		}
		if a.threads, err = bpf.OpenThreads(); err != nil {
			a.log.Warn("samples fed without context cannot be used", because("fed_"+process.OutcomeUnsupported.String()), zap.Error(err))
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
			KeepUntraced:     a.exporter != nil && a.exporter.TakesUntraced(),
			ByThread:         a.exporter != nil,
			BySpan:           a.exporter != nil,
			MaxTargets:       a.config.MaxProcesses,
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
	a.lookout.close()
	a.exits.Close()
	a.poller.Close()
}

// Run serves until ctx ends, then sends what is queued within the samples-delay, or until Hurry, and returns nil.
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

	discovered := make(chan struct{})
	go func() {
		defer close(discovered)
		a.discover(feeding, serving)
	}()
	<-feeding.Done() // ctx has ended, or the feed failed
	a.ending.Store(true)
	err := <-fed
	<-sampled // all samples are with their processes now
	stopServing()
	a.shutDown(discovered)
	return err
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

// StopNow has Run not wait at its end: what is not sent then is dropped. It may be called at any time.
func (a *Agent) StopNow() { a.hurry() }

func (a *Agent) newProcess(found procscan.Found) (*servedProcess, error) {
	t, err := process.Open(a.config.ProcRoot, found, a.config.Filter)
	if err != nil {
		return nil, err
	}
	p := &servedProcess{
		agent:   a,
		id:      found.ProcessID,
		log:     a.log.With(zap.Int("pid", found.PID)),
		sender:  messaging.NewSender(&a.counters.Messages, a.poller),
		stirred: make(chan struct{}, 1),
		samples: make(chan []sample, backlogBatches),
		held:    sampling.NewHeldQueue(),
		names:   newThreadNames(),
		exited:  make(chan struct{}),
		target:  t,
		shown:   shown{view: process.NewView(found.ProcessID)},
	}
	p.follower = sampling.NewFollower(a.sampling, t, func(bpf.ExecID) sampling.Receiver { return p.newProgram() })
	if err := a.exits.Add(t.Handle(), func() { close(p.exited) }); err != nil {
		t.Close()
		return nil, err
	}
	p.own = process.NewOwnership(&a.originals, p)
	p.watched = a.lookout.add(func() *memread.Process { return memread.Open(a.config.ProcRoot, found.PID) }, p.Stir)
	return p, nil
}

// process is what is served by that number now, or nil.
func (a *Agent) process(pid int) *servedProcess {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.processes[pid]
}

// forget takes a process off the registry, unless its pid is another's by now. When it returns, no
// more samples come for the process.
func (a *Agent) forget(p *servedProcess) {
	if a.sampling != nil {
		a.sampling.Forget(func(r sampling.Receiver) bool { return r.(*program).servedProcess == p })
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.processes[p.id.PID] == p {
		delete(a.processes, p.id.PID)
	}
}

// awaits says whether something ends in time: within the samples-delay, or before Hurry, and what it takes to notice.
func (a *Agent) awaits(ended <-chan struct{}) bool {
	patience, cancel := context.WithTimeout(a.patient, a.config.SamplesDelay)
	defer cancel()
	select {
	case <-ended:
		return true
	case <-patience.Done():
	}
	select {
	case <-ended:
		return true
	case <-time.After(shutdownGrace):
		return false
	}
}

func (a *Agent) registration() messaging.Registration {
	return messaging.Registration{SamplesDelay: a.config.SamplesDelay, HostID: a.config.HostID}
}

// shutDown waits for the processes to send what is queued, and closes what they share. What is
// stuck in a system call, a process or the sweep, is left behind, and what it uses stays open.
func (a *Agent) shutDown(discovered <-chan struct{}) {
	if a.feed != nil {
		a.feed.Close()
	}
	ended := make(chan struct{})
	go func() {
		<-discovered // no more processes
		a.running.Wait()
		close(ended)
	}()
	if a.awaits(ended) {
		a.close()
	} else {
		a.mu.RLock()
		a.counters.Troubles[process.ReasonTimeout].Add(1)
		a.log.Warn("not everything let go of us", because(process.ReasonTimeout.String()), zap.Ints("pids", slices.Sorted(maps.Keys(a.processes))))
		a.mu.RUnlock()
	}
	a.log.Info("correlator ends", zap.Object("counters", &a.counters),
		zap.Object("sample_to_socket", timing(a.counters.Messages.Timing())))
}

// Config is what the agent was told.
func (a *Agent) Config() Config { return a.config }

// Counters is what the agent has counted so far.
func (a *Agent) Counters() *Counters { return &a.counters }
