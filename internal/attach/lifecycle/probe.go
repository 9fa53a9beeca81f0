package lifecycle

import (
	"errors"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/tlsdesc"
)

// probe brings our side to what the process publishes now.
func (p *Process) probe() (err error) {
	p.work(func() {
		p.unsampled = nil
		if err = p.step(); err != nil {
			p.handler.Probed(err)
		} else {
			p.handler.Probed(p.unsampled)
		}
	})
	return err
}

func (p *Process) step() error {
	p.probed = false
	// Each CPU has events of its own, so that of an exec may come when its program is attached to already.
	if p.executed.Swap(false) && !p.runsAttached() {
		p.detach() // its agent, if it has one, is another
		p.own.Forget()
		p.manager.admission.withdrew(p)
		p.target.Replace()
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
	p.manager.counters.Probes.Add(1)
	var execution process.Execution // of before what it publishes is read: it may execute another program at any time
	if !p.sampler.IsRunning() {
		execution, _ = p.target.Execution() // zero: it is not known
	}
	change, err := p.target.Probe()
	p.probed = err == nil || errors.Is(err, memread.ErrNotPublished) || errors.Is(err, process.ErrServiceFiltered)
	if !p.target.HasStorage() {
		p.own.GiveUp()
	}
	if change.Context && p.target.HasContext() {
		p.manager.counters.Contexts[p.target.ThreadSchema()].Add(1)
	}
	if access.TellsNothing(err) { // against what is
		return err
	}
	if err != nil {
		p.detach()
		return err
	}
	if p.target.HasStorage() { // else there is nothing that a fork copies
		own, err := p.own.IsOwn(p.target, change.Storage)
		if err == nil && !own {
			err = process.ErrCopy
		}
		if err != nil {
			p.detach()
			return err
		}
	}
	// Another program has another agent, which is attached to also when all else looks the same.
	if p.attached && !change.Storage && p.sampler.IsCurrent() && p.handler.Valid() {
		if change.Context && p.target.NeedsNothing() { // it may not have published before, or not any more
			if err := p.claimPlace(); err != nil {
				return err
			}
		}
		return p.follow(change.Context)
	}
	p.detach()
	if !p.takeAttach() {
		return errTooOften
	}
	p.execution = execution
	return p.attach()
}

// runsAttached reports whether the process is known to run the program that is attached to: where that is sampled, the
// kernel says so.
func (p *Process) runsAttached() bool {
	if p.sampler.IsRunning() || !p.attached {
		return p.sampler.RunsSampled()
	}
	now, err := p.target.Execution()
	return err == nil && now == p.execution
}

// follow has an attached process sampled as what it is now. Its samples are of another sink when its
// context is another: that has who it is, and what its attributes are.
func (p *Process) follow(contextChanged bool) error {
	if contextChanged {
		p.stopSampling() // whatever fails below, it does not go on by the former
	}
	still, err := p.target.StillPublishing()
	if err != nil {
		return err
	}
	if (contextChanged || !still && p.target.HasContext()) && !p.takeAttach() {
		p.detach()
		return errTooOften
	}
	if !still { // a library was loaded again
		p.stopSampling()
		p.target.ForgetRules()
	}
	p.startSampling()
	p.sampler.Probe()
	return nil
}

// takeAttach reports whether the process may be attached to, or what it publishes be followed, once
// more now.
func (p *Process) takeAttach() bool {
	if p.attaches.Allow() {
		return true
	}
	p.manager.counters.TooOften.Add(1)
	return false
}

// verifyInterval is how old the knowledge may be that the libraries are mapped.
func (p *Process) verifyInterval() time.Duration {
	if p.attached && !p.suspect && p.manager.discovery.live.Load() {
		return trustInterval
	}
	return recheckInterval
}

// isTrusted reports whether a process is attached to as what it was when its libraries were last checked, not long
// ago: live events and the memory poller would have reported a change.
func (p *Process) isTrusted() bool {
	return p.attached && p.manager.discovery.live.Load() && time.Since(p.verified) < trustInterval &&
		p.sampler.IsCurrent() && (p.unpolled || p.manager.poller.IsPolled(p.poll))
}

// verify checks that the libraries are still mapped where they were, or finds where they are.
func (p *Process) verify() error {
	began := time.Now()
	remapped, err := p.target.Remap()
	if errors.Is(err, process.ErrUnmapped) {
		return p.handleUnmapped()
	}
	if err != nil {
		return err
	}
	p.verified, p.unmapped = time.Now(), time.Time{}
	if remapped {
		p.mappings.discardBefore(began)
	}
	return nil
}

// handleUnmapped has the process wait as a candidate until it maps the library again, or returns
// process.ErrUnmapped when it has not done so for too long.
func (p *Process) handleUnmapped() error {
	if p.unmapped.IsZero() {
		p.unmapped = time.Now()
	}
	if time.Since(p.unmapped) >= p.manager.options.RemapGrace {
		return process.ErrUnmapped
	}
	p.own.GiveUp()
	p.detach()
	p.verified = time.Time{}
	return errUnmapped
}

// load opens the libraries that the process maps now, and makes it a candidate with them.
func (p *Process) load() error {
	p.born = time.Now()
	err := p.target.Load()
	if !p.target.Publishes() {
		p.detach()
	}
	if err != nil && p.target.IsUsable() { // the others serve
		p.RecordError(err)
		return nil
	}
	return err
}

// attach has the handler do its part, if the process may be served, and begins to sample it.
func (p *Process) attach() error {
	if err := p.claimPlace(); err != nil {
		return err
	}
	p.target.ForgetRules() // a library may have been loaded again, with the same storage
	if err := p.handler.Attach(); err != nil {
		return err
	}
	p.attached, p.attachedAt = true, time.Now()
	p.MarkActive()
	p.startSampling()
	return nil
}

// claimPlace has the process served as one that publishes, if it does.
func (p *Process) claimPlace() error {
	user, err := p.target.CurrentOwner()
	if err != nil || p.isUnused() {
		return err
	}
	if !p.target.Publishes() {
		p.manager.admission.withdrew(p)
		return nil
	}
	return p.manager.admission.publish(p, user)
}

// isUnused reports whether nobody takes samples of the process: it publishes a context alone.
func (p *Process) isUnused() bool {
	return p.manager.options.ElasticOnly && p.target.Publishes() && !p.target.HasStorage()
}

// startSampling makes the rule, if that is still to be done, and has the process sampled by it.
// Without one the process is attached all the same: the loader may bind the variable only when the
// agent first uses it.
func (p *Process) startSampling() {
	p.unsampled = p.sampler.Start()
	p.everRan = p.everRan || p.sampler.IsRunning()
	if err := p.unsampled; err != nil && !errors.Is(err, tlsdesc.ErrUnresolved) && !process.IsGone(err) {
		p.RecordError(err)
	}
}

func (p *Process) stopSampling() {
	if err := p.sampler.Stop(); err != nil {
		p.RecordError(err)
	}
}

// detach undoes attach.
func (p *Process) detach() {
	p.stopSampling()
	if !p.attached {
		return
	}
	p.attached = false
	p.born = time.Now()
	p.handler.Detach()
}
