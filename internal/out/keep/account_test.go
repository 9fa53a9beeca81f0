package keep

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/otlp/spantimes"
	"correlator/profile"
)

// Accounts of a transaction are added up, whether it has samples or not.
func TestAccounts(t *testing.T) {
	const took = 20 * time.Millisecond
	s := NewStore(10*time.Minute, MinBytes)
	sample := newSample(resource("a", 1), 1, begin.Add(-time.Second), stackOf("main"))
	none := newAccount(sample, profile.Net, begin, took)
	none.TraceID = [16]byte{}
	s.AddAccount(none, begin)
	s.AddAccount(&profile.Account{TraceID: sample.TraceID}, begin)
	assert.Check(t, s.Stats().Accounts == 0, "of no transaction, or of no process")
	s.AddAccount(newAccount(sample, profile.Net, begin, took), begin)
	s.AddAccount(newAccount(sample, profile.OnCPU, begin.Add(took), took), begin)
	s.AddAccount(newAccount(sample, profile.Net, begin.Add(4*took), 3*took), begin)
	for _, samples := range []uint64{0, 1} {
		addUp(t, s)
		a := answer(t, s, Query{ID: traceOf(sample)}, begin)
		assert.Assert(t, len(a.Transactions) == 1, "%+v", a)
		tx := a.Transactions[0]
		assert.Assert(t, tx.Account != nil && tx.Samples == samples && !tx.Account.WholeTrace, "%+v", tx)
		of := tx.Account.Times
		assert.Check(t, of[profile.Net] == profile.StateTimes{Sum: 4 * took, Longest: 3 * took, Count: 2} &&
			of[profile.OnCPU].Sum == took && tx.Account.First.Equal(begin.Add(-took)) &&
			tx.Account.Last.Equal(begin.Add(4*took)), "%+v", tx.Account)
		if samples == 0 {
			assert.Check(t, tx.First.Equal(tx.Account.First) && tx.Last.Equal(tx.Account.Last), "%+v", tx)
		} else {
			assert.Check(t, tx.First.Equal(sample.At) && tx.Last.Equal(sample.At), "%+v", tx)
		}
		s.Add(sample, begin)
	}
}

// Many short transactions make no room among slow ones, and of a slow one that comes in short pieces all is kept.
func TestShortAccounts(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	first := newSample(r, 0, begin, nil)
	for i := range 2 * MinBytes / partOfAccounts / accountedBytes {
		at := begin.Add(time.Duration(i) * time.Millisecond)
		s.AddAccount(newAccount(newSample(r, i+1, begin, nil), profile.Net, at, time.Millisecond), at)
		if i < 500 {
			s.AddAccount(newAccount(first, profile.Disk, at, time.Microsecond), at)
		}
	}
	addUp(t, s)
	a := answer(t, s, Query{ID: traceOf(first)}, begin)
	assert.Assert(t, len(a.Transactions) == 1, "%+v", a)
	of := a.Transactions[0].Account
	assert.Check(t, of.Times[profile.Disk].Count == 500 && !of.Partial, "%+v", of)
	if forgotten := s.Stats().AccountsForgotten; forgotten[goneEvicted] == 0 || s.Stats().Complete.IsZero() {
		t.Errorf("%+v", s.Stats())
	}
}

// The slowest transaction is that from the first to the last of what is known of it.
func TestSlowestAccount(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	fast, slow := newSample(r, 1, begin, stackOf("main")), newSample(r, 2, begin, nil)
	s.Add(fast, begin)
	s.AddAccount(newAccount(slow, profile.Disk, begin.Add(time.Second), time.Second), begin)
	a := answer(t, s, Query{Order: Slowest, Most: 1}, begin)
	assert.Check(t, a.Transactions[0].Trace == traceOf(slow) && a.More == 1, "%+v", a)
}

// The busiest transaction is by its exact CPU time, as far as that is known, else by what samples stand for.
func TestBusiest(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	s.perSample = 50 * time.Millisecond
	r := resource("a", 1)
	of := func(i int) *profile.Sample { return newSample(r, i, begin, stackOf("main")) }
	sampled, unsampled, lucky, ofTrace, inOne := of(1), of(2), of(3), of(4), of(5)
	lucky.Count, inOne.Count = 3, 3 // 150 ms

	ofTrace.Context = profile.OTelContext // all of its trace is not its own
	trace := newAccount(ofTrace, profile.OnCPU, begin.Add(2*time.Second), time.Second)
	trace.TransactionID = [8]byte{}
	s.AddAccount(trace, begin)
	s.Add(sampled, begin)
	s.Add(lucky, begin)
	s.Add(ofTrace, begin)
	s.Add(inOne, begin)
	s.AddAccount(newAccount(inOne, profile.Unknown, begin.Add(time.Second), 130*time.Millisecond), begin) // in one run
	s.AddAccount(newAccount(unsampled, profile.OnCPU, begin.Add(time.Second), 120*time.Millisecond), begin)
	s.AddAccount(newAccount(lucky, profile.OnCPU, begin.Add(time.Second), 60*time.Millisecond), begin)
	var got []string
	for _, tx := range answer(t, s, Query{Order: Busiest}, begin).Transactions {
		got = append(got, tx.Trace)
	}
	assert.DeepEqual(t, got[:3], []string{traceOf(inOne), traceOf(unsampled), traceOf(lucky)})
	assert.Check(t, len(got) == 5)
}

// The fastest transactions are those of which it is known how long they were: others, without an account or with a part
// of one, and those that may go on, come after them, though what is known of them is shorter.
func TestFastest(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	now := begin.Add(time.Minute)
	of := func(i int) *profile.Sample { return newSample(r, i, begin, stackOf("main")) }
	slow, fast, sampled, partial, goesOn, spanned := of(1), of(2), of(3), of(4), of(5), of(6)
	s.Add(sampled, begin)
	s.AddAccount(newAccount(slow, profile.Net, begin.Add(time.Second), 300*time.Millisecond), begin)
	s.AddAccount(newAccount(fast, profile.Net, begin.Add(time.Second), 50*time.Millisecond), begin)
	s.AddAccount(newAccount(goesOn, profile.Net, now.Add(-9*time.Second), 2*time.Millisecond), now)
	s.AddAccount(newAccount(partial, profile.Net, begin.Add(time.Second), time.Millisecond), begin)
	s.process(r).transactions.get(transactionID{partial.TraceID, partial.TransactionID}).account.partial = true
	s.AddAccount(newAccount(spanned, profile.Net, now.Add(-time.Second), time.Millisecond), now)
	s.AddSpans(now, *spanOf(spanned, now.Add(-2*time.Second), time.Second))
	var got []string
	for _, tx := range answer(t, s, Query{Order: Fastest}, now).Transactions {
		got = append(got, tx.Trace)
	}
	assert.DeepEqual(t, got, []string{traceOf(fast), traceOf(slow), traceOf(spanned), traceOf(sampled),
		traceOf(partial), traceOf(goesOn)})
}

// Accounts expire, and make room for others, each with its transaction if that has no samples: nothing is
// left.
func TestForgottenAccounts(t *testing.T) {
	const period = 10 * time.Minute
	s := NewStore(period, MinBytes)
	r := resource("a", 1)
	first := newSample(r, 0, begin, stackOf("main"))
	s.Add(first, begin)
	for i := range 2 * MinBytes / partOfAccounts / accountedBytes {
		s.AddAccount(newAccount(newSample(r, i, begin, nil), profile.Net, begin, time.Second), begin)
	}
	addUp(t, s)
	a := answer(t, s, Query{ID: traceOf(first)}, begin)
	assert.Check(t, len(a.Transactions) == 1 && a.Transactions[0].Account == nil, "%+v", a.Transactions)
	kept := s.Stats()
	evicted := int(kept.AccountsForgotten[goneEvicted])
	assert.Check(t, evicted > 1 && kept.Transactions > 1, "%+v", kept)
	last := newSample(r, evicted-1, begin, nil)
	s.AddAccount(newAccount(first, profile.Net, begin, time.Second), begin)
	a = answer(t, s, Query{ID: traceOf(first)}, begin)
	assert.Check(t, a.Transactions[0].Account.Partial, "%+v", a.Transactions)
	gone := answer(t, s, Query{ID: traceOf(last)}, begin)
	assert.Check(t, len(gone.Transactions) == 0 && gone.Gone == "evicted", "%+v", gone)
	s.Expire(begin.Add(period / 2)) // which ends the slice of samples
	s.Expire(begin.Add(2 * period))
	s.Expire(begin.Add(4 * period))
	assert.Check(t, len(s.owners) == 0 && s.Stats().Bytes == s.gone.bytes() && s.Stats().Accounts == 0, "%+v",
		s.Stats())
}

// Where accounts of many owners have no room, they make it for each other, and not samples.
func TestAccountsOfOwners(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	const owners = 12
	var resources []*profile.Resource
	for i := range owners {
		resources = append(resources, resource(fmt.Sprint(i), i))
	}
	for i := range owners * MinBytes / partOfAccounts / 2 / accountedBytes {
		sample := newSample(resources[i%owners], i, begin, stackOf("main"))
		if i < owners {
			s.Add(sample, begin)
		}
		s.AddAccount(newAccount(sample, profile.Net, begin, time.Second), begin)
	}
	addUp(t, s)
	st := s.Stats()
	assert.Check(t, st.Samples == owners && st.AccountsForgotten[goneEvicted] > 1000, "%+v", st)
}

// An account is forgotten in time, whether others are slow or not.
func TestExpiredAccounts(t *testing.T) {
	const period = 10 * time.Minute
	for _, took := range []time.Duration{slow - 1, slow} {
		s := NewStore(period, MinBytes)
		r := resource("a", 1)
		s.AddAccount(newAccount(newSample(r, 1, begin, nil), profile.Net, begin, took), begin)
		now := begin.Add(period)
		s.AddAccount(newAccount(newSample(r, 2, begin, nil), profile.Net, now, 2*slow-took), now)
		s.Expire(now.Add(-1))
		assert.Check(t, s.Stats().Accounts == 2, "%+v", s.Stats())
		s.Expire(now)
		assert.Check(t, s.Stats().Accounts == 1 && s.Stats().AccountsForgotten[goneExpired] == 1, "%+v", s.Stats())
	}
}

// A thread in OpenTelemetry's context does not tell its transaction: its account is shown with the one that its
// samples tell, and not beside it.
func TestAccountOfTrace(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
	sample.Context = profile.OTelContext
	account := newAccount(sample, profile.Net, begin, time.Second)
	account.TransactionID = [8]byte{}
	s.AddAccount(account, begin)
	a := answer(t, s, Query{}, begin)
	assert.Check(t, len(a.Transactions) == 1 && a.Transactions[0].ID == "" && !a.Transactions[0].Account.WholeTrace, a)
	s.Add(sample, begin)
	for _, id := range []string{"", traceOf(sample), hexadecimal(sample.TransactionID[:])} {
		a := answer(t, s, Query{ID: id}, begin)
		assert.Assert(t, len(a.Transactions) == 1, "%q: %+v", id, a.Transactions)
		tx := a.Transactions[0]
		assert.Check(t, tx.ID != "" && tx.Account.WholeTrace && tx.Account.Times[profile.Net].Sum == time.Second, tx)
	}
	fast := newSample(resource("a", 1), 2, begin, stackOf("main"))
	s.Add(fast, begin)
	slowest := answer(t, s, Query{Order: Slowest, Most: 1}, begin)
	assert.Check(t, slowest.Transactions[0].Trace == traceOf(sample) && slowest.More == 1, "%+v", slowest)
	s.Expire(begin.Add(time.Hour))
	s.Expire(begin.Add(2 * time.Hour))
	assert.Check(t, len(s.owners) == 0, "%+v", s.Stats())
}

// Accounts count in the size of an answer's text.
func TestSizeOfAccounts(t *testing.T) {
	s := NewStore(10*time.Minute, 16<<20)
	for i := range MaxTransactions {
		account := newAccount(newSample(resource("a", 1), i, begin, nil), profile.Net, begin, time.Second)
		for state := range account.Times {
			account.Times[state] = profile.StateTimes{Sum: 1 << 62, Longest: 1 << 62, Count: 1 << 63}
		}
		s.AddAccount(account, begin)
		span := spantimes.Span{TraceID: account.TraceID, ID: account.TransactionID}
		span.Start, span.End = uint64(account.First.UnixNano()), uint64(begin.UnixNano())
		s.AddSpans(begin, span)
	}
	a := answer(t, s, Query{}, begin)
	text, err := json.Marshal(a)
	assert.Check(t, err == nil && len(text) <= answerBytes/2+4096 && a.More > 0 && len(a.Transactions) > 1,
		"%d bytes, %d transactions, %d more, %v", len(text), len(a.Transactions), a.More, err)
}
