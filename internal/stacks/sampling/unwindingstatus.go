package sampling

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"correlator/internal/stacks/unwind"
)

const (
	// settlePoll is how often settle looks.
	settlePoll = 10 * time.Millisecond

	// startGrace is how long settle waits for a runtime that starts: it is ready in a moment, or never will be.
	startGrace = 3 * time.Second
)

// settle waits until the stacks of each program that is sampled are walked by the engine, or cannot be, for which
// it must have been tried; or until the context ends.
func (u *unwinding) settle(ctx context.Context) {
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	for !u.isSettled(time.Now()) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

func (u *unwinding) isSettled(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failing() != nil {
		return true
	}
	for p := range u.programs {
		w := &p.unwound
		if w.on && u.noWaitsYet {
			return false
		}
		starts := errors.Is(w.failure, unwind.ErrNotReady) && now.Sub(w.tried) < startGrace
		// A worker that was killed is replaced. Whose fault it was is left out then.
		if !p.unseen.Load() && !w.on && (w.failure == nil || starts || errors.Is(w.failure, unwind.ErrKilled)) {
			return false
		}
	}
	return true
}

// UnwindingStatus is how stacks are walked. Its JSON is an interface.
type UnwindingStatus struct {
	Needed   bool           `json:"needed"`             // a process was, or is, sampled; before, no engine is loaded
	Loaded   bool           `json:"loaded"`             // the engine is
	Failure  string         `json:"failure,omitempty"`  // why by frame pointers alone
	Unwound  int            `json:"unwound"`            // processes whose stacks the engine walks, but for Native
	Native   int            `json:"native"`             // the same as native code alone: see Refused
	Waiting  int            `json:"waiting"`            // processes whose stacks are walked by frame pointers (yet)
	Failures map[int]string `json:"failures,omitempty"` // why, by pid, of some of these
	// Refused is why functions of a runtime have no names, by pid, and Unknown what is to be said of runtimes in
	// versions that were not tried; of some processes.
	Refused map[int]string `json:"refused,omitempty"`
	Unknown map[int]string `json:"unknown,omitempty"`
	Engine  *unwind.Status `json:"engine,omitempty"`
}

var errLoading = errors.New("the unwinding engine is being loaded")

// Err returns why all stacks are walked by frame pointers, nil when they are not, or none is.
func (s *UnwindingStatus) Err() error {
	switch {
	case s.Failure != "":
		return errors.New(s.Failure)
	case s.Needed && !s.Loaded:
		return errLoading
	}
	return nil
}

// maxFailures bounds the texts of each kind in UnwindingStatus.
const maxFailures = 64

func (u *unwinding) status() (s UnwindingStatus) {
	if engine := u.engine.Load(); engine != nil {
		status := engine.Status()
		s.Loaded, s.Engine, s.Failure = true, &status, status.Failure
	}
	select {
	case <-u.needed:
		s.Needed = true
	default:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.failing(); err != nil {
		s.Failure = err.Error()
	}
	for p := range u.programs {
		w := &p.unwound
		switch {
		case p.unseen.Load():
		case !w.on:
			s.Waiting++
			if w.failure != nil {
				say(&s.Failures, p.identity.PID, w.failure.Error())
			}
		case w.refused != "":
			s.Native++
			say(&s.Refused, p.identity.PID, w.refused)
		default:
			s.Unwound++
		}
		if w.on && w.unknown != "" {
			say(&s.Unknown, p.identity.PID, w.unknown)
		}
	}
	return s
}

// Unread is why functions of a runtime have no names that the engine cannot read, by pid: those of Refused, and of
// Failures.
func (s *UnwindingStatus) Unread() map[int]string {
	unread := maps.Clone(s.Refused)
	for pid, failure := range s.Failures {
		if reason, ok := strings.CutPrefix(failure, unwind.ErrNotReady.Error()+": "); ok {
			say(&unread, pid, reason)
		}
	}
	return unread
}

// say adds what is to be said of a process, unless that is said of maxFailures.
func say(of *map[int]string, pid int, text string) {
	if *of == nil {
		*of = make(map[int]string)
	}
	if len(*of) < maxFailures {
		(*of)[pid] = text
	}
}
