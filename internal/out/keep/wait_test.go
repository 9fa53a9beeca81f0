package keep

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// byHolder is a wait for a lock that another transaction held.
func byHolder(took time.Duration) profile.Wait {
	return profile.Wait{State: profile.Futex, Sum: took, Longest: took, Futex: 0x7f01, Waker: profile.Waker{
		Kind: profile.ThreadWaker, PID: 9, TID: 90, Thread: "java-7", Service: "cart", TraceID: [16]byte{0xd1},
		TransactionID: [8]byte{0x9d, 0x1f}}}
}

// Waits are added up by stack, thread, span and cause, and no others are: they are beside the samples and the account
// of their transaction, with who ended them.
func TestWaits(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r, stack := resource("a", 1), stackOf("ReentrantLock.lock", "main")
	peer := "10.0.0.7:5432"
	network := profile.Wait{State: profile.Net, Sum: 3, Longest: 3, Peer: peer,
		Waker: profile.Waker{Kind: profile.NetworkWaker, PID: 77, Thread: "swapper", Service: "nobody"}}
	s.Add(newSample(r, 1, begin, stackOf("main")), begin)
	for _, took := range []time.Duration{5, 20} {
		s.Add(newWait(r, 1, begin, stack, byHolder(took)), begin)
	}
	other := newWait(r, 1, begin, stack, byHolder(100))
	other.SpanID, other.TID, other.Thread, other.Count = [8]byte{0xab}, 8, "other", 3
	s.Add(other, begin)
	s.Add(newWait(r, 1, begin, stack, network), begin)
	file := profile.Wait{State: profile.Disk, Sum: 1, Longest: 1, Path: "/data/\xff"}
	s.Add(newWait(r, 1, begin, stack, file), begin)
	s.Add(newWait(r, 2, begin, stack, file), begin)
	addUp(t, s)
	for _, id := range []string{traceOf(other), "ab00"} { // a span that nothing else is in is found
		a := answer(t, s, Query{ID: id}, begin)
		assert.Assert(t, len(a.Transactions) == 1 && len(a.Samples) == 1 && len(a.Waits) == 4, "%+v", a)
		for i := range a.Waits {
			assert.Check(t, a.Waits[i].Last.Equal(begin), a.Waits[i])
			a.Waits[i].Last, a.Waits[i].Moments = time.Time{}, nil
		}
		holder := &Waker{Source: profile.ThreadWaker, PID: 9, TID: 90, Thread: "java-7", Service: "cart",
			Trace: "d1000000000000000000000000000000", ID: "9d1f000000000000"}
		assert.DeepEqual(t, a.Waits, []Wait{
			{Stack: 1, Span: "ab00000000000000", TID: 8, Thread: "other", State: profile.Futex, Futex: 0x7f01,
				StateTimes: profile.StateTimes{Sum: 100, Longest: 100, Count: 3}, Waker: holder},
			{Stack: 1, TID: 7, Thread: "worker", State: profile.Futex, Futex: 0x7f01,
				StateTimes: profile.StateTimes{Sum: 25, Longest: 20, Count: 2}, Waker: holder},
			// Whoever an interrupt interrupted is not named.
			{Stack: 1, TID: 7, Thread: "worker", State: profile.Net, Peer: "10.0.0.7:5432",
				StateTimes: profile.StateTimes{Sum: 3, Longest: 3, Count: 1},
				Waker:      &Waker{Source: profile.NetworkWaker}},
			{Stack: 1, TID: 7, Thread: "worker", State: profile.Disk, Path: "/data/\xff",
				StateTimes: profile.StateTimes{Sum: 1, Longest: 1, Count: 1}},
		})
		assert.Check(t, a.Frames[a.Stacks[1][0]].Function == "ReentrantLock.lock", "%+v", a.Frames)
		text, err := json.Marshal(a)
		var decoded Answer
		assert.Check(t, err == nil && json.Unmarshal(text, &decoded) == nil, "%v", err)
		assert.DeepEqual(t, decoded.Waits[:3], a.Waits[:3])
	}
	assert.Check(t, s.Stats().Samples == 1 && s.Stats().Waits.Kept == 8, "%+v", s.Stats())
}

// A transaction of which nothing is kept but waits is found, expires, and leaves nothing.
func TestOnlyWaits(t *testing.T) {
	const period = 10 * time.Minute
	s := NewStore(period, MinBytes)
	wait := newWait(resource("a", 1), 1, begin, stackOf("main"), byHolder(time.Second))
	s.Add(wait, begin)
	addUp(t, s)
	a := answer(t, s, Query{ID: traceOf(wait)}, begin)
	assert.Assert(t, len(a.Transactions) == 1 && len(a.Waits) == 1, "%+v", a)
	assert.Check(t, a.Transactions[0].First.Equal(begin) && a.Transactions[0].Samples == 0, "%+v", a.Transactions[0])
	s.Expire(begin.Add(period / 2))
	addUp(t, s)
	assert.Check(t, s.Stats().Waits.Kept == 1, "%+v", s.Stats())
	s.Expire(begin.Add(2 * period))
	got := s.Stats()
	assert.Check(t, len(s.owners) == 0 && got.Bytes == s.gone.bytes() && got.Waits.Expired == 1 && got.Expired == 0,
		"%+v", got)
	a = answer(t, s, Query{ID: traceOf(wait)}, begin)
	assert.Check(t, a.Gone == "" && got.Complete.IsZero(), "%+v, %+v", a, got) // no sample is missing
}

// However many waits an owner has, each different from all others, they have a part of its memory: its samples stay,
// and what was evicted is counted.
func TestManyWaits(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	first := newSample(r, 0, begin, stackOf("main"))
	s.Add(first, begin)
	long := strings.Repeat("s", 1<<16)
	for i := range 3 * MinBytes / partOfWaits / causeBytes {
		w := byHolder(time.Millisecond)
		w.Path, w.Waker.Service = fmt.Sprint("/", i), long
		s.Add(newWait(r, i+1, begin, stackOf("main", fmt.Sprint("method", i)), w), begin)
	}
	addUp(t, s)
	got := s.Stats()
	assert.Check(t, got.Samples == 1 && got.Waits.Evicted > 0 && got.Waits.Kept > 100 && got.Evicted == 0, "%+v", got)
	a := answer(t, s, Query{ID: traceOf(first)}, begin)
	assert.Check(t, len(a.Samples) == 1, "%+v", a)
	// Another owner has what it needs, when there is no more room: that of whoever has most.
	for i := range MinBytes / transactionBytes {
		s.Add(newSample(resource("b", 2), i, begin, stackOf("main")), begin)
	}
	addUp(t, s)
}

// Waits without a stack, or with one that is too large, are counted, and are not said to be all of their transaction.
func TestLostWaits(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	s.Add(newWait(r, 1, begin, nil, byHolder(1)), begin)
	large := stackOf(methods(1, 500)...)
	for i := range large.Frames {
		large.Frames[i] = profile.NewJVMFrame(profile.NewFunction(fmt.Sprint(i, strings.Repeat("y", 1020)),
			strings.Repeat("z", 1020)), 1)
	}
	s.Add(newWait(r, 2, begin, large, byHolder(1)), begin)
	got := s.Stats()
	assert.Check(t, got.Waits.Lost == [numLost]uint64{1, 1} && got.Lost == [numLost]uint64{} &&
		got.Waits.Added == 0, "%+v", got)
	a := answer(t, s, Query{ID: traceOf(newSample(r, 1, begin, nil))}, begin)
	assert.Check(t, a.Gone == "", "%+v", a)
}

// Waits of a trace whose thread did not tell its transaction are with the first one of the trace, as the account is.
func TestWaitsOfTrace(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	sample, wait := newSample(r, 1, begin, stackOf("main")), newWait(r, 1, begin, stackOf("main"),
		byHolder(time.Second))
	sample.Context, wait.Context, wait.TransactionID = profile.OTelContext, profile.OTelContext, [8]byte{}
	s.Add(wait, begin)
	for samples := range uint64(2) {
		a := answer(t, s, Query{ID: traceOf(sample)}, begin)
		assert.Check(t, len(a.Transactions) == 1 && len(a.Waits) == 1 && a.Waits[0].Transaction == 0 &&
			a.Transactions[0].Samples == samples && (a.Transactions[0].ID != "") == (samples > 0), "%+v", a)
		s.Add(sample, begin)
	}
}

// An answer has room for stacks of samples and of waits, whatever there is of the others, and says what is left out.
func TestSizeOfWaits(t *testing.T) {
	s := NewStore(10*time.Minute, 64<<20)
	r := resource("a", 1)
	path := strings.Repeat("\xff", maxCauseBytes)
	for i := range 2 * maxWaitSums {
		now := begin.Add(time.Duration(i) * time.Millisecond)
		w := byHolder(time.Duration(i+1) * time.Millisecond)
		w.Path = path
		wait := newWait(r, 1, now, stackOf("main", fmt.Sprint("method", i)), w)
		wait.Thread, wait.SpanID = "\x01\x01\x01", [8]byte{byte(i), byte(i >> 8), 1}
		s.Add(wait, now)
		sample := newSample(r, 1, now, stackOf("cpu", fmt.Sprint("method", i), strings.Repeat("n", 100)))
		s.Add(sample, now)
	}
	addUp(t, s)
	kept := s.Stats().Waits.Kept
	a := answer(t, s, Query{}, begin)
	text, err := json.Marshal(a)
	assert.Check(t, err == nil && len(text) <= answerBytes+4096, "%d bytes, %v", len(text), err)
	counted := a.LeftOutWaits
	for _, w := range a.Waits {
		counted += w.Count
	}
	assert.Check(t, counted == kept && len(a.Waits) > 100 && len(a.Samples) > 100 && a.LeftOut > 0,
		"%d of %d waits, %d in the answer, %d samples", counted, kept, len(a.Waits), len(a.Samples))
	assert.Check(t, a.Waits[0].Sum > a.Waits[len(a.Waits)-1].Sum, "the longest ones are not in the answer")
}
