package keep

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/naming"
	"correlator/internal/out"
	"correlator/profile"
)

// A transaction is found by its ids, and how they begin; what was counted is there by span and thread.
func TestAnswer(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 100)
	inner, outer := stackOf("inner", "main"), stackOf("main")
	first := newSample(r, 1, begin, inner)
	first.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "http.route", Value: "/orders"}})
	s.Add(first, begin)
	again := newSample(r, 1, begin.Add(time.Second), inner)
	again.Count, again.Last = 2, begin.Add(1100*time.Millisecond)
	again.End = begin.Add(5 * time.Second) // when it was fetched
	s.Add(again, begin.Add(time.Second))
	other := newSample(r, 1, begin.Add(1050*time.Millisecond), outer)
	other.SpanID, other.TID, other.Thread = [8]byte{0xab, 0xcd, 1}, 8, "other"
	s.Add(other, begin.Add(time.Second))
	s.Add(newSample(resource("b", 200), 2, begin.Add(2*time.Second), outer), begin.Add(2*time.Second))
	addUp(t, s)

	now := begin.Add(3 * time.Second)
	trace := traceOf(first)
	for _, id := range []string{trace, trace[:8], "bf58476d1ce4e5ba", "bf58", "abcd010000000000"} {
		a := answer(t, s, Query{ID: id}, now)
		assert.Assert(t, len(a.Transactions) == 1, "%s: %+v", id, a.Transactions)
		tx := a.Transactions[0]
		if tx.Trace != trace || tx.ID != "bf58476d1ce4e5ba" || tx.Context != "elastic" || tx.Samples != 4 ||
			tx.Attributes["http.route"] != "/orders" || !tx.First.Equal(begin) || !tx.Last.Equal(again.Last) {
			t.Errorf("%+v", tx)
		}
		assert.Check(t, len(a.Samples) == 2 && a.Samples[0].Count == 3 && a.Samples[0].Thread == "worker" &&
			a.Samples[0].Span == "" && a.Samples[1].Thread == "other" && a.Samples[1].Span == "abcd010000000000",
			"%+v", a.Samples)
		assert.Check(t, len(a.Stacks) == 2 && len(a.Frames) == 3 && a.Frames[0].Function == "inner" &&
			a.Frames[0].Source == "Shop.java" && a.Frames[0].Line == 1 && a.Processes[0].Service == "shop-a" &&
			a.Processes[0].PID == 100,
			"%+v %+v %+v", a.Stacks, a.Frames, a.Processes)
	}
	for _, test := range []struct {
		q    Query
		want []string // services
	}{
		{Query{}, []string{"shop-a", "shop-b"}},
		{Query{Most: 1}, []string{"shop-a"}},
		{Query{Service: "shop-[b]"}, []string{"shop-b"}},
		{Query{Service: "shop"}, nil},
		{Query{Since: begin.Add(1500 * time.Millisecond)}, []string{"shop-b"}},
		{Query{Order: Slowest}, []string{"shop-a", "shop-b"}},
		{Query{ID: trace, Service: "shop-b"}, nil}, // TestFiltered
		{Query{ID: "0123"}, nil},
	} {
		a := answer(t, s, test.q, now)
		var got []string
		for _, tx := range a.Transactions {
			got = append(got, a.Processes[tx.Process].Service)
		}
		assert.Check(t, slices.Equal(got, test.want) && a.Gone == "", "%+v: %q, gone %q", test.q, got, a.Gone)
	}
	a := answer(t, s, Query{Most: 1}, now)
	assert.Check(t, a.More == 1, "%d more", a.More)
	_, err := s.Answer(t.Context(), Query{Service: "("}, now)
	assert.Check(t, err != nil, "no error of a wrong expression")
}

// An id that several begin with is none; one in full is, also if another begins so.
func TestAmbiguous(t *testing.T) {
	s := NewStore(time.Minute, MinBytes)
	r := resource("a", 1)
	for i := range 3 {
		sample := newSample(r, i, begin, stackOf("main"))
		sample.TraceID = [16]byte{0xab, 0xcd, byte(i / 2)}
		s.Add(sample, begin)
	}
	a := answer(t, s, Query{ID: "abcd"}, begin)
	want := []string{"abcd0000000000000000000000000000", "abcd0100000000000000000000000000"}
	assert.Check(t, slices.
		Equal(a.Ambiguous, want) && len(a.Transactions) == 0, "%q", a.Ambiguous)
	if a := answer(t, s, Query{ID: "abcd000"}, begin); len(a.Transactions) != 2 || a.Ambiguous != nil {
		t.Errorf("%+v", a)
	}
}

// No number of samples of one thread in one stack is too large.
func TestLargeCount(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
	sample.Count = math.MaxUint32 - 1
	want := uint64(0)
	for range 3 {
		s.Add(sample, begin)
		want += sample.Count
		addUp(t, s)
		a := answer(t, s, Query{}, begin)
		assert.Check(t, len(a.Samples) == 1 && a.Samples[0].Count == want && a.Kept == want, "%+v, want %d", a, want)
	}
	s.Expire(begin.Add(time.Hour))
	s.Expire(begin.Add(2 * time.Hour))
	addUp(t, s)
	st := s.Stats()
	assert.Check(t, st.Samples == 0 && st.Expired == want && st.Added == want, "%+v", st)
}

// What is too old is forgotten by the slice, with all that belongs to it, and its id is remembered.
func TestExpire(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	old, long := newSample(r, 1, begin, stackOf("old")), newSample(r, 2, begin, stackOf("long"))
	s.Add(old, begin)
	for minute := range 12 {
		now := begin.Add(time.Duration(minute) * time.Minute)
		s.Expire(now)
		addUp(t, s)
		for _, slice := range s.owners["a"].slices {
			assert.Check(t, slice.ended != 0 || minute == 0, "after %d minutes, a slice has not ended", minute)
		}
		sample := newSample(r, 2, now, stackOf("long"))
		s.Add(sample, now)
		addUp(t, s)
		found := len(answer(t, s, Query{ID: traceOf(old)}, now).Transactions) == 1
		want := minute <= 10
		assert.Check(t, found == want, "after %d minutes it is there: %v", minute, found)
	}
	now := begin.Add(12 * time.Minute)
	a := answer(t, s, Query{ID: traceOf(old)}, now)
	assert.Check(t, a.Gone == "expired" && !a.GoneAt.Before(begin.Add(10*time.Minute)) && !a.GoneAt.After(now),
		"gone %q at %v", a.Gone, a.GoneAt)
	tx := answer(t, s, Query{ID: traceOf(long)}, now).Transactions[0]
	assert.Check(t, tx.Earlier == 1 && tx.Samples == 11 && tx.First.Equal(begin), "%+v", tx)
	s.Expire(begin.Add(time.Hour))
	s.Expire(begin.Add(2 * time.Hour))
	addUp(t, s)
	if s.bytes != 0 || len(s.owners) != 0 || s.stats.Samples != 0 {
		t.Errorf("%d bytes are left, %+v", s.bytes, s.stats)
	}
}

// One who fills the store, by whatever takes memory, forgets what is their own, and nobody else's.
func TestHostileOwner(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	modest := resource("modest", 1)
	first := newSample(modest, 1, begin, stackOf("main"))
	s.Add(first, begin)
	evil := resource("evil", 2)
	now := begin
	const samples = 4000 // twice what there is room for
	for i := range samples {
		now = now.Add(time.Millisecond)
		sample := newSample(evil, i+2, now, stackOf(methods(i, 20)...))
		sample.TID, sample.Thread = i, strings.Repeat("x", 15)
		sample.SpanID = [8]byte{byte(i), byte(i >> 8)}
		sample.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "k", Value: fmt.Sprint(i)}})
		if i%(samples/20) == 0 {
			s.Add(newSample(modest, i+1_000_000, now, stackOf("main")), now)
			addUp(t, s)
		}
		if i%100 == 0 { // processes, too
			evil = resource("evil", 3+i)
		}
		s.Add(sample, now)
	}
	addUp(t, s)
	a := answer(t, s, Query{Service: "shop-modest"}, now)
	if len(a.Transactions) != 21 || s.stats.Evicted == 0 {
		t.Errorf("%d transactions of the modest owner, %d evicted", len(a.Transactions), s.stats.Evicted)
	}
	remembered := 0
	for i := range 100 { // of a third of those that were forgotten, since places are shared
		if answer(t, s, Query{ID: traceOf(newSample(evil, 2+i*samples/133, now, nil))}, now).Gone == "evicted" {
			remembered++
		}
	}
	assert.Check(t, remembered >= 10, "of 100 that were evicted, %d are remembered", remembered)
	last := answer(t, s, Query{ID: traceOf(newSample(evil, samples-1+2, now, nil))}, now)
	assert.Check(t, len(last.Transactions) == 1, "what came last is not there")
}

// Threads are forgotten with their samples, not the samples of others for them; and a thread has the name
// that it had.
func TestThreads(t *testing.T) {
	s := NewStore(24*time.Hour, MinBytes)
	r, main := resource("a", 1), stackOf("main")
	now, least := begin, uint64(0)
	for i := range 80_000 {
		now = now.Add(time.Millisecond)
		sample := newSample(r, i/10, now, main)
		sample.TID, sample.Thread = i, "worker"
		s.Add(sample, now)
		if s.stats.Evicted > 0 && (least == 0 || s.stats.Samples < least) {
			least = s.stats.Samples
		}
	}
	addUp(t, s)
	if least < 10_000 || s.stats.Evicted < 20_000 {
		t.Errorf("%d samples are kept at least, %d evicted", least, s.stats.Evicted)
	}
	s = NewStore(24*time.Hour, MinBytes)
	for i, name := range []string{"checkout", "gc-worker", ""} {
		sample := newSample(r, i, begin, main)
		sample.Thread = name
		s.Add(sample, begin.Add(time.Duration(i)*time.Hour))
	}
	for i, name := range []string{"checkout", "gc-worker", ""} {
		a := answer(t, s, Query{ID: traceOf(newSample(r, i, begin, main))}, now)
		assert.Check(t, a.Samples[0].Thread == name && a.Samples[0].TID == 7, "%+v, want it of %q", a.Samples, name)
	}
	addUp(t, s)
}

// Since when all is kept is since the last sample that was forgotten, of any owner.
func TestComplete(t *testing.T) {
	s := NewStore(24*time.Hour, MinBytes)
	quiet := newSample(resource("quiet", 1), 1, begin, stackOf("main"))
	s.Add(quiet, begin)
	if stats := s.Stats(); !stats.Complete.IsZero() || !stats.Oldest.Equal(begin) {
		t.Errorf("%+v", stats)
	}
	busy, now := resource("busy", 2), begin
	for i := 0; s.stats.Evicted < 1000; i++ {
		now = now.Add(time.Second)
		s.Add(newSample(busy, i, now, stackOf(methods(i, 20)...)), now)
	}
	stats := s.Stats()
	if !stats.Oldest.Equal(begin) || !stats.Complete.After(begin.Add(999*time.Second)) || stats.Complete.After(now) {
		t.Errorf("oldest %v, complete since %v", stats.Oldest, stats.Complete)
	}
	for i := range int(stats.Evicted+stats.Samples) - 1 {
		at := begin.Add(time.Duration(i+1) * time.Second)
		if i%20 != 0 && at.Sub(stats.Complete).Abs() > 100*time.Second {
			continue
		}
		found := len(answer(t, s, Query{ID: traceOf(newSample(busy, i, at, nil))}, now).Transactions) == 1
		assert.Assert(t, found || !at.After(stats.Complete), "the sample of %v is not there", at)
	}
	s.Expire(now.Add(24 * time.Hour))
	s.Expire(now.Add(49 * time.Hour))
	st := s.Stats()
	assert.Check(t, st.Samples == 0 && !st.Complete.Before(now) && st.Oldest.IsZero(), "%+v", st)
}

// What cannot be kept is counted, and said of its id.
func TestLost(t *testing.T) {
	s := NewStore(time.Minute, MinBytes)
	r := resource("a", 1)
	bare := newSample(r, 1, begin, nil)
	assert.Check(t, !s.Add(bare, begin), "names of no frames are asked for")
	large := newSample(r, 2, begin, stackOf(methods(1, 500)...))
	for i := range large.Stack.Frames {
		large.Stack.Frames[i] = profile.NewJVMFrame(profile.NewFunction(fmt.Sprint(i, strings.Repeat("y", 1020)),
			strings.Repeat("z", 1020)), 1)
	}
	assert.Check(t, !s.Add(large, begin), "names of what is lost are asked for")
	untraced := newSample(r, 3, begin, stackOf("main"))
	untraced.TraceID = [16]byte{}
	s.Add(untraced, begin)
	st := s.Stats()
	assert.Check(t, st.Lost == [numLost]uint64{1, 1} && st.Added == 0, "%+v", st)
	if got := answer(t, s, Query{ID: traceOf(large)}, begin).Gone; got != "too_large" { // the last one
		t.Errorf("gone %q", got)
	}
	addUp(t, s)
}

// Frames are named once they can be, for all stacks of their process; those of another one are not.
func TestNames(t *testing.T) {
	s := NewStore(time.Minute, MinBytes)
	file := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: "/bin/shop"}
	frame := profile.Frame{File: file, Address: 0x1000}
	frames := []profile.Frame{frame, frame, stackOf("main").Frames[0]} // the last one has a name
	stack := &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
	one, two := resource("a", 1), resource("a", 2)
	for i, r := range []*profile.Resource{one, two} {
		assert.Check(t, s.Add(newSample(r, i, begin, stack), begin), "names are not asked for")
	}
	name := func(r *profile.Resource, f profile.Frame) profile.Frame {
		if r == one {
			return f.WithName(profile.NewSymbol("_ZN4shop5priceEv", "price"))
		}
		return f
	}
	now := begin
	for range 3 {
		for _, r := range []*profile.Resource{one, two} {
			s.Named(newSample(r, 0, begin, stack))
		}
		s.name(now, name)
		addUp(t, s)
	}
	for after, want := range map[time.Duration]bool{time.Second: false, 3 * time.Second: true} {
		assert.Check(t, !s.Add(newSample(one, 0, begin, stack), now.Add(after)),
			"names that are known are asked for again")
		got := s.Add(newSample(two, 1, begin, stack), now.Add(after))
		assert.Check(t, got == want, "names that are not known are asked for again after %v: %v", after, got)
	}
	for i, want := range [][2]string{{"price", "_ZN4shop5priceEv"}, {"", ""}} {
		a := answer(t, s, Query{ID: traceOf(newSample(one, i, begin, nil))}, begin)
		f := a.Frames[0]
		assert.Check(t, f.Function == want[0] && f.System == want[1] && a.Files[0].Path == "/bin/shop", "%+v", a.Frames)
	}
	// What is forgotten while names are read gets none.
	s.Named(newSample(two, 0, begin, stack))
	s.Expire(begin.Add(time.Hour))
	s.Expire(begin.Add(2 * time.Hour))
	assert.Check(t, len(s.owners) == 0, "it is not forgotten")
	s.Named(newSample(two, 0, begin, stack))
	s.name(now, func(_ *profile.Resource, f profile.Frame) profile.Frame {
		t.Errorf("the name of %+v is read, which is forgotten", f)
		return f
	})
	addUp(t, s)
}

// Whatever comes in whatever order, all adds up.
func TestRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := slowStore(t, time.Minute, "shop-[ab] > 500ms")
	resources := []*profile.Resource{resource("a", 1), resource("a", 2), resource("b", 3), resource("c", 4)}
	now := begin
	for i := range 5000 {
		now = now.Add(time.Duration(random.IntN(20)) * time.Millisecond)
		at := now.Add(-time.Duration(random.IntN(1000)) * time.Millisecond)
		sample := newSample(resources[random.IntN(len(resources))], random.IntN(1+i/3), at,
			stackOf(methods(random.IntN(50), 1+random.IntN(30))...))
		sample.TID, sample.Count = random.IntN(20), uint64(random.IntN(4))
		sample.Context = profile.ContextKind(random.IntN(2))
		if random.IntN(3) == 0 {
			sample.Wait = &profile.Wait{State: profile.Net, Sum: time.Duration(random.IntN(100)),
				Futex: uint64(random.IntN(9))}
		}
		s.Add(sample, now)
		s.AddAccount(newAccount(sample, profile.Net, now, time.Duration(random.IntN(5))*time.Millisecond), now)
		switch random.IntN(200) {
		case 0:
			s.Expire(now)
		case 1:
			now = now.Add(-time.Second) // a clock that is set
		case 2:
			addUp(t, s)
			answer(t, s, Query{Most: 3}, now)
		}
	}
	addUp(t, s)
	assert.Check(t, s.stats.Evicted != 0 && s.stats.Added != 0 && s.stats.Waits.Evicted != 0, "%+v", s.stats)
}

// What a Keep samples is answered with names of its own process, also at the end.
func TestKeep(t *testing.T) {
	testenv.NeedRoot(t)
	namer, err := naming.Open("/proc")
	assert.NilError(t, err)
	t.Cleanup(namer.Close)
	k := Open(Config{For: time.Minute, Bytes: MinBytes}, out.About{HostName: "host", SamplesPerSecond: 20}, namer)
	sample := newSample(resource("a", 1), 1, time.Now(), stackOf("main"))
	k.Sampled(sample)
	q := Query{ID: traceOf(sample)}
	used := errors.New("used")
	err = k.Answer(t.Context(), q, func(a *Answer) error {
		assert.Check(t, len(a.Transactions) == 1 && a.Host == "host" && a.SamplesPerSecond == 20 && k.TakesSamples() &&
			!k.TakesUntraced(),
			"%+v", a)
		err := k.Answer(t.Context(), q, nil)
		assert.Check(t, errors.Is(err, ErrBusy), "a second query while an answer is used: %v", err)
		err = k.Glance(t.Context(), q, nil)
		assert.Check(t, errors.Is(err, ErrBusy), "a glance while an answer is used: %v", err)
		return used
	})
	assert.Check(t, errors.Is(err, used), err)
	assert.Check(t, k.Slow() == nil, "there are no rules")
	waited := make(chan error)
	err = k.Glance(t.Context(), Query{Only: &Only{"a", sample.TraceID, sample.TransactionID}}, func(a *Answer) error {
		assert.Check(t, len(a.Transactions) == 1 && a.SamplesPerSecond == 20, "%+v", a)
		go func() { waited <- k.Answer(t.Context(), q, func(*Answer) error { return nil }) }()
		testenv.Poll(t, time.Minute, "a query that waits", func() bool {
			free := k.answering.TryLock()
			if free {
				k.answering.Unlock()
			}
			return !free
		})
		return used
	})
	assert.Check(t, errors.Is(err, used), err)
	assert.NilError(t, <-waited)
	k.Shutdown(t.Context())
	k.Sampled(sample) // a process that hung releases its samples late
	config := Config{For: time.Minute, Bytes: 1 << 20}
	if want := int64(2<<20 + answerMemory); config.MemoryBytes() != want {
		t.Errorf("%d bytes, want %d", config.MemoryBytes(), want)
	}
}
