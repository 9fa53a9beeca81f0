package sampling

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// Accounts come to the sink of their program, at the times that they are of; those of a program that is not
// sampled any more are counted.
func TestAccounts(t *testing.T) {
	s := openWith(t, Options{Waits: true})
	if status := s.Waits(); !status.Kept {
		testenv.Missing(t, status.Error)
	}
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := newReceiver(t, 1<<20)
	s.start(p, r)
	began := time.Now()
	waited := p.WaitIn(1, "pipe", time.Millisecond)
	ended := time.Now()
	var got profile.Account
	s.poll("an account", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = profile.Account{}
		for _, a := range r.accounts {
			if a.TraceID == waited.TraceID {
				first := got.First
				times := got.Times
				if got = a; !first.IsZero() {
					got.First = first
				}
				got.Times.Add(&times)
			}
		}
		return got.Times[profile.Unknown].Count >= 2 // the thread has come to the transaction, and has left it
	})
	of := got.Times[profile.Pipe]
	assert.Check(t, got.TID == waited.TID && got.TransactionID == waited.TransactionID && of.Count == 1 &&
		of.Sum == of.Longest && of.Sum > 0 && of.Sum <= waited.Waited, "%v: %+v", waited.Waited, got)
	assert.Check(t, got.First.After(began) && !got.Last.Before(got.First) && got.Last.Before(ended),
		"%v to %v, in %v to %v", got.First, got.Last, began, ended)
	s.forget(r.inbox)
	p.WaitIn(1, "pipe", time.Millisecond)
	s.poll("an account of nobody", func() bool { return s.counters.AccountsUnknown.Load() > 0 })
}

// A setting that is none is an error, and those that there are can be read again.
func TestWaitsSetting(t *testing.T) {
	for w := range numWaits {
		var again Waits
		text, err := w.MarshalText()
		assert.Check(t, err == nil && again.UnmarshalText(text) == nil && again == w, "%s, %v", text, err)
	}
	var none Waits
	assert.ErrorContains(t, none.UnmarshalText([]byte("on")), "none of auto and off")
}
