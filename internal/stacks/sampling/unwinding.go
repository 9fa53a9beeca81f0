package sampling

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/host/priority"
	"correlator/internal/host/share"
	"correlator/internal/stacks/unwind"
)

const (
	// A program whose mappings have changed, or whose stacks end early, is synchronized again after ten
	// times what that took last (as long as it took, when that was the first time of a worker), minResync
	// at least; after twice as long each time until maxResync while only stacks that end early ask for
	// it. One that could not be synchronized is tried again likewise.
	minResync = 100 * time.Millisecond
	maxResync = time.Minute

	// An engine that could not be loaded is tried again after minReload, twice as long each time until
	// maxReload: memory or descriptors may have been short. A try takes 0.3 s of CPU time.
	minReload = 10 * time.Second
	maxReload = time.Hour

	// quarantinePoll is how often it is looked whether a program is left out still.
	quarantinePoll = 2 * time.Second

	// namedAfterEnd is how long the engine knows a program that is not sampled any more: what was
	// counted of it comes with the next drains.
	namedAfterEnd = 2 * time.Second
)

// unwinding has an engine walk the stacks of programs, those that it can serve; the others are walked
// by frame pointers. nil: there is no engine, and none is to be.
//
// The engine is loaded by run when a program is to be sampled, while samples are taken already: it
// takes 10 MB. Programs are synchronized by that one goroutine. When the engine's worker was killed,
// all are walked by frame pointers until they were synchronized again.
type unwinding struct {
	sampler  *bpf.Sampler
	counters *unwind.Counters
	options  unwind.Options
	log      *zap.Logger

	resetAt atomic.Pointer[time.Time]     // when the last reset was; nil: there was none
	engine  atomic.Pointer[unwind.Engine] // nil until it is loaded
	wake    chan struct{}
	cancel  context.CancelFunc
	need    func()        // closes needed
	needed  chan struct{} // closed when the engine is to be loaded
	loaded  chan struct{} // closed when it is, or could not be the first time
	reload  time.Duration // minReload, shorter in tests
	ended   chan struct{} // closed by run

	waitsAgain time.Time // when a chain for waits that could not be set is to be set again; run's own

	// chain is held while the sampler's unwinder is changed, which takes some 40 ms, and programs are
	// sent there. mu is taken with it held, not the other way round.
	chain  sync.Mutex
	armed  bool // the sampler has the engine's chain
	closed bool // nothing is to enter the chain any more

	mu         sync.Mutex
	noWaitsYet bool                  // the engine is to walk the stacks of waits, too, and was not asked to
	failure    error                 // why there is no engine
	programs   map[*program]struct{} // that are sampled
	time       *engineTime
	gone       []goneTarget // in the order of their time
}

// goneTarget is a target of which the engine is to forget everything.
type goneTarget struct {
	unwind.Target
	at time.Time
}

// unwound is what unwinding keeps with each program. It is guarded by unwinding's mutex, but for the
// target, which does not change.
type unwound struct {
	target  unwind.Target
	on      bool          // its samples go to the engine's chain
	known   bool          // it was synchronized by this worker
	due     time.Time     // when it is to be synchronized; zero: it is not
	least   time.Duration // the shortest pause, by what synchronizing it took
	pause   time.Duration // between the last time that it was synchronized and the next
	at      time.Time     // when it was last
	tried   time.Time     // when it was first
	failure error         // of that
	refused string        // why functions of its runtime have no names, "" if they have
	unknown string        // of a runtime in a version that was not tried
}

// newUnwinding returns an unwinding whose engine is loaded at the first program, or, eager, at once. With waits it is
// to walk their stacks, too.
func newUnwinding(sampler *bpf.Sampler, counters *unwind.Counters, options unwind.Options, eager, waits bool,
	log *zap.Logger) *unwinding {
	ctx, cancel := context.WithCancel(context.Background())
	needed := make(chan struct{})
	u := &unwinding{
		sampler: sampler, counters: counters, options: options, log: log,
		wake: make(chan struct{}, 1), cancel: cancel,
		need: sync.OnceFunc(func() { close(needed) }), needed: needed, reload: minReload,
		loaded: make(chan struct{}), ended: make(chan struct{}), noWaitsYet: waits,
		programs: make(map[*program]struct{}), time: newEngineTime(),
	}
	if eager {
		u.need()
	}
	go u.run(ctx)
	return u
}

// close ends the engine. Nothing may be sampled any more.
func (u *unwinding) close() error {
	if u == nil {
		return nil
	}
	u.cancel()
	engine := u.engine.Load()
	if engine == nil {
		<-u.ended // it may be loaded just now
		engine = u.engine.Load()
	}
	if engine == nil {
		return nil
	}
	u.chain.Lock()
	u.closed, u.armed = true, false
	err := u.sampler.SetUnwinder(nil)
	u.chain.Unlock()
	err = errors.Join(err, engine.Close()) // a request under way returns
	<-u.ended
	return err
}

// run loads the engine, then synchronizes programs when they are due.
func (u *unwinding) run(ctx context.Context) {
	defer close(u.ended)
	priority.Raise() // what is recorded before the first is synchronized has no names
	select {
	case <-u.needed:
	case <-ctx.Done():
		return
	}
	engine := u.load(ctx)
	for ctx.Err() == nil {
		p, gone, wait := u.next(time.Now())
		switch {
		case gone != nil:
			if err := engine.Remove(ctx, *gone); errors.Is(err, unwind.ErrBusy) {
				u.removeLater(*gone)
			} // after other errors there is no worker that knows it
		case p != nil:
			u.synchronize(ctx, engine, p)
		default:
			u.wait(ctx, min(wait, u.loadWaits(ctx, engine)))
		}
	}
}

// loadWaits has the engine walk the stacks of waits, too, once it walks some program's: on a busy host that
// comes first. It returns when it is to be called again.
func (u *unwinding) loadWaits(ctx context.Context, engine *unwind.Engine) time.Duration {
	u.chain.Lock()
	armed := u.armed
	u.chain.Unlock()
	u.mu.Lock()
	missing := u.noWaitsYet
	u.mu.Unlock()
	switch {
	case !armed:
		return maxReload
	case missing:
		if engine.LoadWaits(ctx) != nil {
			return minResync
		}
	case u.sampler.Chainless() == nil || engine.NoWaits() != nil:
		return maxReload
	case time.Now().Before(u.waitsAgain):
		return time.Until(u.waitsAgain)
	}
	u.waitsAgain = time.Now().Add(u.reload)
	u.chain.Lock()
	defer u.chain.Unlock()
	if u.armed { // else they are set with the others
		_ = u.sampler.SetWaitUnwinder(engine.Unwinder()) // an error is that of Chainless
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.noWaitsYet = false
	return u.reload
}

// load returns the engine as soon as it can be loaded, or nil when the context has ended.
func (u *unwinding) load(ctx context.Context) *unwind.Engine {
	tried := sync.OnceFunc(func() { close(u.loaded) })
	backoff := share.Backoff{Min: u.reload, Max: maxReload}
	for pause := u.reload; ; pause = backoff.Next(pause) {
		engine, err := unwind.Open(ctx, u.options, u.counters)
		if err == nil {
			engine.OnReset(u.reset)
			engine.OnServed(u.charge)
			u.mu.Lock()
			u.failure = nil
			u.mu.Unlock()
			u.engine.Store(engine)
			tried()
			u.log.Info("stacks can be unwound")
			u.warnOfJava(engine.Status())
			return engine
		}
		if ctx.Err() == nil {
			u.fail(err)
		}
		tried()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (u *unwinding) wait(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-u.wake:
	case <-timer.C:
	}
}

// fail records why there is no engine.
func (u *unwinding) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.warn(err)
	u.failure = err
}

// warn logs why all stacks are walked by frame pointers, unless that was so before. u.mu must be
// held.
func (u *unwinding) warn(err error) {
	if u.failing() == nil {
		u.log.Warn("stacks are walked by frame pointers only", zap.String("reason", "unwinder_unavailable"),
			zap.Error(err))
	}
}

// warnOfJava logs what the engine lacks for Java's stacks.
func (u *unwinding) warnOfJava(status unwind.Status) {
	if status.JavaRefused != "" {
		u.log.Warn(unwind.LossOfJava, zap.String("error", status.JavaRefused))
	}
}

// errNoChain: the engine's programs could not be set. It is a failure of the programs that were to
// enter them: there is nothing to be tried again without one.
var errNoChain = errors.New("the unwinding programs could not be set")

// failing returns why all stacks are walked by frame pointers; nil when they are not. u.mu must be
// held.
func (u *unwinding) failing() error {
	if u.engine.Load() == nil {
		return u.failure
	}
	for p := range u.programs {
		if errors.Is(p.unwound.failure, errNoChain) {
			return p.unwound.failure
		}
	}
	return nil
}

func (u *unwinding) removeLater(target unwind.Target) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = slices.Insert(u.gone, 0, goneTarget{target, time.Now().Add(minResync)}) // before those of namedAfterEnd
}

func (u *unwinding) notify() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// add has the stacks of a program unwound as soon as that is possible, or when want is called.
func (u *unwinding) add(p *program) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.programs[p] = struct{}{}
	u.time.add(p.unwound.target.User)
	u.need()
	if !p.unseen.Load() { // else want is called
		p.unwound.due = time.Now()
		u.notify()
	}
}

// want has the stacks of a program unwound that is not unseen any more.
func (u *unwinding) want(p *program) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, added := u.programs[p]; added { // else add finds that it is not
		p.unwound.due = time.Now()
		u.notify()
	}
}

// remove is called when a program is not sampled any more.
func (u *unwinding) remove(p *program) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, added := u.programs[p]; !added {
		return
	}
	target := p.unwound.target
	delete(u.programs, p)
	u.time.remove(target.User)
	if !p.unseen.Load() && u.engine.Load() != nil { // else it knows nothing
		u.gone = append(u.gone, goneTarget{target, time.Now().Add(namedAfterEnd)})
	}
	u.notify()
}

// changed is called when a program has mapped other code.
func (u *unwinding) changed(p *program) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	p.unwound.pause = max(minResync, p.unwound.least)
	u.again(p)
}

// endedEarly is called when a stack of a program ends where the engine knew no further: perhaps in
// code that the program has mapped since.
func (u *unwinding) endedEarly(p *program) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if p.unwound.due.IsZero() {
		u.again(p)
		p.unwound.pause = share.Backoff{Max: maxResync}.Next(p.unwound.pause)
	}
}

// again has a program synchronized again, after its pause. u.mu must be held.
func (u *unwinding) again(p *program) {
	if _, sampled := u.programs[p]; !sampled || p.unseen.Load() {
		return
	}
	at := p.unwound.at.Add(p.unwound.pause)
	if due := p.unwound.due; due.IsZero() || at.Before(due) {
		p.unwound.due = at
		u.notify()
	}
}
