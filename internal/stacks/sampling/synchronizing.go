package sampling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/host/share"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
)

// next returns a program that is due, or a target that has gone, or how long there is nothing to do.
func (u *unwinding) next(now time.Time) (first *program, gone *unwind.Target, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	wait = time.Hour
	for len(u.gone) > 0 && now.After(u.gone[0].at) {
		target := u.gone[0].Target
		u.gone = u.gone[1:]
		if !u.isSampled(target.Program) { // else it was stopped and started again
			return nil, &target, 0
		}
	}
	if len(u.gone) > 0 {
		wait = u.gone[0].at.Sub(now)
	}
	for p := range u.programs {
		at := p.unwound.due
		if at.IsZero() {
			continue
		}
		if free := u.time.free(p.unwound.target.User, now); free.After(at) {
			at = free
		}
		if until := at.Sub(now); until < wait {
			first, wait = p, until
		}
	}
	if first == nil || wait > 0 { // without one, a target may be about to go this very moment
		return nil, nil, wait
	}
	first.unwound.due = time.Time{}
	return first, nil, 0
}

// isSampled reports whether a program is sampled. u.mu must be held.
func (u *unwinding) isSampled(identity any) bool {
	for p := range u.programs {
		if p.unwound.target.Program == identity {
			return true
		}
	}
	return false
}

// errHeldBack: the user has had the engine serve nobody else for too long.
var errHeldBack = errors.New("the user's processes have kept the unwinding engine from others for too long")

// charge charges a user for a request that the engine has served. The stacks of a user who is held back then
// are walked by frame pointers meanwhile.
func (u *unwinding) charge(user worker.User, took time.Duration) {
	now := time.Now()
	var held []*program
	u.mu.Lock()
	u.time.charge(user, took, now)
	if u.time.free(user, now).After(now) {
		for p := range u.programs {
			if p.unwound.target.User == user && p.unwound.on {
				held = append(held, p)
				p.unwound.due, p.unwound.failure = now, errHeldBack // next waits until the user is free
				u.notify()                                          // it may wait for something later
			}
		}
	}
	u.mu.Unlock()
	for _, p := range held {
		u.leave(p)
	}
}

// errReset: the engine has forgotten the program meanwhile.
var errReset = errors.New("the unwinding worker was killed")

// synchronize has the engine learn what a program maps, and then the program's samples go to it.
func (u *unwinding) synchronize(ctx context.Context, engine *unwind.Engine, p *program) {
	began := time.Now()
	_, err := engine.Synchronize(ctx, p.unwound.target)
	p.synced.Add(1)
	now := time.Now()
	if err == nil {
		err = u.enter(engine, p, began)
	} else if !isTemporary(err) && !errors.Is(err, unwind.ErrClosed) {
		u.leave(p)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, sampled := u.programs[p]; !sampled {
		return
	}
	if err == nil && u.resetSince(began) {
		err = errReset
	}
	w := &p.unwound
	w.at, w.failure = now, err
	if w.tried.IsZero() {
		w.tried = now
	}
	w.refused, w.unknown = engine.Runtimes(&w.target)
	w.took(now.Sub(began))
	switch {
	case err == nil:
	case errors.Is(err, errReset):
		w.failure, w.due = nil, now
	case errors.Is(err, errHeldBack):
		w.due = now // next waits until the user is free
	case errors.Is(err, unwind.ErrBusy):
		w.failure, w.due = nil, now.Add(minResync)
	case errors.Is(err, unwind.ErrNotReady): // most are in a moment
		w.pause = share.Backoff{Min: minResync, Max: maxResync}.Next(w.pause)
		w.due = now.Add(w.pause)
	case errors.Is(err, unwind.ErrQuarantined):
		w.due = now.Add(quarantinePoll)
	case !errors.Is(err, unwind.ErrGone) && !errors.Is(err, unwind.ErrClosed):
		w.pause = share.Backoff{Min: w.least, Max: maxResync}.Next(w.pause)
		w.due = now.Add(w.pause)
	}
}

// took sets the pauses after a program was synchronized, or that was tried, in a time. The first time that it
// succeeds is mostly for reading files, which the worker knows then: what a JVM maps while it starts is not to
// wait ten times as long, nor as long as one that was not ready.
func (w *unwound) took(d time.Duration) {
	w.least = max(minResync, 10*d)
	if w.failure != nil {
		return
	}
	if !w.known {
		w.known, w.least, w.pause = true, max(minResync, d), 0
	}
	w.pause = max(w.pause, w.least)
}

// enter has a program's samples go to the engine's chain, unless that was reset since synchronizing it
// began.
func (u *unwinding) enter(engine *unwind.Engine, p *program, began time.Time) error {
	u.chain.Lock()
	defer u.chain.Unlock()
	switch {
	case u.closed:
		return unwind.ErrClosed
	case u.resetSince(began):
		return errReset
	}
	u.mu.Lock()
	on, now := p.unwound.on, time.Now()
	held := u.time.free(p.unwound.target.User, now).After(now)
	u.mu.Unlock()
	switch {
	case on:
		return nil
	case held:
		return errHeldBack
	}
	if !u.armed {
		if err := u.sampler.SetUnwinder(engine.Unwinder()); err != nil {
			err = fmt.Errorf("%w: %w", errNoChain, err)
			u.mu.Lock()
			defer u.mu.Unlock()
			u.warn(err)
			return err
		}
		u.armed = true
	} else if err := engine.NoWaits(); err != nil { // a runtime of the program's may be the first for which that is so
		if err := u.sampler.SetWaitUnwinder(engine.Unwinder()); err != nil {
			return err
		}
	}
	if err := u.sampler.Unwind(p.number, true); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	p.setOn(true, bpf.Now())
	return nil
}

// leave has a program's samples walked by frame pointers, which the engine could not synchronize again: it
// may have forgotten what it knew.
func (u *unwinding) leave(p *program) {
	u.chain.Lock()
	defer u.chain.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, sampled := u.programs[p]; !sampled || !p.unwound.on {
		return
	}
	since := bpf.Now()
	if err := u.sampler.Unwind(p.number, false); err != nil {
		u.log.Error("leaving the unwinding programs", zap.Error(err))
		return
	}
	p.setOn(false, since)
}

// served is a time in which the engine unwound the stacks of a program, CLOCK_MONOTONIC in ns.
type served struct{ from, until uint64 } // until is MaxUint64 while it goes on

// setOn notes whether the engine unwinds the stacks of a program, and since when. The lock of unwinding is held.
func (p *program) setOn(on bool, since uint64) {
	if on == p.unwound.on {
		return
	}
	p.unwound.on = on
	var last [2]served
	if former := p.served.Load(); former != nil {
		last = *former
	}
	if on {
		last = [2]served{{since, math.MaxUint64}, last[0]}
	} else {
		last[0].until = since
	}
	p.served.Store(&last)
}

// wasServed reports whether the engine unwound the stacks of a program at a time, which is about that of the last
// drain or later.
func (p *program) wasServed(at uint64) bool {
	last := p.served.Load()
	return last != nil && slices.ContainsFunc(last[:], func(s served) bool { return s.from < at && at < s.until })
}

// reset has all stacks walked by frame pointers again, until the programs were synchronized anew. Those
// that were not synchronized wait as long as before: one of them may be the cause.
func (u *unwinding) reset() {
	u.chain.Lock()
	defer u.chain.Unlock()
	now, since := time.Now(), bpf.Now()
	u.resetAt.Store(&now)
	u.armed = false
	err := u.sampler.SetUnwinder(nil)
	if err != nil { // setting it is tried again for the programs that were unwound
		u.log.Error("removing the unwinding programs", zap.Error(err))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = nil
	for p := range u.programs {
		p.unwound.known = false // the next worker reads all files again
		if p.unwound.on {
			p.setOn(false, since)
			p.unwound.failure = nil
			p.unwound.due = now
		}
	}
	u.notify()
}

// resetSince reports whether the engine was reset since a time: it has forgotten what it learnt before.
func (u *unwinding) resetSince(at time.Time) bool {
	reset := u.resetAt.Load()
	return reset != nil && !reset.Before(at)
}
