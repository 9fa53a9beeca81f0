package sampling

import (
	"fmt"
	"time"

	"correlator/bpf"
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
	for i, name := range waitsNames {
		if name == string(text) {
			*w = Waits(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of auto and off", text)
}

// WaitsStatus says whether accounts are kept.
type WaitsStatus struct {
	Kept  bool   `json:"kept"`
	Error string `json:"error,omitempty"` // why not
}

// Waits returns whether accounts are kept, nil if they were not asked for.
func (s *Sampling) Waits() *WaitsStatus {
	switch {
	case s.waits != nil:
		return &WaitsStatus{Kept: true}
	case s.unaccounted != nil:
		return &WaitsStatus{Error: s.unaccounted.Error()}
	}
	return nil
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
		program.sink.Accounted(&account)
		s.counters.Accounts.Add(1)
	}))
}

// states are those of the kernel's accounts.
var states = [bpf.ThreadStates]profile.ThreadState{
	bpf.OnCPU: profile.OnCPU, bpf.Changed: profile.Unknown, bpf.Runnable: profile.Runnable,
	bpf.Throttled: profile.Throttled, bpf.Futex: profile.Futex, bpf.Sleep: profile.Sleep, bpf.Net: profile.Net,
	bpf.Unix: profile.Unix, bpf.Pipe: profile.Pipe, bpf.Poll: profile.Poll, bpf.Disk: profile.Disk,
	bpf.Fault: profile.Fault, bpf.Other: profile.Other,
}

func newAccount(a *bpf.Account, now instant) profile.Account {
	account := profile.Account{TraceID: a.TraceID, TransactionID: a.TransactionID, TID: a.TID,
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
