package agent

import (
	"context"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/profile"
)

// registration is what is done with one process: it is registered with, and sent samples. Its
// methods are called on the process's goroutine; other goroutines use the sender, and post.
type registration struct {
	agent   *Agent
	process *lifecycle.Process
	sampler *sampling.ProcessSampler
	pid     int
	log     *zap.Logger
	sender  *messaging.Sender

	connected atomic.Bool            // it was connected to at least once
	refused   process.SampleOutcomes // samples that the sender was not given
	exported  atomic.Uint64          // samples that are for the exporter alone
	untraced  atomic.Uint64          // of them, those without a trace
	fed       struct {
		sync.Mutex
		waiting []fedSample  // if any, attribute is posted
		held    process.Held // those that wait, and those that attribute is about
	}

	account serviceAccount // guarded by the lock of the agent's services
	work    workedOn       // guarded by that of the agent's workReader

	// Owned by the process's goroutine.
	socket   *messaging.SocketID // that the sender is connected to, or nil
	logged   bool                // that it is
	closed   bool
	contexts process.ContextReader
	program  bpf.ExecID        // whose samples are taken, or were last
	since    time.Time         // before which that has written no file
	resource *profile.Resource // nil: no program was exported
	late     uint64            // samples that its socket had no room for in time, when last checked
}

func newRegistration(a *Agent, p *lifecycle.Process) *registration {
	r := &registration{
		agent: a, process: p, pid: p.Identity().PID, log: p.Log(),
		sender: messaging.NewSender(&a.counters.Messages, a.poller),
	}
	r.work = workedOn{registration: r, cost: firstCost}
	r.sampler = sampling.NewProcessSampler(a.sampling, p.Target(), r.sink, p.Active(), a.config.SamplesDelay)
	return r
}

// Attach registers with the process at the socket that it published, if it has.
func (r *registration) Attach() error {
	target := r.process.Target()
	if !target.HasStorage() {
		r.logged = false
		return nil
	}
	socket, err := target.Dial(r.agent.shows)
	if err != nil {
		return process.WithReason(process.ReasonOther, err)
	}
	identity := socket.Identity()
	if !target.Handle().Alive() { // then what was read may be another process's
		socket.Close()
		return procscan.ErrGone
	}
	if !r.agent.sockets.Claim(identity, r.process) {
		// An older process's: what is published is a copy of what that published before.
		socket.Close()
		return process.ErrCopy
	}
	message := messaging.Registration{SamplesDelay: r.agent.config.SamplesDelay, HostID: r.agent.config.HostID}
	if err := r.sender.Connect(socket, message); err != nil {
		r.agent.sockets.Release(identity, r.process)
		return process.WithReason(process.ReasonOther, err)
	}
	r.socket, r.logged = &identity, false
	r.connected.Store(true)
	r.agent.counters.Connections.Add(1)
	return nil
}

// Valid reports whether the socket is still the one that the process published, and its own.
func (r *registration) Valid() bool {
	if r.socket == nil {
		return !r.process.Target().HasStorage()
	}
	return r.agent.sockets.Holds(*r.socket, r.process) && r.process.Target().SocketIs(*r.socket)
}

// Detach ends the registration. What is queued waits for the next one, while it is in time.
func (r *registration) Detach() {
	if r.socket == nil {
		if r.logged {
			r.log.Info("no longer attached")
		}
		return
	}
	r.agent.sockets.Release(*r.socket, r.process)
	r.socket = nil
	r.sender.Disconnect()
	r.agent.counters.ConnectionsWithdrawn.Add(1)
	r.log.Info("registration ended")
}

// Down has an error when the socket is gone.
func (r *registration) Down() <-chan error { return r.sender.Down() }

// Probed logs a new registration, or what is attached without one, and checks a known registration.
func (r *registration) Probed(error) {
	target := r.process.Target()
	switch {
	case !target.Publishes():
	case !r.logged && r.socket != nil:
		r.logged = true
		rule, _ := target.Rule()
		r.log.Info("registered", r.serviceField(), r.environmentField(),
			zap.String("socket", target.Storage().SocketPath), zap.Stringer("tls", rule.Kind))
	case !r.logged && r.process.IsAttached() && target.HasContext():
		r.logged = true
		r.log.Info("attached", r.serviceField(), r.environmentField(),
			zap.String("thread_context_schema", target.Context().Schema))
	case r.socket != nil:
		r.checkLate()
	}
}

func (r *registration) serviceField() zap.Field {
	return zap.String("service", r.process.Target().Service().Name)
}

func (r *registration) environmentField() zap.Field {
	return zap.String("environment", r.process.Target().Service().Environment)
}

// checkLate counts when a process let samples become late by leaving no room for them, and logs it
// the first time.
func (r *registration) checkLate() {
	stats := r.sender.Stats()
	late := stats.Dropped[messaging.DropLate] - stats.Lost
	if late == r.late {
		return
	}
	r.late = late
	const message = "process does not read its socket fast enough: its samples become late"
	if r.process.CountError(process.ReasonSocketFull, message) {
		r.log.Warn(message, zap.Stringer("reason", process.ReasonSocketFull), zap.Uint64("samples", late))
	}
}

// sink returns the sink of a program. What is published was read before sampling begins, so it is the
// program's own; or the program has just been replaced, and then no sample of it comes.
func (r *registration) sink(identity bpf.ExecID) sampling.Sink {
	if r.agent.exporter == nil {
		return &program{registration: r}
	}
	target := r.process.Target()
	resource := profile.Resource{
		Service:     target.Service(),
		ContainerID: target.Cgroup().ContainerID, PodUID: target.Cgroup().PodUID(), PID: r.pid,
		Process: r.process.Identity(), Since: r.writtenSince(identity), Owner: string(target.Access().Owner()),
	}
	if image, err := target.Handle().Image(); err == nil {
		resource.Image = image
	}
	if executable := target.Executable(); executable != "" {
		resource.ExecutablePath, resource.ExecutableName = executable, path.Base(executable)
	}
	r.resource = &resource
	r.agent.resources.Store(r.pid, r.resource)
	return &program{registration: r, resource: &resource}
}

// writtenSince returns a time before which a program has written no file: for the first one that is
// known of the process that of its start, for later ones now.
func (r *registration) writtenSince(identity bpf.ExecID) time.Time {
	switch r.program {
	case identity:
	case bpf.ExecID{}:
		r.since = process.WrittenSince(r.process.Identity())
	default:
		r.since = time.Now()
	}
	r.program = identity
	return r.since
}

// Close ends the registration, on shutdown after what is queued was sent, as far as the
// samples-delay and the process's life allow.
func (r *registration) Close(shutdown bool) {
	if shutdown {
		ctx, cancel := context.WithTimeout(r.agent.drainCtx, r.agent.config.SamplesDelay)
		go func() {
			select {
			case <-r.process.Exited(): // nobody is left who could read
				cancel()
			case <-ctx.Done():
			}
		}()
		_ = r.sender.Drain(ctx) // what is left then is dropped, and counted, by Close
		cancel()
	}
	r.process.Entry().Hide() // from here on nothing is fed to it
	r.agent.work.ended(r)
	r.closed = true
	r.agent.resources.CompareAndDelete(r.pid, r.resource) // unless it is another process's already
	if r.socket != nil {
		r.agent.sockets.Release(*r.socket, r.process)
	}
	r.sender.Close()
	r.countService()
	if lost := r.sender.Stats().Dropped[messaging.DropClosed]; shutdown && lost > 0 {
		r.log.Warn("not all samples could be sent", because("samples_dropped_"+messaging.DropClosed.String()),
			zap.Uint64("samples", lost))
	}
}

// Abandon counts samples, and what was fed and still has no context, as lost, and has what is not sent dropped.
func (r *registration) Abandon() {
	samples := r.sampler.Abandon() + r.fed.held.Abandon(&r.agent.counters.Fed)
	r.refused.Add(process.OutcomeAbandoned, samples)
	r.agent.dropping.Go(r.sender.Close)
}
