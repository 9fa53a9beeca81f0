package keep

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// pauses is a context that a query asks whenever it has released the store's lock.
type pauses struct {
	context.Context
	store *Store
	n     int
	most  int // 0: any
	then  func()
	held  bool
}

var errStopped = errors.New("stopped")

func (p *pauses) Err() error {
	p.n++
	if p.store.mu.TryLock() {
		p.store.mu.Unlock()
	} else {
		p.held = true
	}
	if p.then != nil {
		p.then()
	}
	if p.n == p.most {
		return errStopped
	}
	return nil
}

// ofSpans returns a store with a transaction of so many spans.
func ofSpans(spans, bytes int) (s *Store, trace string, now time.Time) {
	s = NewStore(10*time.Minute, bytes)
	r, stack := resource("a", 1), stackOf("inner", "main")
	for i := range spans {
		now = begin.Add(time.Duration(i) * time.Millisecond)
		sample := newSample(r, 1, now, stack)
		binary.BigEndian.PutUint64(sample.SpanID[:], uint64(i+1)*0x9e3779b97f4a7c15)
		s.Add(sample, now)
		trace = traceOf(sample)
	}
	return s, trace, now
}

// A query looks at a bounded number of transactions or samples while Add waits, ends with its context, and
// what is added, evicted and expires meanwhile changes nothing that was asked for before.
func TestQueryInSteps(t *testing.T) {
	const n = 8 * step // in several slices
	s, trace, now := ofSpans(n, MinBytes)
	r := resource("b", 2)
	for i := range n {
		s.Add(newSample(r, i+2, now, stackOf("main")), now)
	}
	addUp(t, s)
	span := hexadecimal([]byte{0x9e, 0x37, 0x79, 0xb9, 0x7f, 0x4a, 0x7c, 0x15})
	for what, test := range map[string]struct {
		q     Query
		least int
		found int
	}{
		"busiest": {Query{Most: 1}, 3 * 8, 1}, // transactions, entries, and keys of entries
		"trace":   {Query{ID: trace}, 3 * 8, 1},
		"span":    {Query{ID: span}, 5 * 8, 1}, // and entries of all
		"service": {Query{Service: "shop-b", Most: 1}, 2 * 8, 1},
		"none":    {Query{Service: "none"}, 8, 0}, // transactions alone
	} {
		ctx := &pauses{Context: t.Context(), store: s}
		a, err := s.Answer(ctx, test.q, now)
		assert.Check(t, err == nil && ctx.n >= test.least && !ctx.held && len(a.Transactions) == test.found,
			"%s: %d pauses, held %v, %v", what, ctx.n, ctx.held, err)
		for stop := 1; stop < ctx.n; stop += 7 {
			ctx := &pauses{Context: t.Context(), store: s, most: stop}
			_, err := s.Answer(ctx, test.q, now)
			assert.Assert(t, errors.Is(err, errStopped), "%s does not stop: %v", what, err)
		}
	}

	// The store changes, and at last forgets all, in the pauses.
	ctx := &pauses{Context: t.Context(), store: s}
	ctx.then = func() {
		later := now.Add(time.Duration(ctx.n) * time.Second)
		s.Add(newSample(resource("c", 100+ctx.n), n+ctx.n, later, stackOf("c")), later)
		if ctx.n == 13 { // while entries are copied
			s.Expire(now.Add(time.Hour))
			s.Expire(now.Add(2 * time.Hour))
		}
		addUp(t, s)
	}
	a, err := s.Answer(ctx, Query{ID: trace}, now)
	if err != nil || len(a.Transactions) != 1 || a.Transactions[0].Samples != n || ctx.n < 14 {
		t.Errorf("%+v, %v after %d pauses", a.Transactions, err, ctx.n)
	}

	// What is forgotten after it was found is gone.
	s, trace, now = ofSpans(10, MinBytes)
	ctx = &pauses{Context: t.Context(), store: s}
	ctx.then = func() {
		s.Expire(now.Add(time.Hour))
		s.Expire(now.Add(2 * time.Hour))
	}
	a, err = s.Answer(ctx, Query{ID: trace}, now)
	if err != nil || len(a.Transactions) != 0 || len(a.Samples) != 0 || a.Gone != "expired" {
		t.Errorf("%+v, gone %q, %v", a.Transactions, a.Gone, err)
	}
}

// Samples are added, named and expire while queries run, and all adds up.
func TestAtTheSameTime(t *testing.T) {
	s := NewStore(10*time.Second, MinBytes)
	var running sync.WaitGroup
	done := make(chan struct{})
	until := func(do func()) {
		running.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					do()
				}
			}
		})
	}
	for _, q := range []Query{{}, {ID: "9e37"}, {ID: "0100000000000000"}, {Service: "shop-b", Order: Slowest}} {
		until(func() {
			a, err := s.Answer(t.Context(), q, begin)
			if err != nil {
				t.Error(err)
				return
			}
			counts := make([]uint64, len(a.Transactions))
			for _, sample := range a.Samples {
				counts[sample.Transaction] += sample.Count
			}
			for i, tx := range a.Transactions {
				assert.Check(t, tx.Samples == counts[i] && tx.Samples != 0 && !tx.Last.Before(tx.KeptFrom) &&
					!tx.KeptFrom.Before(tx.First),
					"%+v: %d samples", tx, counts[i])
			}
		})
	}
	until(func() {
		s.name(begin, func(_ *profile.Resource, f profile.Frame) profile.Frame { return f })
		s.Stats()
	})
	resources := []*profile.Resource{resource("a", 1), resource("b", 2), resource("b", 3)}
	for i := range 5000 {
		now := begin.Add(time.Duration(i) * 10 * time.Millisecond)
		sample := newSample(resources[i%3], i/10, now, stackOf(methods(i%100, 1+i%7)...))
		sample.SpanID = [8]byte{1}
		s.Add(sample, now)
		s.Named(sample)
		if i%100 == 0 {
			s.Expire(now)
		}
	}
	close(done)
	running.Wait()
	addUp(t, s)
}

// Ids of 64 bits, without leading zeros and decimal ones find what they are of, also what is gone.
func TestNumbers(t *testing.T) {
	s := NewStore(10*time.Minute, 4*MinBytes)
	sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
	sample.TraceID = [16]byte{8: 0x53, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x35}
	sample.TransactionID = [8]byte{1: 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}
	s.Add(sample, begin)
	other := newSample(resource("a", 1), 2, begin, stackOf("main"))
	other.TraceID = [16]byte{0x53, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x35, 1} // begins so
	s.Add(other, begin)
	for _, later := range []bool{false, true} {
		if later {
			s.Expire(begin.Add(time.Hour)) // ends the slice
			s.Expire(begin.Add(2 * time.Hour))
		}
		for _, id := range []string{"53ce929d0e0e4735", "6038925353593751349", "f067aa0ba902b7", "67667974448284343"} {
			a := answer(t, s, Query{ID: id}, begin)
			if later {
				assert.Check(t, len(a.Transactions) == 0 && a.Gone == "expired", "%s: %+v", id, a)
			} else if assert.Check(t, len(a.Transactions) == 1, "%s: %+v", id, a) {
				assert.Check(t, a.Transactions[0].ID == "00f067aa0ba902b7", "%s: %+v", id, a.Transactions)
			}
		}
	}
}

// A span that many transactions have is an answer with the most important ones, and found by how it begins.
func TestSpans(t *testing.T) {
	s := NewStore(10*time.Minute, 4*MinBytes)
	r := resource("a", 1)
	for i := range 5000 {
		sample := newSample(r, i, begin, stackOf("main"))
		sample.SpanID = [8]byte{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5}
		sample.Count = uint64(1 + i/4999)
		s.Add(sample, begin)
	}
	for _, id := range []string{"abcdef0102030405", "abcdef01", "abcdef010"} {
		a := answer(t, s, Query{ID: id, Most: 3}, begin)
		if len(a.Transactions) != 3 || a.More != 5000-3 || a.Transactions[0].Samples != 2 || a.Ambiguous != nil {
			t.Errorf("%s: %+v, %d more, %q", id, a.Transactions, a.More, a.Ambiguous)
		}
	}
	other := newSample(r, 5001, begin, stackOf("main"))
	other.SpanID = [8]byte{0xab, 0xcd, 0xee}
	s.Add(other, begin)
	a := answer(t, s, Query{ID: "abcde"}, begin)
	assert.Check(t, len(a.Ambiguous) == 2 && a.Ambiguous[0] == "abcdee0000000000", "%q", a.Ambiguous)
}

// ofGrowingTexts returns a store with many spans of a trace, and with texts that grow in JSON.
func ofGrowingTexts(spans int) (s *Store, trace string, now time.Time) {
	s, trace, now = ofSpans(spans, 64<<20)
	for i, text := range []string{"<", "\xff", "x", "\x00"} {
		attributes := profile.NewAttributes([]profile.Attribute{{Key: "k", Value: strings.Repeat(text, 30_000)}})
		for j := range 200 {
			sample := newSample(resource("b", i), 7, now, stackOf(strings.Repeat(text, 1000+j)))
			sample.TID, sample.Thread = j, strings.Repeat(text, 15)
			sample.Attributes = attributes
			s.Add(sample, now)
		}
	}
	return s, trace, now
}

// An answer's text is bounded, whatever is kept; what is left out is counted for its transaction.
func TestSizeOfAnswer(t *testing.T) {
	s, trace, now := ofGrowingTexts(maxSums / 4 * 5)
	addUp(t, s)
	for _, q := range []Query{{ID: trace}, {}} {
		a := answer(t, s, q, now)
		text, err := json.Marshal(a)
		several := slices.ContainsFunc(a.Samples, func(of Sample) bool { return of.Several })
		assert.Check(t, err == nil && len(text) <= answerBytes+4096 && several &&
			a.Transactions[0].Samples == maxSums/4*5,
			"%d bytes, threads and spans left out: %v, %v", len(text), several, err)
	}
}

// An answer leaves out what has fewest samples, whenever it came: first threads and spans, then stacks.
func TestWhatIsLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		setup, hotSpans, hotCount, stacks int
		complete                          bool // all methods are there
	}{
		"spans":      {maxSums / 4 * 5, 1000, 100, 0, true},
		"one span":   {maxSums / 4 * 5, 1, 100_000, 0, true},
		"some spans": {20_000, 12_700, 1, 0, true},
		"stacks":     {maxSums / 4 * 5, 10_000, 1, 14_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStore(24*time.Hour, 64<<20)
			r, now := resource("a", 1), begin
			add := func(span int, stack *profile.Stack, count int) {
				now = now.Add(time.Millisecond)
				sample := newSample(r, 1, now, stack)
				binary.BigEndian.PutUint64(sample.SpanID[:], uint64(span+1))
				sample.Count = uint64(count)
				s.Add(sample, now)
			}
			var setups []*profile.Stack
			for i := range 200 {
				setups = append(setups, stackOf(fmt.Sprint("setup", i)))
			}
			hot := stackOf("hot")
			for i := range test.setup {
				add(i, setups[i%len(setups)], 1)
			}
			for i := range test.stacks {
				add(1, stackOf(fmt.Sprint("rare", i)), 1)
			}
			for i := range test.hotSpans {
				add(1<<40+i, hot, test.hotCount)
			}
			a := answer(t, s, Query{}, now)
			methods := make(map[string]int)
			for _, sample := range a.Samples {
				if sample.Stack != LeftOutStack {
					methods[a.Frames[a.Stacks[sample.Stack][0]].Function] += int(sample.Count)
				}
				assert.Check(t, !sample.Several || sample.TID == 0 && sample.Span == "" && sample.Thread == "",
					"%+v", sample)
			}
			setup := 0
			for i := range 200 {
				setup += methods[fmt.Sprint("setup", i)]
			}
			assert.Check(t, methods["hot"] == test.hotSpans*test.hotCount && setup == test.setup &&
				(a.LeftOut == 0) == test.complete,
				"%d of hot, %d of setup, %d left out", methods["hot"], setup, a.LeftOut)
		})
	}
}

// Whatever a transaction has, the samples of an answer add up.
func TestAnswersAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	s := NewStore(24*time.Hour, 64<<20)
	resources := []*profile.Resource{resource("a", 1), resource("b", 2)}
	for i := range 40_000 { // more than maxSums
		now := begin.Add(time.Duration(i) * time.Millisecond)
		method := fmt.Sprintf("%060d", random.IntN(1+random.IntN(60_000)))
		sample := newSample(resources[i%2], random.IntN(2), now, stackOf(method))
		binary.BigEndian.PutUint64(sample.SpanID[:], uint64(random.IntN(1+random.IntN(100_000))))
		sample.TID, sample.Count = random.IntN(3), 1+uint64(random.IntN(50))
		sample.Thread = "\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01" // which take room in an answer
		s.Add(sample, now)
	}
	addUp(t, s)
	for _, q := range []Query{{}, {Most: 1}, {Service: "shop-b"}} {
		a := answer(t, s, q, begin.Add(time.Hour)) // which adds up
		assert.Check(t, a.LeftOut != 0 && slices.ContainsFunc(a.Samples, func(of Sample) bool { return of.Several }),
			"%+v: %d left out", q, a.LeftOut)
	}
}

// What an id has, and service or time leave out, is not what is not there.
func TestFiltered(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
	s.Add(sample, begin)
	bare := *sample
	bare.Stack = nil
	s.Add(&bare, begin)
	for _, q := range []Query{
		{ID: traceOf(sample), Service: "shop-b"}, {ID: traceOf(sample), Since: begin.Add(time.Hour)},
		{ID: traceOf(sample)[:6], Service: "shop-b"},
	} {
		if a := answer(t, s, q, begin); len(a.Transactions) != 0 || a.Filtered != 1 {
			t.Errorf("%+v: %d transactions, %d filtered", q, len(a.Transactions), a.Filtered)
		}
	}
	a := answer(t, s, Query{ID: traceOf(sample)}, begin)
	assert.Check(t, a.Filtered == 0 && a.Gone == "no_stack" && a.Transactions[0].Gone == "no_stack", "%+v", a)
}

// Of a transaction and of a trace that are half forgotten the answer says so, and since when all is there.
func TestHalfForgotten(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	short := newSample(r, 2, begin, stackOf("main"))
	long := newSample(r, 1, begin, stackOf("main"))
	short.TraceID = long.TraceID
	s.Add(short, begin)
	var now time.Time
	for minute := range 30 {
		now = begin.Add(time.Duration(minute) * time.Minute)
		s.Expire(now)
		sample := newSample(r, 1, now, stackOf("main"))
		s.Add(sample, now)
	}
	for _, id := range []string{traceOf(long), traceOf(long)[:9]} {
		a := answer(t, s, Query{ID: id}, now)
		tx := a.Transactions[0]
		assert.Check(t, len(a.Transactions) == 1 && a.Gone == "expired" && !a.GoneAt.IsZero() && tx.Gone == "",
			"%+v, gone %q at %v", a.Transactions, a.Gone, a.GoneAt)
		if from := begin.Add(time.Duration(tx.Earlier) * time.Minute); tx.Samples+tx.Earlier != 30 ||
			!tx.KeptFrom.Equal(from) || !tx.First.Equal(begin) || !tx.Last.Equal(now) {
			t.Errorf("%+v, want it kept from %v", tx, from)
		}
	}
	if a := answer(t, s, Query{ID: hexadecimal(short.TransactionID[:])}, now); a.Gone != "expired" {
		t.Errorf("gone %q", a.Gone)
	}
	again := *short
	s.Add(&again, now)
	a := answer(t, s, Query{ID: hexadecimal(short.TransactionID[:])}, now)
	assert.Check(t, len(a.Transactions) == 1 && a.Gone == "expired" && a.Transactions[0].Gone == "expired",
		"%+v, gone %q", a.Transactions, a.Gone)
	if a := answer(t, s, Query{Most: 1}, now); a.Gone != "" || !a.GoneAt.IsZero() {
		t.Errorf("of no id: gone %q", a.Gone)
	}
	again.Stack = nil
	s.Add(&again, now)
	if a := answer(t, s, Query{ID: traceOf(short)}, now); a.Gone != "expired" {
		t.Errorf("after a sample without a stack: gone %q", a.Gone)
	}
}

// Of a transaction by its ids in full, only an owner's samples are answered, or why they are gone.
func TestOnlyOneTransaction(t *testing.T) {
	s, now := NewStore(time.Minute, MinBytes), time.Now()
	for _, owner := range []string{"a", "b"} {
		for pid := range 2 {
			for transaction := range 3 {
				s.Add(newSample(resource(owner, pid+1), transaction+1, now, stackOf(owner)), now)
			}
		}
	}
	wanted := newSample(resource("", 9), 2, now, nil)
	only := Only{"b", wanted.TraceID, wanted.TransactionID}
	a := answer(t, s, Query{Only: &only}, now)
	assert.Assert(t, len(a.Transactions) == 2 && a.Gone == "", "%+v", a)
	for i := range a.Transactions {
		tx := &a.Transactions[i]
		assert.Check(t, tx.Trace == traceOf(wanted) && a.Processes[tx.Process].Service == "shop-b", "%+v", a)
	}
	s.Expire(now.Add(time.Hour))
	s.Expire(now.Add(2 * time.Hour))
	for _, id := range [][8]byte{wanted.TransactionID, {}} {
		only.Transaction = id
		a = answer(t, s, Query{Only: &only}, now)
		assert.Check(t, len(a.Transactions) == 0 && a.Gone == "expired", "%x: %+v", id, a)
	}
}
