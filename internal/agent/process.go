package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/internal/sampling"
	"correlator/internal/target"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/tlsdesc"
)

const (
	// A candidate's storage is looked for at intervals of 1/128 of its age: the look that finds
	// the storage comes within 1 % of the time that the process took to publish it, and a process
	// that never publishes is looked at once a second.
	pollMin      = time.Millisecond
	pollMax      = time.Second
	pollFraction = 128

	// recheckInterval is how often a registered process is looked at again. It bounds how long
	// a new storage or socket goes unnoticed.
	recheckInterval = time.Second

	// A process in trouble is tried again at intervals that double between these.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second

	// A process is connected to at most connectBurst times at once, and once a second in the
	// long run: restarts of its agent are served at once, and one that publishes something new
	// all the time costs no more than that.
	connectBurst    = 5
	connectInterval = time.Second

	// backlogBatches is how many datagrams' worth of samples may wait for the process's
	// goroutine to read their context. They wait only while it does something else, and samples
	// that wait longer than maxContextAge are of no use.
	backlogBatches = 16

	// maxHeld is how many different samples may wait for the process's goroutine to look at the process.
	// With 50 frames each they take 3 MB.
	maxHeld = 4096
)

// process is the life of one process that maps the library. Everything that touches the process
// happens on the goroutine of run; other goroutines use the channels, the queue of held samples, the
// sender and snapshot.
type process struct {
	agent  *Agent
	id     procscan.Identity
	log    *zap.Logger
	sender *messaging.Sender

	mappings chan []procscan.Mapping // what a sweep found mapped; holds the newest word only
	samples  chan []sample           // fed, without context
	held     heldQueue               // taken by ourselves, see there
	exited   chan struct{}           // closed by the exit watcher

	connected atomic.Bool  // it was connected to at least once
	stuckTold bool         // owned by the sweep
	truncated bool         // it was found to map too many libraries; owned by the sweep
	busySince atomic.Int64 // when run began to look at the process, in Unix ns; 0 while it awaits

	// Owned by run.
	target   *target.Target
	verified time.Time           // when its libraries were last known to be mapped
	socket   *messaging.Identity // of the socket that the sender is connected to, or nil
	born     time.Time           // when it became a candidate: the origin of its poll intervals
	retry    time.Duration       // the last wait in trouble
	connects tokenBucket
	logged   [target.NumReasons]bool
	contexts target.ContextReader
	program  *sampling.Program // that is sampled, or nil
	late     uint64            // samples that its socket had no room for in time, when last looked at

	mu   sync.Mutex
	view target.View // what snapshot shows
}

var (
	// errTooOften: the process publishes something new faster than we follow.
	errTooOften = errors.New("publishing anew too often")
	// errShutdown: the agent ends.
	errShutdown = errors.New("agent ends")
)

// run serves the process until it has ended, no longer maps the library, or ctx ends. In the
// last case what is queued is still sent, as far as the samples-delay allows.
func (p *process) run(ctx context.Context) {
	timer := time.NewTimer(retryMax)
	defer timer.Stop()
	err := p.step()
	for !target.IsGone(err) && !errors.Is(err, errShutdown) {
		timer.Reset(p.settle(err))
		err = p.await(ctx, timer.C)
	}
	if errors.Is(err, errShutdown) {
		p.drain() // where samples come from has ended before
	} else {
		p.agent.counters.Gone.Add(1)
		p.log.Info("process gone")
	}
	p.unfollow()
	p.agent.forget(p) // from here on no samples come
	p.sender.Close()
	p.refuseSamples()
	p.agent.exits.Remove(p.target.Handle())
	p.target.Close()
}

// await serves samples until it is time to look at the process again, or something happened. It
// answers how that went.
func (p *process) await(ctx context.Context, due <-chan time.Time) error {
	for {
		select {
		case batch := <-p.samples:
			p.attribute(batch)
		case <-p.held.ready:
			p.report(p.held.take())
		case mappings := <-p.mappings:
			if slices.Equal(mappings, p.target.Mappings()) {
				continue
			}
			p.target.SetMappings(mappings)
			if p.program != nil {
				p.program.Invalidate()
			}
			return p.step()
		case down := <-p.sender.Down():
			p.disconnect()
			return target.WithReason(target.ReasonSocketGone, down)
		case <-due:
			return p.step()
		case <-p.exited:
			return procscan.ErrGone
		case <-ctx.Done():
			return errShutdown
		}
	}
}

// maps tells the process what a sweep found mapped. It is called by the sweep alone.
func (p *process) maps(mappings []procscan.Mapping) {
	select {
	case <-p.mappings: // run has not taken the last word yet: this one replaces it
	default:
	}
	p.mappings <- mappings
}

// step looks at the process and brings our side to what it publishes now.
func (p *process) step() error {
	p.busySince.Store(time.Now().UnixNano())
	defer p.busySince.Store(0)
	if time.Since(p.verified) >= recheckInterval {
		if err := p.verify(); err != nil {
			return err
		}
	}
	if p.target.LoadDue() {
		if err := p.load(); err != nil {
			return err
		}
	}
	p.agent.counters.Looks.Add(1)
	changed, err := p.target.Look()
	if err != nil {
		p.disconnect()
		return err
	}
	if p.socket != nil && !changed && p.runs() && p.target.SocketIs(*p.socket) {
		if !p.target.StillPublishing() { // the library was loaded anew
			p.unfollow()
			p.target.ForgetRule()
		}
		p.resolve()
		if p.program != nil {
			p.program.Look()
		}
		p.checkRoom()
		return nil
	}
	p.disconnect()
	if !p.connects.take(time.Now()) {
		p.agent.counters.TooOften.Add(1)
		return errTooOften
	}
	return p.connect()
}

// verify makes sure that the libraries are still mapped where they were. After an exec or a
// dlclose they are not; what the process maps instead is read anew.
func (p *process) verify() error {
	mapped, err := p.target.StillMapped()
	if err != nil {
		return err
	}
	p.verified = time.Now()
	if mapped {
		return nil
	}
	libraries, err := p.target.Handle().Libraries()
	if errors.Is(err, procscan.ErrNotFound) {
		return target.ErrUnmapped
	}
	if err != nil {
		return err
	}
	p.target.SetMappings(libraries)
	return nil
}

// load opens the libraries that the process maps now, and makes it a candidate with them.
func (p *process) load() error {
	p.born = time.Now()
	err := p.target.Load(p.agent.files)
	if !p.target.Publishes() {
		p.disconnect()
	}
	if err != nil && p.target.Images() { // the others serve
		p.trouble(err)
		return nil
	}
	return err
}

// connect registers with the process at the socket that it published.
func (p *process) connect() error {
	p.target.ForgetRule() // the library may have been loaded anew, with the same storage
	socket, err := p.target.Dial()
	if err != nil {
		return target.WithReason(target.ReasonOther, err)
	}
	identity := socket.Identity()
	if !p.target.Handle().Alive() { // then what was read may be another process's
		socket.Close()
		return procscan.ErrGone
	}
	if err := p.sender.Connect(socket, p.agent.registration()); err != nil {
		return target.WithReason(target.ReasonOther, err)
	}
	p.socket = &identity
	p.connected.Store(true)
	p.resolve()
	p.agent.counters.Connected.Add(1)
	storage := p.target.Storage()
	rule, _ := p.target.Rule()
	p.log.Info("registered", zap.String("service", storage.ServiceName),
		zap.String("environment", storage.ServiceEnvironment), zap.String("socket", storage.SocketPath),
		zap.Stringer("tls", rule.Kind))
	return nil
}

// resolve makes the rule, if that is still to be done, and has the process sampled by it. Without one
// the process is registered all the same: the loader may bind the variable only when the agent first
// uses it.
func (p *process) resolve() {
	if err := p.follow(); err != nil && !errors.Is(err, tlsdesc.ErrUnresolved) && !target.IsGone(err) {
		p.trouble(err)
	}
}

// disconnect ends the registration. What is queued waits for the next one, while it is in time.
func (p *process) disconnect() {
	p.unfollow()
	if p.socket == nil {
		return
	}
	p.socket = nil
	p.sender.Disconnect()
	p.born = time.Now()
	p.agent.counters.Withdrawn.Add(1)
	p.log.Info("registration ended")
}

// settle takes down how the last step ended, and answers when to take the next. A process that
// has all but used up how often it is connected to in a row is looked at no more often than it could be
// connected to in the long run, whatever it does in between.
func (p *process) settle(err error) time.Duration {
	wait := p.pace(err)
	if p.connects.refill(time.Now()); wait < connectInterval && p.connects.spent >= connectBurst-1 {
		p.agent.counters.TooOften.Add(1)
		return connectInterval
	}
	return wait
}

// pace is settle for a process that is connected to when it wants.
func (p *process) pace(err error) time.Duration {
	state, reason := target.StateRegistered, ""
	switch {
	case errors.Is(err, errTooOften):
		state = target.StateReady
	case err != nil:
		state, reason = target.StateOf(err)
	}
	p.mu.Lock()
	p.view.State, p.view.Reason = state, reason
	p.target.Describe(&p.view)
	p.mu.Unlock()

	if state == target.StateError {
		p.trouble(err)
		p.retry = min(max(2*p.retry, retryMin), retryMax)
		return p.retry
	}
	p.retry = 0
	switch {
	case state == target.StateNoStorage:
		return min(max(time.Since(p.born)/pollFraction, pollMin), pollMax)
	case errors.Is(err, target.ErrNotTarget):
		return retryMax
	}
	return recheckInterval
}

const troubleMessage = "process cannot be served; trying again"

// trouble counts why a process cannot be served, and logs it the first time.
func (p *process) trouble(err error) {
	reason := target.ReasonOf(err)
	p.agent.counters.Troubles[reason].Add(1)
	if !p.logged[reason] {
		p.logged[reason] = true
		p.log.Warn(troubleMessage, zap.Stringer("reason", reason), zap.Error(err))
	}
}

// checkRoom counts when a process let samples become late by leaving no room for them, and logs it the
// first time.
func (p *process) checkRoom() {
	stats := p.sender.Stats()
	late := stats.Dropped[messaging.ReasonLate] - stats.Lost
	if late == p.late {
		return
	}
	p.late = late
	p.agent.counters.Troubles[target.ReasonSocketFull].Add(1)
	if !p.logged[target.ReasonSocketFull] {
		p.logged[target.ReasonSocketFull] = true
		p.log.Warn("process does not read its socket fast enough: its samples become late",
			zap.Stringer("reason", target.ReasonSocketFull), zap.Uint64("samples", late))
	}
}

// drain gives what waits its chance to be sent.
func (p *process) drain() {
	for waiting := true; waiting; {
		select {
		case batch := <-p.samples:
			p.attribute(batch)
		case <-p.held.ready:
			p.report(p.held.take())
		default:
			waiting = false
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.agent.config.SamplesDelay)
	defer cancel()
	if err := p.sender.Drain(ctx); err != nil {
		p.log.Warn("not all samples could be sent", zap.Error(err))
	}
}

// snapshot is what is known of the process; ok is false when it takes no part.
func (p *process) snapshot() (view target.View, ok bool) {
	p.mu.Lock()
	view = p.view
	p.mu.Unlock()
	if p.stuck() {
		view.State, view.Reason = target.StateError, target.ReasonTimeout.String()
	} else if view.State == target.StateRegistered && !p.sender.Stats().Registered {
		view.State = target.StateReady // the registration still waits for room in its queue
	}
	return view, view.State != ""
}

// stuck says whether the process makes its goroutine hang.
func (p *process) stuck() bool {
	since := p.busySince.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > hangTimeout
}

// tokenBucket limits how often something is done: connectBurst times at once, and once per
// connectInterval in the long run.
type tokenBucket struct {
	spent int       // tokens that are out
	since time.Time // when the last of them came back
}

func (b *tokenBucket) refill(now time.Time) {
	if back := int(now.Sub(b.since) / connectInterval); back > 0 {
		b.spent = max(b.spent-back, 0)
		b.since = b.since.Add(time.Duration(back) * connectInterval)
	}
	if b.spent == 0 {
		b.since = now
	}
}

func (b *tokenBucket) take(now time.Time) bool {
	if b.refill(now); b.spent == connectBurst {
		return false
	}
	b.spent++
	return true
}
