package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/dots/broker"
	"correlator/dots/schema"
	"correlator/internal/host/asynclog"
	"correlator/internal/host/metric"
	"correlator/internal/names/naming"
	"correlator/internal/out"
	"correlator/internal/out/bootclock"
	"correlator/internal/out/live/page"
	"correlator/internal/out/live/types"
	"correlator/profile"
)

// MaxGuests is how many connections the embedded broker serves, and reservedGuests how many of them only by
// Unix sockets: whoever may use a port, be it any process of the host, does not keep root out.
const MaxGuests, reservedGuests = 64, 8

// Limits of the embedded broker. It serves people who look, not other programs: each has what a host
// of thousands of processes needs to be shown. maxMemoryBytes is for all of them together, with the
// objects (maxCacheBytes): a part of what the agent's unit allows (GOMEMLIMIT, 320 MiB).
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
	metric.Unchecked

	config   Config
	about    out.About
	log      *zap.Logger
	tracker  *Tracker
	counters counters
	broker   *broker.Broker   // nil: none is embedded
	events   *asynclog.Logger // of the broker
	retry    time.Duration    // how long to wait before another attempt to connect
	interval time.Duration    // interval, shorter in tests
	goodbye  time.Duration    // how long the other broker may take to let go
	refusal  sync.Once        // the first one is logged
	wake     chan struct{}    // has a token when what is wanted may have changed
	running  sync.WaitGroup
	stop     context.CancelFunc
	namer    *naming.Namer    // nil: frames have the names that they come with
	names    *naming.Consumer // of samples whose stacks somebody wants
	timeline Timeline         // nil: nothing is kept
}

// Open binds the endpoints of the embedded broker. The caller must call Shutdown. The namer may be nil, and
// must not be closed before.
func Open(config Config, about out.About, namer *naming.Namer, log *zap.Logger) (*Live, error) {
	l := &Live{config: config, about: about, log: log, tracker: NewTracker(about.SamplesPerSecond),
		retry: 5 * time.Second, interval: interval, goodbye: time.Second,
		wake: make(chan struct{}, 1), stop: func() {}, namer: namer}
	l.tracker.untraced = config.Untraced
	l.names = namer.NewConsumer(l.named)
	if len(config.Listen) == 0 {
		return l, nil
	}
	l.events = asynclog.New(log)
	l.broker = broker.New(broker.Options{
		Name: "correlator", ReadOnly: true, Page: page.Handler(), Events: &events{l.events, l},
		Auth: broker.Auth{Secret: config.Secret},
		Limits: broker.Limits{Frame: maxFrameBytes, Queue: maxQueueBytes, Memory: maxMemoryBytes,
			Cache: maxCacheBytes, Guests: MaxGuests, Reserve: reservedGuests,
			Types: maxTypes, TypeBytes: maxTypeBytes, Groups: maxGroups},
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

// TakesUntraced reports whether processes of any kind are shown; of others, how much CPU is used in no transaction is
// known by the process.
func (l *Live) TakesUntraced() bool { return l.config.Untraced }

// TakesAccounts reports whether somebody has joined waits.
func (l *Live) TakesAccounts() bool { return want(l.tracker.wanted.Load())&wantWaits != 0 }

// Accounted takes account of what a thread did. It waits for nothing. The account stays the caller's.
func (l *Live) Accounted(account *profile.Account) { l.tracker.Accounted(account) }

// Waited takes account of waits, as Sampled does of samples.
func (l *Live) Waited(sample *profile.Sample) {
	if l.tracker.Waited(sample) {
		l.names.Sampled(sample)
	}
}

// named has the tracker know samples and waits with names.
func (l *Live) named(sample *profile.Sample) {
	if sample.Wait == nil {
		l.tracker.Named(sample)
		return
	}
	frames := slices.Clone(sample.Stack.Frames)
	for i, f := range frames {
		if f.Name() == "" {
			frames[i] = l.namer.Name(sample.Resource, f)
		}
	}
	l.tracker.NamedWait(sample, frames)
}

// TakesSamples reports whether somebody has joined a type that is made of samples.
func (l *Live) TakesSamples() bool { return l.tracker.wanted.Load() != 0 }

// Sampled takes account of samples. It waits for nothing. The sample stays the caller's.
func (l *Live) Sampled(sample *profile.Sample) {
	if l.tracker.Sampled(sample) {
		l.names.Sampled(sample)
	}
}

// ShowTimelines has timelines shown. It is called before Start.
func (l *Live) ShowTimelines(timeline Timeline) { l.timeline = timeline }

// Start publishes what a source knows until Shutdown.
func (l *Live) Start(source Source) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	p := &publisher{about: l.about, source: source, tracker: l.tracker, clock: bootclock.New(bpf.ReadInstant),
		name: l.nameOf, log: l.log, interval: l.interval,
		timelines: timelines{make: l.timeline, failed: &l.counters.timelinesFailed, clock: time.Now}}
	if l.broker != nil {
		p.add(&local{live: l, output: output{bus: embedded{l.broker}}})
	}
	if l.config.Connect != "" {
		l.running.Go(func() { l.connect(ctx, p) })
	}
	l.running.Go(func() { p.run(ctx, l.wake) })
}

// Shutdown ends publishing, and says goodbye to guests and to the other broker until ctx ends. One that
// hangs is left then.
func (l *Live) Shutdown(ctx context.Context) {
	l.stop()
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	if l.broker != nil {
		_ = l.broker.Shutdown(ctx)  // guests that do not listen are left
		const logTime = time.Second // for lines about guests, if the log takes them slowly
		end, cancel := context.WithTimeout(ctx, logTime)
		defer cancel()
		l.events.Close(end)
	}
	l.tracker.Want(0)
	l.names.Close(ctx)
}

// published counts what sync returns, and says once that something is missing.
func (l *Live) published(refused int, err error) {
	if refused == 0 {
		return
	}
	l.counters.refused.Add(uint64(refused))
	l.refusal.Do(func() {
		l.log.Warn("the live view is incomplete: changes are refused; they are tried again, and counted",
			zap.Int("refused", refused), zap.Error(err))
	})
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
// who debug; it is counted. The broker does not wait for the log.
type events struct {
	log  *asynclog.Logger
	live *Live
}

func (e *events) Connected(id uint32, name, address string) {
	e.log.Debug("guest of the live view", zap.Uint32("id", id), zap.String("name", name),
		zap.String("address", address))
}

func (e *events) Closed(id uint32, _, _ string, reason broker.Reason, err error) {
	e.log.Debug("guest of the live view has gone", zap.Uint32("id", id), zap.Stringer("reason", reason),
		zap.Error(err))
}

func (e *events) TypeConflict(id uint32, typeName string) {
	e.log.Debug("guest describes a type otherwise", zap.Uint32("id", id), zap.String("type", typeName))
}

func (e *events) Members(string, int) { e.live.wakeUp() }

func (e *events) AcceptFailed(address string, err error) {
	e.log.Warn("not accepting guests of the live view", zap.String("address", address), zap.Error(err))
}
