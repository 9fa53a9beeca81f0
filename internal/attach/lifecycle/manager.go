package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/internal/attach"
	"correlator/internal/attach/mempoll"
	"correlator/internal/attach/process"
	"correlator/internal/host/timerfd"
	"correlator/internal/worker/access"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// Options say which processes are taken, and how.
type Options struct {
	Access        *access.Client // which stays the caller's
	ProcRoot      string         // where the host's procfs is mounted
	Filter        process.Filter
	PID           int           // the only process; 0: all
	MaxProcesses  int           // that are attached at a time, see admission.go; 0: no limit but Client.Admit
	SweepInterval time.Duration // between two sweeps

	Sampling    Sampling      // the Manager runs and closes it; nil: no samples are taken
	ElasticOnly bool          // of processes with contexts of OpenTelemetry's alone nothing is wanted
	Linger      time.Duration // how long samples of a process that has ended are still taken
	RemapGrace  time.Duration // how long a process that no longer maps the library stays a candidate

	Counters   *Counters
	Log        *zap.Logger
	ProcessLog *zap.Logger // of what happens to single processes; nil: it is not logged
}

// A Client is what processes are taken for: registering with APM agents, or recording. Its methods
// must not block.
type Client interface {
	// Admit returns why a process that was found is not taken; procscan.ErrGone when that is no
	// reason of our own. Nothing of the process is open yet.
	Admit(id procscan.ProcessID) error
	// NewHandler returns the Handler and the Sampler of a process that was admitted, which the Manager closes:
	// first the Sampler.
	NewHandler(p *Process) (Handler, Sampler)
	// Refused is called each time that a process is found and not served for a reason of our own.
	// The next sweep finds it again.
	Refused(id procscan.ProcessID, reason RefusalReason, err error)
	// Swept is called after each sweep. An error says why it ended early.
	Swept(err error)
}

// A Handler is what is done with one process. Its methods, but for Abandon, are called on the process's
// goroutine, and may block as long as the process makes them.
type Handler interface {
	// Attach is called when the process publishes something that is its own, after each change.
	// With an error the process stays a candidate; Attach is called again later.
	Attach() error
	// Valid reports whether what Attach did still fits. It is called at probes that find nothing
	// changed.
	Valid() bool
	// Detach undoes Attach.
	Detach()
	// Down has an error when the process has ended what Attach began: it is detached, and probed
	// again.
	Down() <-chan error
	// Probed is called after each probe with its error, or that which keeps an attached process
	// from being sampled.
	Probed(err error)
	// Close is called at the end, that of the process or on shutdown that of the Manager, when all
	// samples have come. An attached process is closed without Detach. Functions that were posted
	// and have not run are called after it.
	Close(shutdown bool)
	// Abandon is called by Shutdown, which waits for that goroutine no longer. The goroutine may be within another
	// method, or call one at any time. Abandon must not block.
	Abandon()
}

// Sampling takes samples of processes; it is a *sampling.Sampling.
type Sampling interface {
	Run(ctx context.Context)
	LastDrain() time.Time
	SetTold(told bool)
	Close() error
}

// A Sampler takes samples of one process; it is a *sampling.ProcessSampler, which says what its methods do.
type Sampler interface {
	Start() error
	Stop() error
	Close() error
	IsRunning() bool
	IsCurrent() bool
	RunsSampled() bool
	Ready() <-chan struct{}
	Serve() (probe bool)
	Probe()
	Invalidate()
	Outdate()
}

// Manager finds processes, and takes each through its life.
type Manager struct {
	options  Options
	client   Client
	log      *zap.Logger
	counters *Counters

	exits     *watch.ExitWatcher
	poller    *mempoll.Poller
	ticker    *timerfd.Timer                   // every maintainInterval
	originals process.Claims[process.Original] // what is published
	discovery discovery
	logBudget *logBudget // of all that is logged of single processes
	admission admission
	hands     *hands
	started   time.Time

	serving     context.Context // ends when processes are to end
	stopServing context.CancelFunc
	discovered  chan struct{} // closed when no more processes are found

	table     *attach.Table
	processes *attach.Column[*Process]
}

// Open opens what the Manager needs; the caller must call Run and Shutdown, or Close. Without an
// error the Manager owns Options.Sampling.
func Open(options Options, client Client) (*Manager, error) {
	m := &Manager{
		options: options, client: client, log: options.Log, counters: options.Counters,
		started: time.Now(), discovered: make(chan struct{}), table: attach.NewTable(),
	}
	m.processes = attach.NewColumn[*Process](m.table)
	m.logBudget = newLogBudget(logBurst, &m.counters.LogDropped)
	if m.options.ProcessLog == nil {
		m.options.ProcessLog = zap.NewNop()
	}
	m.admission.init(options.MaxProcesses, m.counters, m.unended)
	m.serving, m.stopServing = context.WithCancel(context.Background())
	m.hands = newHands(m.serving)
	var err error
	if err = m.initDiscovery(); err != nil {
		return nil, err
	}
	if m.exits, err = watch.NewExitWatcher(); err != nil {
		return nil, fmt.Errorf("watching for exits: %w", err)
	}
	if m.ticker, err = timerfd.NewTicker(maintainInterval); err != nil {
		m.exits.Close()
		return nil, err
	}
	if m.poller, err = mempoll.New(options.Access, &m.counters.PollerHangs); err != nil {
		m.ticker.Close()
		m.exits.Close()
		return nil, err
	}
	return m, nil
}

// Close closes a Manager that does not run.
func (m *Manager) Close() error {
	m.stopServing()
	m.poller.Close()
	m.ticker.Close()
	m.exits.Close()
	if m.options.Sampling == nil {
		return nil
	}
	return m.options.Sampling.Close()
}

// Run finds and samples processes until ctx ends. When it returns, all samples have been handed to
// sinks, or wait for the goroutine of their process; processes go on until Shutdown. It is called
// once.
func (m *Manager) Run(ctx context.Context) {
	go func() {
		defer close(m.discovered)
		m.discover(ctx)
	}()
	if m.options.Sampling != nil {
		m.options.Sampling.Run(ctx)
	}
	<-ctx.Done()
}

// Shutdown ends the goroutines of all processes and waits for them until ctx ends, then closes the
// Manager. Goroutines that are stuck in a system call then are left behind, and what they use stays
// open: it returns the pids of their processes, and false. Their samples are abandoned, and counted as
// that. Run must have returned.
func (m *Manager) Shutdown(ctx context.Context) (stuck []int, ok bool) {
	m.stopServing()
	ended := make(chan struct{})
	go func() {
		<-m.discovered // no more processes
		m.table.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		if err := m.Close(); err != nil {
			m.log.Error("sampling did not end well", zap.Error(err))
		}
		return nil, true
	case <-ctx.Done():
	}
	for _, p := range m.unended() {
		p.handler.Abandon()
		stuck = append(stuck, p.id.PID)
	}
	slices.Sort(stuck)
	return slices.Compact(stuck), false
}

// LiveEvents reports whether new processes are noticed by live events, and not by sweeps alone.
func (m *Manager) LiveEvents() bool { return m.discovery.live.Load() }

// MappingsFrom is where sweeps read mappings from.
func (m *Manager) MappingsFrom() procscan.Source { return m.discovery.scanner.Source() }

// Table returns the table of processes.
func (m *Manager) Table() *attach.Table { return m.table }

// unended returns all processes that have not ended, shown or not.
func (m *Manager) unended() (processes []*Process) {
	for _, e := range m.table.Entries() {
		if p := m.processes.Get(e); p != nil { // else it has ended just now, or is being opened
			processes = append(processes, p)
		}
	}
	return processes
}

// process returns what has a pid now, or nil.
func (m *Manager) process(pid int) *Process { return m.processes.Find(pid) }

// uptime is in ns of the monotonic clock: times that are compared are kept so, whatever happens to
// the time of day.
func (m *Manager) uptime() int64 { return int64(time.Since(m.started)) }
