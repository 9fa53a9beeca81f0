package keep

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/clocks"
	"correlator/internal/out/bootclock"
	"correlator/otlp/spantimes"
	"correlator/profile"
)

// The clock is set, or the machine suspended, while a transaction runs. What is kept stays for its time and no longer,
// the transaction is as long as it was, its times are by the clock as it is set, and its span is known by them.
func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*clocks.Clocks)
		took, set time.Duration
	}{
		"nothing":   {func(*clocks.Clocks) {}, 2 * time.Second, 0},
		"forward":   {func(m *clocks.Clocks) { m.Set(time.Hour) }, 2 * time.Second, time.Hour},
		"back":      {func(m *clocks.Clocks) { m.Set(-time.Hour) }, 2 * time.Second, -time.Hour},
		"suspended": {func(m *clocks.Clocks) { m.Suspend(time.Minute) }, time.Minute + 2*time.Second, 0},
	} {
		m := clocks.New()
		s := NewStore(10*time.Minute, MinBytes)
		s.clock = bootclock.New(m.Instant)
		began := m.Now()
		r, stack := resource("a", 1), stackOf("main")
		first := newSample(r, 1, began, stack)
		s.Add(first, m.Now())
		s.AddAccount(newAccount(first, profile.OnCPU, began, 0), m.Now())
		m.Pass(time.Second)
		before := newSample(r, 1, m.Now(), stack)
		c.meanwhile(m)
		s.Expire(m.Now())
		s.Add(before, m.Now())
		m.Pass(time.Second)
		last := newSample(r, 1, m.Now(), stack)
		s.Add(last, m.Now())
		s.AddAccount(newAccount(last, profile.Net, m.Now(), 0), m.Now())
		ended := m.Now()
		s.AddSpans(m.Now(), spantimes.Span{TraceID: last.TraceID, ID: last.TransactionID,
			Start: uint64(ended.Add(-c.took).UnixNano()), End: uint64(ended.UnixNano())})

		a := answer(t, s, Query{ID: traceOf(first), Since: m.Now().Add(-3 * time.Second).Round(0)}, m.Now())
		assert.Assert(t, len(a.Transactions) == 1, "%s: %+v", name, a)
		tx := a.Transactions[0]
		begins, ends := began.Add(c.set).Round(0), ended.Round(0)
		assert.Check(t, tx.Samples == 3 && tx.First.Equal(begins) && tx.Last.Equal(ends), "%s: %+v", name, tx)
		assert.Check(t, tx.Account.First.Equal(begins) && tx.Account.Last.Equal(ends), "%s: %+v", name, tx.Account)
		assert.Check(t, tx.Span != nil && tx.Span.Start.Equal(begins) && tx.Span.End.Equal(ends), "%s: %+v", name,
			tx.Span)
		assert.Check(t, a.Oldest.Equal(begins), "%s: since %v", name, a.Oldest)
		moments := a.Samples[0].Moments
		assert.Check(t, len(moments) == 3 && moments[0].First == begins.UnixNano() &&
			moments[2].Last == ends.UnixNano(), "%s: %+v", name, moments)

		m.Pass(s.period / slicesOfPeriod)
		s.Expire(m.Now())
		m.Pass(s.period)
		s.Expire(m.Now())
		gone := m.Now()
		a = answer(t, s, Query{ID: traceOf(first)}, m.Now())
		assert.Check(t, len(a.Transactions) == 0 && a.Gone == "expired" &&
			gone.Sub(a.GoneAt).Abs() < 2*time.Second, "%s: %+v", name, a)
		addUp(t, s)
	}
}
