package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// backlogBatches is how many datagrams' worth of samples may wait for the process's goroutine to
// read their context. They wait only while it does something else, and soon samples that wait are
// of no use: process.TooLate.
const backlogBatches = 16

// servedProcess is the life of one servedProcess that maps the library. Everything that touches the servedProcess
// happens on the goroutine of run; other goroutines use the channels, the queue of held samples, the
// sender and status.
type servedProcess struct {
	agent  *Agent
	id     procscan.ProcessID
	log    *zap.Logger
	sender *messaging.Sender

	stirred  chan struct{}          // has a token when it is to be looked at
	samples  chan []sample          // fed, without context
	held     *sampling.PendingQueue // taken by ourselves
	exited   chan struct{}          // closed by the exit watcher
	mappings mailbox                // what was found mapped
	watched  *watched               // on the agent's lookout

	changed   atomic.Bool  // it is to be looked at at once, not only when it is its turn
	executed  atomic.Bool  // it runs another program since it was last looked at
	connected atomic.Bool  // it was connected to at least once
	stuckTold bool         // owned by the sweep
	truncated bool         // it was found to map too many libraries; owned by the sweep
	busySince atomic.Int64 // when run began to look at the process, as uptime; 0 while it awaits

	// Owned by run.
	target     *process.Target
	follower   *sampling.Follower  // whose Program is also other goroutines'
	verified   time.Time           // when its libraries were last known to be mapped
	own        process.Ownership   // of what it has published
	socket     *messaging.SocketID // of the socket that the sender is connected to, or nil
	registered time.Time           // when it was connected to
	born       time.Time           // when it became a candidate: the origin of its poll intervals
	suspect    bool                // something has changed in its memory
	looked     bool                // the last step found out what is published, or that nothing is
	retry      time.Duration       // the last wait in trouble
	connects   tokenBucket
	binds      tokenBucket // steps of a registered process whose variable is not bound
	logged     [process.NumReasons]bool
	filtered   bool // was told
	contexts   process.ContextReader
	names      *threadNames // of the program that was sampled last
	late       uint64       // samples that its socket had no room for in time, when last looked at

	refused process.SampleOutcomes // samples that the sender was not given

	mu    sync.Mutex
	shown shown
}

var (
	// errTooOften: the process publishes something new faster than we follow.
	errTooOften = errors.New("publishing anew too often")
	// errShutdown: the agent ends.
	errShutdown = errors.New("agent ends")
)

// run serves the process until it has ended, no longer maps the library, or ctx ends. In the
// last case what is queued is still sent, as far as the samples-delay allows.
func (p *servedProcess) run(ctx context.Context) {
	var timer retryTimer
	defer timer.stop()
	err := p.step()
	for !process.IsGone(err) && !errors.Is(err, errShutdown) {
		timer.set(p.settle(err))
		err = p.await(ctx, timer.due)
	}
	ending := errors.Is(err, errShutdown)
	if ending {
		p.drain() // where samples come from has ended before
	} else {
		p.agent.counters.Gone.Add(1)
		p.log.Info("process gone")
	}
	p.unfollow()
	p.agent.forget(p) // from here on no samples come
	if _, ok := p.mappings.take(); ok {
		p.agent.lookAt(ctx, p.id.PID) // it maps a library again
	}
	p.own.GiveUp()
	if p.socket != nil {
		p.agent.sockets.Release(*p.socket, p)
	}
	p.sender.Close()
	if lost := p.sender.Stats().Dropped[messaging.ReasonClosed]; ending && lost > 0 {
		p.log.Warn("not all samples could be sent", because("samples_dropped_"+messaging.ReasonClosed.String()), zap.Uint64("samples", lost))
	}
	p.refuseSamples()
	p.agent.lookout.drop(p.watched)
	p.agent.exits.Remove(p.target.Handle())
	p.target.Close()
}

// await serves samples until it is time to look at the process again, or something happened. It
// answers how that went.
func (p *servedProcess) await(ctx context.Context, due <-chan time.Time) error {
	for {
		select {
		case batch := <-p.samples:
			p.attribute(batch)
		case <-p.held.Ready():
			p.report(p.held.Take())
		case <-p.names.wanted:
			p.names.learn(p.target.Handle().ThreadName)
		case <-p.stirred:
			p.takeMappings()
			if changed := p.changed.Swap(false); changed || due == nil {
				p.suspect = changed
				return p.step()
			}
		case down := <-p.sender.Down():
			p.disconnect()
			return process.WithReason(process.ReasonSocketGone, down)
		case <-due:
			return p.step()
		case <-p.exited:
			return procscan.ErrGone
		case <-ctx.Done():
			return errShutdown
		}
	}
}

// Identity is which process it is.
func (p *servedProcess) Identity() procscan.ProcessID { return p.id }

// Stir has the process looked at at once. It may be called by any goroutine.
func (p *servedProcess) Stir() {
	p.changed.Store(true)
	p.wake()
}

// wake has it take in what it was told, and look, unless it is to be tried again at a time of its own and
// maps nothing new. It may be called by any goroutine.
func (p *servedProcess) wake() {
	select {
	case p.stirred <- struct{}{}:
	default:
	}
}

// takeMappings takes down what the process maps now, if there was word of it.
func (p *servedProcess) takeMappings() {
	found, ok := p.mappings.take()
	switch {
	case !ok:
	case slices.Equal(found.Libraries, p.target.Mappings()):
		p.verified = found.At
	default:
		p.changed.Store(true)
		p.target.SetMappings(found.Libraries)
		p.remapped()
	}
}

// remapped has the process's executable memory looked at again when its next samples come. It may be
// called by any goroutine.
func (p *servedProcess) remapped() {
	if program := p.follower.Program(); program != nil {
		program.Invalidate()
	}
}

// step looks at the process and brings our side to what it publishes now.
func (p *servedProcess) step() error {
	p.busySince.Store(p.agent.uptime())
	defer p.busySince.Store(0)
	p.looked = false
	if p.executed.Swap(false) {
		p.disconnect() // its agent, if it has one, is another
		p.own.Forget()
		p.verified = time.Time{}
	}
	if time.Since(p.verified) >= p.verifyInterval() {
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
	p.looked = err == nil || errors.Is(err, memread.ErrNotPublished) || errors.Is(err, process.ErrServiceFiltered)
	if errors.Is(err, memread.ErrNotPublished) {
		p.own.GiveUp()
	}
	if err != nil {
		p.disconnect()
		return err
	}
	if !p.own.Of(p.target, changed) {
		p.disconnect()
		return process.ErrCopy
	}
	// Another program has another agent, which must be told of us, also when all else looks the same.
	if p.socket != nil && !changed && p.follower.Runs() && p.agent.sockets.Holds(*p.socket, p) && p.target.SocketIs(*p.socket) {
		if !p.target.StillPublishing() { // the library was loaded anew
			p.unfollow()
			p.target.ForgetRule()
		}
		p.resolve()
		if program := p.follower.Program(); program != nil {
			program.Look()
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

// verifyInterval is how old the knowledge may be that the libraries are mapped.
func (p *servedProcess) verifyInterval() time.Duration {
	if p.socket != nil && !p.suspect && p.agent.discovery.live.Load() {
		return trustInterval
	}
	return recheckInterval
}

// verify makes sure that the libraries are still mapped where they were, or takes down where they are.
func (p *servedProcess) verify() error {
	began := time.Now()
	remapped, err := p.target.Remap()
	if err != nil {
		return err
	}
	p.verified = time.Now()
	if remapped {
		p.mappings.seen(began)
	}
	return nil
}

// load opens the libraries that the process maps now, and makes it a candidate with them.
func (p *servedProcess) load() error {
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
func (p *servedProcess) connect() error {
	p.target.ForgetRule() // the library may have been loaded anew, with the same storage
	socket, err := p.target.Dial()
	if err != nil {
		return process.WithReason(process.ReasonOther, err)
	}
	identity := socket.Identity()
	if !p.target.Handle().Alive() { // then what was read may be another process's
		socket.Close()
		return procscan.ErrGone
	}
	if !p.agent.sockets.Claim(identity, p) { // an older process's: what is shown is a copy of what it published before
		socket.Close()
		return process.ErrCopy
	}
	if err := p.sender.Connect(socket, p.agent.registration()); err != nil {
		p.agent.sockets.Release(identity, p)
		return process.WithReason(process.ReasonOther, err)
	}
	p.socket, p.registered = &identity, time.Now()
	p.watched.sampled.Store(true) // it does something
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

// unsampled says whether the process is registered and could be sampled, but is not for a reason that may
// pass.
func (p *servedProcess) unsampled() bool {
	_, err := p.target.Rule()
	return p.socket != nil && err == nil && p.follower.Program() == nil && p.agent.sampling != nil
}

// resolve makes the rule, if that is still to be done, and has the process sampled by it. Without one
// the process is registered all the same: the loader may bind the variable only when the agent first
// uses it.
func (p *servedProcess) resolve() {
	if err := p.follower.Follow(); err != nil && !errors.Is(err, tlsdesc.ErrUnresolved) && !process.IsGone(err) {
		p.trouble(err)
	}
}

// disconnect ends the registration. What is queued waits for the next one, while it is in time.
func (p *servedProcess) disconnect() {
	p.unfollow()
	if p.socket == nil {
		return
	}
	p.agent.sockets.Release(*p.socket, p)
	p.socket = nil
	p.sender.Disconnect()
	p.born = time.Now()
	p.agent.counters.Withdrawn.Add(1)
	p.log.Info("registration ended")
}

// drain gives what waits its chance to be sent.
func (p *servedProcess) drain() {
	for waiting := true; waiting; {
		select {
		case batch := <-p.samples:
			p.attribute(batch)
		case <-p.held.Ready():
			p.report(p.held.Take())
		default:
			waiting = false
		}
	}
	ctx, cancel := context.WithTimeout(p.agent.patient, p.agent.config.SamplesDelay)
	defer cancel()
	p.sender.Drain(ctx) // what is left then is dropped, and counted, by Close
}

// stuck says whether the process makes its goroutine hang.
func (p *servedProcess) stuck() bool {
	since := p.busySince.Load()
	return since != 0 && p.agent.uptime()-since > int64(hangTimeout)
}
