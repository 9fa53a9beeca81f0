package live

import (
	"context"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/dots/broker"
	"correlator/dots/schema"
	"correlator/internal/live/page"
	"correlator/internal/live/types"
	"correlator/internal/naming"
	"correlator/profile"
)

// MaxGuests is how many connections the embedded broker serves.
const MaxGuests = 64

// Limits of the embedded broker. It serves people who look, not other programs: each has what a host
// of thousands of processes needs to be shown, and all of them together cost the agent no more than
// its unit allows.
const (
	maxQueueBytes  = 8 << 20
	maxMemoryBytes = 48 << 20
	maxCacheBytes  = 24 << 20
	maxFrameBytes  = 64 << 10 // guests publish nothing, and their filters are small
	maxTypes       = 256      // guests have no reason to describe any
	maxTypeBytes   = 1 << 20
	maxGroups      = 256 // of a guest: it joins the types, and selects one transaction at a time
)

// Live publishes what the agent knows. Sampled and Start may be called at the same time.
type Live struct {
	config   Config
	about    About
	log      *zap.Logger
	tracker  *Tracker
	counters counters
	descs    metricDescs
	broker   *broker.Broker // nil: none is embedded
	retry    time.Duration  // how long to wait before another attempt to connect
	wake     chan struct{}  // has a token when what is wanted may have changed
	running  sync.WaitGroup
	stop     context.CancelFunc

	// namer is nil until stacks are wanted: frames have the names that they come with.
	namer       atomic.Pointer[naming.Namer]
	namerFailed bool // owned by the publisher
}

// Open binds the endpoints of the embedded broker. The caller must call Shutdown.
func Open(config Config, about About, log *zap.Logger) (*Live, error) {
	l := &Live{config: config, about: about, log: log, tracker: NewTracker(about.SamplesPerSecond),
		descs: newMetricDescs(), retry: 5 * time.Second, wake: make(chan struct{}, 1), stop: func() {}}
	if len(config.Listen) == 0 {
		return l, nil
	}
	l.broker = broker.New(broker.Options{
		Name: "correlator", ReadOnly: true, Page: page.Handler(), Events: &events{l},
		Auth: broker.Auth{Secret: config.Secret},
		Limits: broker.Limits{Frame: maxFrameBytes, Queue: maxQueueBytes, Memory: maxMemoryBytes,
			Cache: maxCacheBytes, Guests: MaxGuests, Types: maxTypes, TypeBytes: maxTypeBytes, Groups: maxGroups},
	})
	if err := l.listen(); err != nil {
		l.Shutdown(context.Background())
		return nil, err
	}
	return l, nil
}

func (l *Live) listen() error {
	for _, s := range types.Published() {
		if err := l.broker.RegisterType(s); err != nil {
			return err
		}
	}
	for _, uri := range l.config.Listen {
		addr, err := l.broker.ListenURI(uri)
		if err != nil {
			return err
		}
		l.log.Info("serving the live view", zap.String("endpoint", uri), zap.Stringer("address", addr))
	}
	return nil
}

// TakesUntraced returns false: how much CPU is used in no transaction is known by the process.
func (l *Live) TakesUntraced() bool { return false }

// Sampled takes account of samples. While nobody has joined a type that is made of them, that is one
// comparison. It waits for nothing. The sample stays the caller's.
func (l *Live) Sampled(sample *profile.Sample) {
	if !l.tracker.Sampled(sample) {
		return
	}
	if namer := l.namer.Load(); namer != nil {
		namer.Sampled(sample)
		return
	}
	l.tracker.Named(sample)
}

// Start publishes what a source knows until Shutdown.
func (l *Live) Start(source Source) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	p := &publisher{about: l.about, source: source, tracker: l.tracker, name: l.name, log: l.log,
		stacksWanted: l.openNamer}
	if l.broker != nil {
		p.add(&local{live: l, output: output{bus: embedded{l.broker}}})
	}
	if l.config.Connect != "" {
		l.running.Go(func() { l.connect(ctx, p) })
	}
	l.running.Go(func() { p.run(ctx, l.wake) })
}

// openNamer prepares to name frames, once.
func (l *Live) openNamer() {
	if l.namer.Load() != nil || l.namerFailed || l.about.SamplesPerSecond == 0 {
		return
	}
	namer, err := naming.Open(l.about.ProcRoot, &l.counters.naming, l.tracker.Named)
	if err != nil {
		l.namerFailed = true
		l.log.Warn("the live view shows addresses instead of names of functions", zap.Error(err))
		return
	}
	l.namer.Store(namer)
}

// name returns what a frame is shown as.
func (l *Live) name(resource *profile.Resource, f profile.Frame) (name string, known bool) {
	if namer := l.namer.Load(); f.Name() == "" && namer != nil {
		f = namer.Name(resource, f)
	}
	if name := f.Name(); name != "" {
		return name, true
	}
	if f.File != nil && f.File.Path != "" {
		return fmt.Sprintf("%s+%#x", path.Base(f.File.Path), f.Address), false
	}
	return fmt.Sprintf("%#x", f.Address), false
}

// Shutdown ends publishing, and says goodbye to guests until ctx ends.
func (l *Live) Shutdown(ctx context.Context) {
	l.stop()
	l.running.Wait()
	if l.broker != nil {
		_ = l.broker.Shutdown(ctx) // guests that do not listen are left
	}
	if namer := l.namer.Load(); namer != nil {
		l.tracker.Want(0)
		namer.Close(ctx)
	}
}

// published counts what sync returns.
func (l *Live) published(refused int, err error) {
	if refused > 0 {
		l.counters.refused.Add(uint64(refused))
		l.log.Debug("publishing the live view", zap.Int("refused", refused), zap.Error(err))
	}
}

// local publishes to the embedded broker, which does not wait for its guests.
type local struct {
	live   *Live
	output output
}

func (c *local) wanted() want { return wantedOn(c.output.bus) }

func (c *local) publish(s *snapshot, w want) { c.live.published(c.output.sync(s, w)) }

// embedded is the embedded broker.
type embedded struct{ broker *broker.Broker }

func (e embedded) Apply(changes []broker.Change) error { return e.broker.Apply(changes) }

func (e embedded) Wants(s *schema.Struct) bool { return e.broker.Members(s.Name) > 0 }

// wakeUp has what is wanted looked at.
func (l *Live) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// events logs what happens to guests: who connects how often is theirs to decide, so that is for those
// who debug; it is counted.
type events struct{ live *Live }

func (e *events) Connected(id uint32, name, address string) {
	e.live.log.Debug("guest of the live view", zap.Uint32("id", id), zap.String("name", name),
		zap.String("address", address))
}

func (e *events) Closed(id uint32, _, _ string, reason broker.Reason, err error) {
	e.live.log.Debug("guest of the live view has gone", zap.Uint32("id", id), zap.Stringer("reason", reason),
		zap.Error(err))
}

func (e *events) TypeConflict(id uint32, typeName string) {
	e.live.log.Debug("guest describes a type otherwise", zap.Uint32("id", id), zap.String("type", typeName))
}

func (e *events) Members(string, int) { e.live.wakeUp() }

func (e *events) AcceptFailed(address string, err error) {
	e.live.log.Warn("not accepting guests of the live view", zap.String("address", address), zap.Error(err))
}
