package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/attach"
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker/access"
	"correlator/internal/worker/cost"
	"correlator/messaging"
	"correlator/messaging/feed"
	"correlator/procscan"
	"correlator/profile"
)

// shutdownGrace is added to the samples-delay when the agent ends: what a process's own goroutine
// needs to notice, on a busy machine. One that is stuck in a system call does not delay the end by more
// than twice that.
const shutdownGrace = time.Second

// An Exporter receives what the agent samples, besides the senders. It must not block.
type Exporter interface {
	// TakesSamples reports whether Sampled has a use for samples now. It is called for each of them.
	TakesSamples() bool
	// Sampled is called with complete samples. The sample stays the caller's; what it refers to may
	// be kept.
	Sampled(sample *profile.Sample)
	// TakesUntraced reports whether samples of threads that worked on no trace are wanted, too.
	TakesUntraced() bool
	// TakesAccounts reports whether Accounted or Waited has a use for what it gets now. It does not wait.
	TakesAccounts() bool
	// Accounted is called with accounts, which stay the caller's.
	Accounted(account *profile.Account)
	// Waited is called with samples that have a Wait, if TakesAccounts. They are the caller's as for Sampled.
	Waited(sample *profile.Sample)
}

// Agent registers with processes, and sends them what is sampled of them and fed to it.
type Agent struct {
	config   Config
	exporter Exporter // nil: nothing is exported
	log      *zap.Logger
	counters Counters

	manager        *lifecycle.Manager
	access         *access.Client
	shows          messaging.SenderPID                // to receivers of messages
	sockets        process.Claims[messaging.SocketID] // that we are connected to
	poller         *messaging.Poller                  // of all senders
	threads        *bpf.Threads                       // nil without a feed, or if not permitted here
	feed           *feed.Server                       // nil without a feed socket
	sampling       *sampling.Sampling                 // the manager's; nil without a sampler
	work           workReader
	agentNotLoaded atomic.Pointer[[]process.View] // JVMs whose agent has not loaded its library; replaced as a whole

	partial  error // why not all processes of the host are seen
	started  time.Time
	meter    *cost.Meter
	refused  [lifecycle.NumRefusalReasons]atomic.Bool // was logged
	ending   atomic.Bool
	drainCtx context.Context // ends when the end is not to wait for what is queued
	stopNow  context.CancelFunc
	dropping sync.WaitGroup // what is queued for processes that were abandoned

	registrations *attach.Column[*registration]
	resources     sync.Map // *profile.Resource by pid, of processes whose samples are exported

	services services
}

// New opens what the agent needs; Run closes it. The configuration must be valid. The exporter gets
// what the agent samples, until Run has ended; nil: nothing is exported.
func New(cfg Config, exporter Exporter, log *zap.Logger) (*Agent, error) {
	if err := messaging.Supported(); err != nil {
		return nil, err
	}
	a := &Agent{config: cfg, exporter: exporter, log: log, started: time.Now(),
		meter:    cost.NewMeter(cfg.ProcRoot),
		services: services{limit: cfg.MetricsServices, named: make(map[string]*ServiceCounts)}}
	a.work.agent, a.work.now = a, time.Now
	a.partial = procscan.ProbeHostView(cfg.ProcRoot)
	a.drainCtx, a.stopNow = context.WithCancel(context.Background())
	var err error
	if a.config.Filter, err = cfg.Filter.Resolve(cfg.ProcRoot); err != nil {
		return nil, err
	}
	if a.access, err = access.Open(cfg.ProcRoot, &a.counters.Workers); err != nil {
		return nil, err
	}
	if a.poller, err = messaging.NewPoller(); err != nil {
		a.access.Close()
		return nil, fmt.Errorf("watching for room in sockets: %w", err)
	}
	if a.shows, err = messaging.FindSenderPID(cfg.ProcRoot); err != nil {
		log.Info("messages show the pid of the agent", zap.NamedError("why", err))
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
			return err
		}
		if a.threads, err = bpf.OpenThreads(); err != nil {
			a.log.Warn("samples fed without context cannot be used",
				because("fed_"+process.OutcomeUnsupported.String()), zap.Error(err))
		}
	}
	s, err := a.openSampling()
	if err != nil {
		return err
	}
	a.sampling = s
	options := lifecycle.Options{
		Access: a.access, ProcRoot: a.config.ProcRoot, Filter: a.config.Filter, MaxProcesses: a.config.MaxProcesses,
		SweepInterval: a.config.ScanInterval, ElasticOnly: a.elasticOnly(),
		Counters: &a.counters.Counters, Log: a.log, ProcessLog: a.log,
	}
	if s != nil {
		options.Sampling = s
	}
	if a.config.Filter.All { // also what is sampled of short processes, up to their end
		options.Linger = 3 * a.config.ReportInterval
	}
	if a.manager, err = lifecycle.Open(options, a); err != nil {
		if s != nil {
			s.Close()
		}
		return err
	}
	a.registrations = attach.NewColumn[*registration](a.manager.Table())
	return nil
}

// elasticOnly reports whether samples in contexts of OpenTelemetry's are of no use.
func (a *Agent) elasticOnly() bool { return a.exporter == nil && a.config.PinMaps == "" }

// samplingOptions say what to sample, and how often to fetch it.
func (a *Agent) samplingOptions() sampling.Options {
	return sampling.Options{
		SamplerOptions: bpf.SamplerOptions{
			SamplesPerSecond: a.config.SamplesPerSecond,
			KernelStacks:     a.config.KernelStacks,
			KeepUnsampled:    a.config.Unsampled,
			KeepUntraced:     a.exporter != nil && a.exporter.TakesUntraced(),
			ByThread:         a.exporter != nil,
			BySpan:           a.exporter != nil,
			MaxTargets:       a.config.MaxProcesses + lifecycle.ExtraProcesses,
			PinDir:           a.config.PinMaps,
			Labels:           a.config.Labels,
			ChainOnly:        a.config.chainOnly,
		},
		Interval: a.config.ReportInterval,
		ProcRoot: a.config.ProcRoot,
		Unwinder: a.config.Unwinder,
		Waits:    a.config.Waits && a.exporter != nil,

		WaitsWanted: func() bool { return a.exporter.TakesAccounts() },
		ElasticOnly: a.elasticOnly(),
		Lazy:        a.config.Filter.All,
		Attributes:  a.config.Attributes,
	}
}

// openSampling opens the sampler, if there is a use for it.
func (a *Agent) openSampling() (*sampling.Sampling, error) {
	if !a.config.needsSampler() {
		return nil, nil
	}
	s, err := sampling.Open(a.samplingOptions(), &a.counters.Sampling, a.log)
	if err != nil && a.config.PinMaps != "" {
		return nil, fmt.Errorf("opening sampler: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening sampler (--samples-per-second 0 with --feed-socket does without): %w", err)
	}
	if a.config.SamplesPerSecond > 0 && a.config.FeedSocket != "" {
		a.log.Warn("samples are taken here and fed, too: the same CPU time is counted twice, unless --samples-per-second is 0")
	}
	if err := s.KernelHidden(); err != nil {
		a.log.Warn("stacks have no kernel frames", zap.Error(err))
	}
	if err := s.KernelUnsampled(); err != nil {
		a.log.Warn("threads are not sampled while they are in the kernel", zap.Error(err))
	}
	return s, nil
}

// close closes what open and New opened, but the manager.
func (a *Agent) close() {
	if a.feed != nil {
		a.feed.Close()
	}
	if a.threads != nil {
		a.threads.Close()
	}
	a.work.close()
	a.poller.Close()
	a.access.Close()
}

// Run serves until ctx ends, then sends what is queued within the samples-delay, or until StopNow,
// and returns nil. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	a.log.Info("correlator runs", zap.String("host_id", a.config.HostID),
		zap.Duration("samples_delay", a.config.SamplesDelay),
		zap.Int("samples_per_second", a.config.SamplesPerSecond), zap.String("feed_socket", a.config.FeedSocket))
	switch {
	case a.partial != nil && a.config.AcceptPartialView:
		a.log.Info("only a part of the host's processes is served, which --accept-partial-view accepts",
			zap.Error(a.partial))
	case a.partial != nil:
		a.log.Warn("not ready: only a part of the host's processes is served", zap.Error(a.partial))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() { a.ending.Store(true) })
	fed := a.serveFeed(ctx, stop)
	go a.watchDelay(ctx)
	go a.watchAgentNotLoaded(ctx)
	a.manager.Run(ctx) // until ctx has ended, or the feed failed
	err := <-fed       // all samples are with their processes now
	a.shutDown()
	return err
}

// serveFeed serves the feed socket, if there is one, until ctx ends or it fails, and then calls
// stop; in either case the channel then has the outcome.
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

// StopNow has Run not wait at its end: what is not sent then is dropped. It may be called at any
// time.
func (a *Agent) StopNow() { a.stopNow() }

// shutDown waits for the processes to send what is queued, and closes what they share. Goroutines
// that are stuck in a system call are left behind, and what they use stays open, but for their sockets.
func (a *Agent) shutDown() {
	if a.feed != nil {
		a.feed.Close()
	}
	// Until the samples-delay is over, or StopNow, and what it takes to notice.
	drained, cancel := context.WithTimeout(a.drainCtx, a.config.SamplesDelay)
	defer cancel()
	ctx, cancelGrace := context.WithCancel(context.Background())
	defer cancelGrace()
	context.AfterFunc(drained, func() {
		a.access.Close() // what waits for a process that hangs waits no more
		time.AfterFunc(shutdownGrace, cancelGrace)
	})
	if stuck, ok := a.manager.Shutdown(ctx); ok {
		a.close()
	} else {
		await(&a.dropping, shutdownGrace) // a message that is being sent may be stuck, too
		a.counters.Errors[process.ReasonTimeout].Add(1)
		a.log.Warn("not all processes were released in time", because(process.ReasonTimeout.String()),
			zap.Ints("pids", stuck))
	}
	a.log.Info("correlator ends", zap.Object("counters", &a.counters),
		zap.Object("sample_to_socket", timing(a.counters.Messages.Timing())))
}

// await waits for a group, but not for long.
func await(group *sync.WaitGroup, atMost time.Duration) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(atMost):
	}
}

// Admit returns nil: how many are served is the Manager's to limit.
func (a *Agent) Admit(procscan.ProcessID) error { return nil }

// NewHandler returns the registration with a process that was admitted. It is for the Manager.
func (a *Agent) NewHandler(p *lifecycle.Process) (lifecycle.Handler, lifecycle.Sampler) {
	r := newRegistration(a, p)
	a.registrations.Set(p.Entry(), r)
	return r, r.sampler
}

// Refused logs the first process that cannot be served for each reason of our own. It is for the
// Manager.
func (a *Agent) Refused(id procscan.ProcessID, reason lifecycle.RefusalReason, err error) {
	if !a.refused[reason].Swap(true) {
		a.log.Error("processes are not served; counted from here on", because("processes_refused_"+reason.String()),
			zap.Int("pid", id.PID), zap.Int("max_processes", a.config.MaxProcesses), zap.Error(err))
	}
}

// Swept logs a sweep that ended early. It is for the Manager.
func (a *Agent) Swept(err error) {
	if err != nil {
		a.log.Error("sweep ended early", because("sweeps_failed"), zap.Error(err))
	}
}

var (
	errStarting = errors.New("the first sweep of all processes has not ended")
	errEnding   = errors.New("the agent ends")
)

// Health returns why the agent should be started again: it has stopped to do what it has to do all
// the time. Processes that cannot be served are no reason; what the machine lacks is an error of
// New. It may block when everything else does, which a caller may take for an answer.
func (a *Agent) Health() error {
	return a.manager.Health(a.config.ReportInterval)
}

// Ready returns why the agent does not serve all processes of the host, yet or any more: that of
// Started, it does not see all, there are too many, or the engine that is to unwind their stacks
// does not run.
func (a *Agent) Ready() error {
	if err := a.Started(); err != nil {
		return err
	}
	if a.partial != nil && !a.config.AcceptPartialView {
		return fmt.Errorf("only a part of the host's processes is served (--accept-partial-view accepts that): %w",
			a.partial)
	}
	if publishing, _ := a.manager.WithoutPlace(); publishing > 0 {
		return fmt.Errorf("%d more processes publish than the %d that are served at a time (--max-processes)",
			publishing, a.config.MaxProcesses)
	}
	if a.config.Unwinder == sampling.FullUnwinder && a.sampling != nil {
		if err := a.sampling.UnwindingError(); err != nil {
			return fmt.Errorf("stacks are walked by frame pointers (--unwinder auto accepts that): %w", err)
		}
	}
	return nil
}

// Unwinding returns how stacks are unwound, nil when they are not to be.
func (a *Agent) Unwinding() *sampling.UnwindingStatus {
	if a.sampling == nil {
		return nil
	}
	return a.sampling.Unwinding()
}

// Waits returns whether it is accounted what transactions wait for; nil: nobody asked for that.
func (a *Agent) Waits() *sampling.WaitsStatus {
	if a.sampling == nil {
		return nil
	}
	return a.sampling.Waits()
}

// Started returns why the agent does not work: it has not seen all processes that were there when it
// started, is not healthy, or ends. Other than with Ready, no process can bring that about.
func (a *Agent) Started() error {
	if a.ending.Load() {
		return errEnding
	}
	if a.counters.Sweeps.Load() == 0 {
		return errStarting
	}
	return a.Health()
}

// Config returns the agent's configuration.
func (a *Agent) Config() Config { return a.config }

// Counters returns what the agent has counted so far.
func (a *Agent) Counters() *Counters { return &a.counters }
