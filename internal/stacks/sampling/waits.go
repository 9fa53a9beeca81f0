package sampling

import (
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/label"
	"correlator/profile"
)

// Waits is whether accounts are kept of what threads do that have a context: a setting.
type Waits uint8

const (
	// AutoWaits: where the kernel can, and somebody takes them.
	AutoWaits Waits = iota
	// NoWaits: never.
	NoWaits
	numWaits
)

var waitsNames = [numWaits]string{"auto", "off"}

// String returns the value of the setting.
func (w Waits) String() string { return waitsNames[w] }

// MarshalText returns the value of the setting.
func (w Waits) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText parses the value of the setting.
func (w *Waits) UnmarshalText(text []byte) error {
	return label.Parse(w, waitsNames[:], text, "none of auto and off")
}

// WaitsStatus says whether accounts are kept.
type WaitsStatus struct {
	Kept  bool   `json:"kept"`            // if somebody wants them
	Idle  bool   `json:"idle,omitempty"`  // they are not now: nobody does, or none has a context yet
	Error string `json:"error,omitempty"` // why not

	Stacks      bool   `json:"stacks"`                 // those of waits are walked
	StacksError string `json:"stacks_error,omitempty"` // why not, though accounts are kept; or only by frame pointers
}

// Waits returns whether accounts are kept, nil if they were not asked for.
func (s *Sampling) Waits() *WaitsStatus {
	switch {
	case s.waits != nil:
		status := &WaitsStatus{Kept: true, Idle: s.waitsIdle.Load(), Stacks: true}
		if err := s.notResumed.Load(); err != nil {
			return &WaitsStatus{Error: (*err).Error()}
		}
		if err := s.waits.Walkless(); err != nil {
			status.Stacks, status.StacksError = false, err.Error()
		} else if err := s.sampler.Chainless(); err != nil {
			status.StacksError = "by frame pointers: " + err.Error()
		}
		return status
	case s.unaccounted != nil:
		return &WaitsStatus{Error: s.unaccounted.Error()}
	}
	return nil
}

// WaitsSince returns when accounts were last resumed, with WaitsWanted; the zero time before that.
func (s *Sampling) WaitsSince() time.Time {
	if since := s.since.Load(); since != 0 {
		return s.opened.Add(time.Duration(since))
	}
	return time.Time{}
}

// wantsWaits reports whether accounts are to be kept. Each switch of the host takes time then, also where all processes
// are sampled and none has a context. Once one had, there may be others.
func (s *Sampling) wantsWaits() bool {
	return s.waitsWanted() && (!s.lazy || s.byThread || s.obi.Load() || s.traced.Load())
}

// switchWaits has the kernel keep accounts while somebody wants them, and do nothing for that else.
func (s *Sampling) switchWaits() {
	if s.waits == nil {
		return
	}
	s.switching.Lock()
	defer s.switching.Unlock()
	wanted := s.wantsWaits()
	if !wanted {
		s.notResumed.Store(nil)
		s.resumed = time.Time{} // who wants them next has them tried at once
	}
	if wanted != s.waitsIdle.Load() {
		return
	}
	if !s.waitsIdle.Load() {
		s.recordError("pausing accounts", s.waits.Pause())
		s.waitsIdle.Store(true)
		return
	}
	if time.Since(s.resumed) < minReload { // it failed
		return
	}
	since := time.Since(s.opened)
	err := s.resume()
	s.recordError("resuming accounts", err)
	if err != nil {
		s.resumed = time.Now()
		s.notResumed.Store(&err)
		return
	}
	s.since.Store(int64(since))
	s.notResumed.Store(nil)
	s.waitsIdle.Store(false)
}

// drainAccounts hands on what was accounted since the last call.
func (s *Sampling) drainAccounts(now instant) {
	if s.waits == nil {
		return
	}
	s.recordError("draining accounts", s.waits.Drain(func(a *bpf.Account) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		program := s.programs[a.Target]
		if program == nil || program.inbox.forgotten {
			s.counters.AccountsUnknown.Add(1)
			return
		}
		account := newAccount(a, now)
		if !s.byThread {
			s.counters.WaitsIdleLate.Add(uint64(program.idle.takeFrom(&account)))
		}
		program.sink.Accounted(&account)
		s.counters.Accounts.Add(1)
	}))
}

// drainWalks hands on the waits whose stacks were walked since the last call.
func (s *Sampling) drainWalks(now instant) {
	if s.waits == nil {
		return
	}
	s.recordError("draining stacks of waits", s.waits.DrainWalks(func(w *bpf.Walk) {
		if w.Stack.Target == 0 { // of the test
			return
		}
		waits := newWaits(w)
		s.counters.Walks.Add(uint64(len(waits)))
		program := s.program(w.Stack.Target)
		if program == nil {
			s.counters.Waits.Add(process.OutcomeUnknownProcess, uint64(len(waits)))
			return
		}
		p := pendingSample{program: program, sample: program.newWait(w, now), key: w.Stack, raw: w.Frames}
		p.sample.Start, p.sample.End = p.sample.At, p.sample.At
		for _, wait := range waits {
			p.sample.Wait = &wait
			if !s.deliverKnown(&p, now) {
				s.deliverOrWait(&p, now)
			}
		}
	}))
}

// newWait is a wait without what it is, and its stack.
func (p *program) newWait(w *bpf.Walk, now instant) profile.Sample {
	return p.newSample(&bpf.Count{Stack: w.Stack, TID: w.TID, Thread: w.Thread, TraceID: w.TraceID,
		TransactionID: w.TransactionID, SpanID: w.SpanID, Samples: 1, OTel: w.OTel, OfLabels: w.OfLabels,
		Attributes: w.Attributes, First: w.Time, Last: w.Time}, now)
}

// newWaits returns the waits of which a stack was walked: what blocked, and the wait for a CPU after that.
func newWaits(w *bpf.Walk) (waits []profile.Wait) {
	state := states[w.State]
	queue := profile.Wait{State: profile.Runnable, Sum: time.Duration(w.Queued), Longest: time.Duration(w.Queue)}
	waker := profile.Waker{Kind: wakers[w.Waker.Kind], PID: w.Waker.PID, TID: w.Waker.TID, Thread: w.Waker.Name,
		TraceID: w.Waker.TraceID, TransactionID: w.Waker.TransactionID}
	if w.Waker.OTel {
		waker.Context = profile.OTelContext
	}
	if state == profile.Runnable || state == profile.Throttled {
		queue.State, queue.Sum, queue.Waker = state, queue.Sum+time.Duration(w.NS), waker
		return []profile.Wait{queue}
	}
	if w.NS > 0 {
		wait := profile.Wait{State: state, Sum: time.Duration(w.NS), Longest: time.Duration(w.Longest),
			Queue: time.Duration(w.Queue), Path: w.Path, Futex: w.Futex, Waker: waker}
		if w.Peer.IsValid() {
			wait.Peer = w.Peer.String()
		}
		waits = append(waits, wait)
	}
	if w.Queued > 0 {
		waits = append(waits, queue)
	}
	return waits
}

// wakers are those of the kernel.
var wakers = map[bpf.WakerKind]profile.WakerKind{
	bpf.ThreadWaker: profile.ThreadWaker, bpf.TimerWaker: profile.TimerWaker, bpf.DeviceWaker: profile.DeviceWaker,
	bpf.NetworkWaker: profile.NetworkWaker,
}

// states are those of the kernel's accounts.
var states = [bpf.ThreadStates]profile.ThreadState{
	bpf.OnCPU: profile.OnCPU, bpf.Changed: profile.Unknown, bpf.Runnable: profile.Runnable,
	bpf.Throttled: profile.Throttled, bpf.Futex: profile.Futex, bpf.Sleep: profile.Sleep, bpf.Net: profile.Net,
	bpf.Unix: profile.Unix, bpf.Pipe: profile.Pipe, bpf.Poll: profile.Poll, bpf.Disk: profile.Disk,
	bpf.Fault: profile.Fault, bpf.Other: profile.Other,
}

func newAccount(a *bpf.Account, now instant) profile.Account {
	account := profile.Account{TraceID: a.TraceID, TransactionID: a.TransactionID, TID: a.TID, Thread: a.Thread,
		First: now.at(a.First), Last: now.at(a.Last)}
	if a.OTel {
		account.Context = profile.OTelContext
	}
	for i, of := range a.States {
		account.Times[states[i]] = profile.StateTimes{Sum: time.Duration(of.NS), Longest: time.Duration(of.Longest),
			Count: uint64(of.Count)}
	}
	return account
}
