package keep

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// A rule has a service and a duration; anything else is none.
func TestRules(t *testing.T) {
	rules, err := ParseRules([]string{"shop > 500ms", "shop>1s", `shop-(a|b)>c? > 2m`})
	assert.Check(t, err == nil && len(rules) == 3 && rules[0].above == 500*time.Millisecond, "%+v, %v", rules, err)
	for _, text := range []string{"", "shop", ">", "> 5s", "shop > ", "shop > 5", "shop > 0s", "shop > -1s", "( > 1s",
		"shop < 1s"} {
		_, err := ParseRules([]string{text})
		assert.Check(t, err != nil, "%q is a rule", text)
	}
}

// slowStore returns a store with rules.
func slowStore(t *testing.T, period time.Duration, texts ...string) *Store {
	t.Helper()
	rules, err := ParseRules(texts)
	assert.NilError(t, err)
	return NewStore(period, MinBytes, rules...)
}

// expireAll has all expire that was added by then.
func expireAll(s *Store, then time.Time) {
	s.Expire(then.Add(s.period / 2)) // which ends slices
	s.Expire(then.Add(2 * s.period))
	s.Expire(then.Add(4 * s.period))
}

// took adds a transaction that took so long: two samples, a wait and an account.
func took(s *Store, r *profile.Resource, number int, at time.Time, wall time.Duration,
	names ...string) *profile.Sample {
	first := newSample(r, number, at, stackOf(names...))
	last := newSample(r, number, at.Add(wall), stackOf("main", names[0]))
	s.Add(first, at)
	s.Add(last, at)
	wait := *first
	wait.Wait = &profile.Wait{State: profile.Net, Peer: fmt.Sprint("10.0.0.7:", number),
		Sum: wall / 2, Longest: wall / 2}
	s.Add(&wait, at)
	s.AddAccount(newAccount(first, profile.Net, at.Add(wall), wall), at)
	return first
}

// Slow transactions of a service are there when others have expired, with all that was kept of them; the time of a span
// counts, if that is known.
func TestSlowIsKept(t *testing.T) {
	const period = 10 * time.Minute
	s := slowStore(t, period, "other > 1ms", "shop-a > 500ms")
	slow := took(s, resource("a", 1), 1, begin, 600*time.Millisecond, "slow")
	fast := took(s, resource("a", 2), 2, begin, 500*time.Millisecond, "fast")
	other := took(s, resource("b", 3), 3, begin, time.Minute, "other")
	spanned := took(s, resource("a", 4), 4, begin, time.Millisecond, "spanned")
	short := newSample(resource("a", 5), 5, begin, stackOf("short")) // in a long trace
	short.Context = profile.OTelContext
	trace := newAccount(short, profile.Net, begin.Add(time.Second), 400*time.Millisecond)
	trace.TransactionID, trace.First = [8]byte{}, begin.Add(-400*time.Millisecond)
	trace.Last = begin.Add(200 * time.Millisecond)
	s.AddAccount(trace, begin)
	s.Add(short, begin)
	s.AddSpans(begin.Add(time.Second), *spanOf(spanned, begin, time.Second))
	addUp(t, s)
	before := answer(t, s, Query{ID: traceOf(slow)}, begin)
	later := answer(t, s, Query{ID: traceOf(spanned)}, begin).Samples // which are not the first entries
	expireAll(s, begin)
	addUp(t, s)
	after := answer(t, s, Query{ID: traceOf(slow)}, begin)
	assert.Check(t, len(after.Transactions) == 1 && after.Transactions[0].Samples == 2 && len(after.Samples) == 2 &&
		after.Transactions[0].Earlier == 0 && len(after.Waits) == 1 && len(after.Waits[0].Moments) == 1, "%+v", after)
	assert.DeepEqual(t, after.Transactions[0].Account, before.Transactions[0].Account)
	assert.DeepEqual(t, after.Waits, before.Waits)
	assert.DeepEqual(t, answer(t, s, Query{ID: traceOf(spanned)}, begin).Samples, later)
	assert.Check(t, s.Stats().Oldest.Equal(begin), "%v", s.Stats().Oldest)
	entries := answer(t, s, Query{ID: traceOf(short)}, begin) // only what is of the trace itself
	assert.Check(t, len(entries.Samples) == 0, "%+v", entries)
	for _, of := range []*profile.Sample{fast, other} {
		gone := answer(t, s, Query{ID: traceOf(of)}, begin)
		assert.Check(t, len(gone.Transactions) == 0 && gone.Gone == "expired", "%+v", gone)
	}
	assert.Check(t, s.Stats().Slow.Kept == 3 && s.Stats().Slow.Forgotten == 0, "%+v", s.Stats().Slow)
	s.limit = 0
	s.evictSlow(begin.Add(2 * period))
	addUp(t, s)
	st := s.Stats() // they have been there for their time
	assert.Check(t, len(s.owners) == 0 && st.Slow == SlowStats{Forgotten: 3} && st.Evicted == 0 &&
		st.Waits.Evicted == 0 && st.AccountsForgotten[goneEvicted] == 0, "%+v", st)
}

// What changes of a slow transaction that is kept already is counted as its memory, too.
func TestSlowChanges(t *testing.T) {
	s := slowStore(t, time.Minute, "shop-a > 500ms")
	frame := profile.Frame{File: &profile.File{Kind: profile.NativeFrame, Path: "/bin/shop"}, Address: 0x1000}
	stack := &profile.Stack{ID: profile.StackTraceID{1}, Frames: []profile.Frame{frame, frame}}
	first := newSample(resource("a", 1), 1, begin, stack)
	later := *first
	later.Last = begin.Add(time.Second)
	assert.Check(t, s.Add(&later, begin), "names are not asked for")
	expireAll(s, begin)
	before := s.Stats().Slow.Bytes
	s.Named(first)
	s.name(begin, func(_ *profile.Resource, f profile.Frame) profile.Frame {
		return f.WithName(profile.NewSymbol("_ZN4shop5priceEv", "price"))
	})
	addUp(t, s)
	named := s.Stats().Slow.Bytes
	later.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "http.route", Value: "/cart"}})
	s.Add(&later, begin)
	s.AddAccount(newAccount(first, profile.Net, begin, time.Second), begin)
	addUp(t, s)
	assert.Check(t, before > 0 && named > before && s.Stats().Slow.Bytes > named, "%d bytes, %d with names",
		before, named)
	expireAll(s, begin.Add(time.Hour))
	addUp(t, s)
	a := answer(t, s, Query{}, begin)
	assert.Check(t, len(a.Transactions) == 1 && a.Transactions[0].Samples == 2 && a.Transactions[0].Account != nil &&
		a.Transactions[0].Attributes["http.route"] == "/cart" && a.Frames[0].Function == "price", "%+v", a)
}

// Times of slow transactions leave room for those of others, and of slow ones of other owners.
func TestSlowMoments(t *testing.T) {
	s := slowStore(t, time.Hour, "shop-.* > 500ms")
	room := s.slow.moments.Capacity()
	resources := map[string]*profile.Resource{"a": resource("a", 1), "b": resource("b", 2)}
	add := func(owner string, n int) {
		for i := range n {
			at := begin.Add(time.Duration(i) * time.Second)
			s.Add(newSample(resources[owner], 1, at, stackOf("main")), begin)
		}
	}
	add("a", room)
	untimed := s.Stats().Untimed
	add("b", 2)
	expireAll(s, begin)
	addUp(t, s)
	st := s.Stats()
	assert.Check(t, untimed == 0 && s.moments.Used() == 0 && s.slow.moments.Held("a") <= room/2 &&
		s.slow.moments.Held("b") == 2 && st.Untimed == uint64(room-s.slow.moments.Held("a")) &&
		st.Samples == uint64(room)+2, "%d times of %d, %+v", s.slow.moments.Held("a"), room, st)
}

// Of what was added at a time, as much is kept as there is room for, also if the stacks of all of it have none; with
// the samples of a transaction its account.
func TestSlowOfOneSlice(t *testing.T) {
	s := slowStore(t, time.Hour, "shop-.* > 500ms")
	r := resource("a", 1)
	const all = 700
	for i := range 2 * all { // the first half brings the stacks of the other one: so these have one slice
		took(s, r, i, begin, time.Duration(i/all)*time.Second, methods(i%all, 20)...)
	}
	expireAll(s, begin)
	addUp(t, s)
	slow := s.Stats().Slow
	assert.Check(t, slow.Bytes > MinBytes/partOfSlow*3/4 && slow.Forgotten > 100, "%+v", slow)
	got := answer(t, s, Query{}, begin)
	assert.Check(t, len(got.Transactions) == slow.Kept && slow.Kept > 100, "%d of %+v", len(got.Transactions), slow)
	for _, tx := range got.Transactions {
		assert.Assert(t, tx.Samples == 0 || tx.Account != nil, "%+v", tx)
	}
}

// An owner with very many slow transactions takes a part of the room at most, and pushes out its own before those of
// others: these stay, and what is not slow has the rest. What is forgotten is counted.
func TestSlowOfMany(t *testing.T) {
	s := slowStore(t, time.Hour, "shop-.* > 500ms")
	mine := took(s, resource("b", 2), 1_000_000, begin, time.Second, "mine")
	expireAll(s, begin)
	now := begin.Add(3 * time.Hour)
	hostile, quick := resource("a", 1), resource("c", 3)
	const all, every, few = 4000, 4, 10
	for i := range all {
		took(s, hostile, i, now, time.Second, methods(i, 20)...)
		if i%every == 0 {
			took(s, quick, 2_000_000+i, now, time.Millisecond, methods(i%few, 20)...)
		}
		if i%500 == 0 {
			addUp(t, s)
		}
	}
	addUp(t, s)
	slow := s.Stats().Slow
	assert.Check(t, slow.Forgotten > 1000 && slow.Kept > 100 && slow.Forgotten+uint64(slow.Kept) <= all+1 &&
		slow.Bytes > MinBytes/partOfSlow/2, "%+v", slow)
	a := answer(t, s, Query{ID: traceOf(mine)}, now)
	assert.Check(t, len(a.Transactions) == 1 && len(a.Samples) == 2 && a.Transactions[0].Account != nil, "%+v", a)
	got := answer(t, s, Query{Service: "shop-c"}, now)
	assert.Check(t, len(got.Transactions)+got.More == all/every, "%d that are not slow", len(got.Transactions)+got.More)
	expireAll(s, now)
	addUp(t, s)
	s.limit = 0
	s.evictSlow(now)
	addUp(t, s)
	assert.Check(t, len(s.owners) == 0 && s.slow.moments.Used() == 0, "%d owners", len(s.owners))
}

// Slow transactions that are kept have a bound of their own, also when one of them goes on.
func TestSlowGoesOn(t *testing.T) {
	s := slowStore(t, time.Minute, "shop-a > 500ms")
	r := resource("a", 1)
	many := s.limit / partOfAccounts / 2 / accountedBytes
	var last *profile.Sample
	for i := range many + 1 {
		last = newSample(r, i, begin, stackOf("main"))
		s.AddAccount(newAccount(last, profile.Net, begin.Add(time.Second), time.Second), begin)
		if i == many/2 {
			expireAll(s, begin)
		}
	}
	expireAll(s, begin.Add(time.Minute))
	kept := s.Stats().Slow.Kept
	s.AddAccount(newAccount(last, profile.Net, begin.Add(2*time.Second), time.Second), begin)
	assert.Check(t, kept == many+1 && s.Stats().Slow.Kept == kept, "%d of %d, then %d", kept, many+1,
		s.Stats().Slow.Kept)
	addUp(t, s)
}
