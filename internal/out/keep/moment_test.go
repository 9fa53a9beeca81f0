package keep

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// It is kept when samples were taken and when waits were, each wait up to when its thread could run, and when
// their spans were: but for several waits in one, of which no more than the end is known.
func TestMoments(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r, now := resource("a", 1), begin.UnixNano()
	sample := newSample(r, 1, begin, stackOf("main"))
	sample.Count, sample.Last = 3, begin.Add(2*time.Second)
	sample.SpanID = [8]byte{0xab}
	s.Add(sample, begin)
	s.Add(newSample(r, 2, begin, stackOf("main")), begin)
	of := byHolder(20)
	of.Sum, of.Queue = 25, 5
	wait := newWait(r, 1, begin, stackOf("lock", "main"), of)
	wait.SpanID = [8]byte{0xcd}
	s.Add(wait, begin)
	several := newWait(r, 1, begin, stackOf("main"), byHolder(7))
	several.Count = 2
	s.Add(several, begin)
	for i, id := range [][8]byte{sample.SpanID, wait.SpanID} { // the other is from another time
		span := spanOf(sample, begin.Add(-time.Duration(i)*time.Hour-1), 10)
		span.ID = id
		s.AddSpans(begin.Add(time.Second), *span)
	}
	assert.Check(t, s.Stats().Untimed == 2)
	addUp(t, s)
	sample.At, sample.Last, sample.Count = begin.Add(time.Minute), begin.Add(time.Minute), 1
	s.Add(sample, begin.Add(2*time.Minute)) // in another slice: the one before has ended
	addUp(t, s)
	a := answer(t, s, Query{ID: traceOf(sample)}, begin)
	assert.DeepEqual(t, a.Samples[0].Moments, []Moment{{First: now, Last: now + 2e9, Count: 3},
		{First: now + 60e9, Last: now + 60e9, Count: 1}})
	assert.DeepEqual(t, [][]Moment{a.Waits[0].Moments, a.Waits[1].Moments},
		[][]Moment{{{First: now - 25, Last: now - 5, Count: 1, Sum: 25}}, nil})
	assert.DeepEqual(t, a.Spans, []Span{{0, "ab00000000000000", Interval{time.Unix(0, now-1), time.Unix(0, now+9)}}})
}

// Of a transaction that has too many times, those of an answer are of all of it, and have the longest wait.
func TestMomentsOfAllTheTime(t *testing.T) {
	s := NewStore(10*time.Minute, 4*MinBytes)
	r, stack := resource("a", 1), stackOf("main")
	const all, parts, longest = 3 * maxMoments, 10, 3*maxMoments - 7
	for i := range all {
		at := begin.Add(time.Duration(i) * time.Millisecond)
		wait := profile.Wait{State: profile.Net, Sum: 1000, Longest: 1000}
		if i == longest {
			wait.Sum, wait.Longest = 1e9, 1e9
		}
		s.Add(newWait(r, 1, at, stack, wait), at)
	}
	addUp(t, s)
	a := answer(t, s, Query{ID: traceOf(newSample(r, 1, begin, stack))}, begin)
	assert.Assert(t, len(a.Waits) == 1 && a.Waits[0].Count == all && len(a.Waits[0].Moments) == maxMoments, "%d of %d",
		len(a.Waits[0].Moments), a.Waits[0].Count)
	var counts [parts]int
	hasLongest := false
	for _, m := range a.Waits[0].Moments {
		counts[(m.Last-begin.UnixNano())/int64(all/parts*time.Millisecond)]++
		hasLongest = hasLongest || m.Sum == 1e9
	}
	assert.Check(t, slices.Min(counts[:]) > maxMoments/parts/2 && hasLongest, "%v", counts)
}

// Of what comes often, slices are shorter, so that all has times. They have a part of the memory, and an answer has a
// number of them: what has none is counted, and is there without.
func TestManyMoments(t *testing.T) {
	s := NewStore(10*time.Minute, 4*MinBytes)
	r, stack := resource("a", 1), stackOf("main")
	first := newSample(r, 1, begin, stack)
	room := s.limit / partOfMoments / openMomentBytes
	for range room + 5 {
		s.Add(first, begin)
		s.Add(newWait(r, 1, begin, stack, profile.Wait{State: profile.Net, Sum: 1, Longest: 1}), begin)
	}
	addUp(t, s)
	got := s.Stats()
	assert.Check(t, got.Untimed == 0 && got.Samples == uint64(room)+5 && got.Waits.Kept == got.Samples, "%+v", got)
	a := answer(t, s, Query{ID: traceOf(first)}, begin)
	n := len(a.Samples[0].Moments) + len(a.Waits[0].Moments)
	assert.Check(t, n == maxMoments && a.Samples[0].Count == got.Samples && a.Waits[0].Count == got.Samples,
		"%d of %d", n, a.Samples[0].Count)
	for all := s.limit / partOfAllMoments / momentBytes; s.moments.Used() < all/2; {
		s.Add(first, begin)
	}
	s.Add(first, begin)
	for range room {
		s.Add(newSample(resource("b", 2), 2, begin, stack), begin) // of another owner: as many are left
	}
	addUp(t, s)
	assert.Check(t, s.Stats().Untimed == 1 && s.Stats().Evicted == 0, "%+v", s.Stats())
	later := newSample(r, 1, begin.Add(time.Hour), stack)
	s.Expire(later.At) // the others are too old
	s.Add(later, later.At)
	addUp(t, s)
	assert.Check(t, s.moments.Used() < room && s.Stats().Untimed == 1, "%d, %+v", s.moments.Used(), s.Stats())
}
