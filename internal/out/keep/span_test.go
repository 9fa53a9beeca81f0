package keep

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/otlp/spantimes"
	"correlator/profile"
)

// spanOf returns the span that the transaction of a sample is.
func spanOf(sample *profile.Sample, start time.Time, took time.Duration) *spantimes.Span {
	return &spantimes.Span{TraceID: sample.TraceID, ID: sample.TransactionID,
		Start: uint64(start.UnixNano()), End: uint64(start.Add(took).UnixNano())}
}

// A transaction has the time of its span, whenever that comes, and is ranked by it; others keep theirs. A span with its
// ids from another time, or of another transaction, is none of it.
func TestSpansOfTransactions(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	long, short := newSample(r, 1, begin, stackOf("main")), newSample(r, 2, begin, stackOf("main"))
	span := spanOf(short, begin.Add(-2*time.Second), time.Minute)
	s.AddSpans(begin.Add(time.Minute), *span)
	for _, sample := range []*profile.Sample{long, short} {
		s.Add(sample, begin)
		s.AddAccount(newAccount(sample, profile.Net, begin, time.Second), begin)
	}
	s.AddAccount(newAccount(long, profile.Net, begin.Add(30*time.Second), time.Second), begin)
	slowest := func() string { return answer(t, s, Query{Order: Slowest, Most: 1}, begin).Transactions[0].Trace }
	assert.Check(t, slowest() == traceOf(short))
	a := answer(t, s, Query{ID: traceOf(short)}, begin)
	got := a.Transactions[0].Span
	assert.Check(t, got != nil && got.Start.Equal(begin.Add(-2*time.Second)) &&
		got.End.Sub(got.Start) == time.Minute, "%+v", got)
	assert.Check(t, answer(t, s, Query{ID: traceOf(long)}, begin).Transactions[0].Span == nil)
	span.End++ // of two with its ids, the first one counts
	s.AddSpans(begin.Add(time.Minute), *span)
	again := answer(t, s, Query{ID: traceOf(short)}, begin).Transactions[0].Span
	assert.Check(t, *again == *got && s.Stats().Spans == SpanStats{Added: 1, Repeated: 1}, "%+v", s.Stats().Spans)
	s.spans.find(transactionID{span.TraceID, span.ID}).end = int64(span.Start) + 1 // before anything was seen
	a = answer(t, s, Query{ID: traceOf(short)}, begin)
	assert.Check(t, a.Transactions[0].Span == nil && slowest() == traceOf(long))
	*s.spans.find(transactionID{span.TraceID, span.ID}) = spanTime{transactionID{span.TraceID, span.ID},
		begin.Add(time.Second).UnixNano(), math.MaxInt64} // after it
	assert.Check(t, answer(t, s, Query{ID: traceOf(short)}, begin).Transactions[0].Span == nil)
	addUp(t, s)
}

// What cannot be the times of a span is counted, and not kept.
func TestInvalidSpans(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
	now := begin.Add(time.Second)
	for i, change := range []func(*spantimes.Span){
		func(s *spantimes.Span) { s.ID = [8]byte{} }, func(s *spantimes.Span) { s.Start = 0 },
		func(s *spantimes.Span) { s.End = s.Start - 1 },
		func(s *spantimes.Span) { s.Start, s.End = math.MaxUint64-1, math.MaxUint64 },
		func(s *spantimes.Span) { s.End = math.MaxUint64 }, func(s *spantimes.Span) { s.End = 0 },
		func(s *spantimes.Span) { s.Start = 1 },
		func(s *spantimes.Span) { s.End = uint64(now.Add(maxAhead).UnixNano()) + 1 },
	} {
		span := spanOf(sample, begin, time.Second)
		change(span)
		s.AddSpans(now, *span)
		assert.Check(t, s.Stats().Spans == SpanStats{Invalid: uint64(i + 1)} && s.spans.slots == nil, "%d: %+v", i,
			s.Stats())
	}
	s.AddSpans(now, *spanOf(sample, begin, time.Second))
	assert.Check(t, s.Stats().Spans.Added == 1)
}

// However many spans are sent, they have their part of the memory; the later ones are there, those that go early are
// counted, and those that are too old are no loss.
func TestManySpans(t *testing.T) {
	const limit, period = MinBytes, 10 * time.Minute
	s := NewStore(period, limit)
	count := 4 * limit / partOfSpans / spanBytes
	sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
	add := func(i int, at time.Time) {
		binary.NativeEndian.PutUint64(sample.TransactionID[:], uint64(i)+1)
		s.AddSpans(at.Add(time.Minute), *spanOf(sample, at.Add(time.Duration(i)), time.Second))
	}
	for i := range count {
		add(i, begin)
	}
	st := s.Stats()
	bytes := s.spans.bytes()
	assert.Check(t, bytes <= limit/partOfSpans && bytes > limit/partOfSpans*9/10 && st.Bytes == s.gone.bytes()+bytes &&
		st.Spans.Added == uint64(count), "%d bytes, %+v", bytes, st)
	there := 0
	for i := range s.spans.slots {
		if s.spans.slots[i].end != 0 {
			there++
		}
	}
	assert.Check(t, st.Spans.Added == st.Spans.Evicted+uint64(there), "%d are there, %+v", there, st.Spans)
	last := transactionID{trace: sample.TraceID, transaction: sample.TransactionID}
	assert.Check(t, s.spans.find(last) != nil)
	for i := range count {
		add(count+i, begin.Add(2*period))
	}
	now := s.Stats().Spans
	assert.Check(t, now.Evicted < 2*st.Spans.Evicted+uint64(there), "%+v, before %+v", now, st.Spans)
}

// Where there is no room for all spans, those stay that ended later, in whatever order they come, and the last one that
// came. Which ones are gone that would not have been too old is counted.
func TestLaterSpansStay(t *testing.T) {
	for name, order := range map[string]func(i, n int) int{
		"rising": func(i, _ int) int { return i }, "falling": func(i, n int) int { return n - 1 - i },
	} {
		s := NewStore(10*time.Minute, MinBytes)
		n := 2 * MinBytes / partOfSpans / spanBytes
		sample := newSample(resource("a", 1), 1, begin, stackOf("main"))
		of := func(i int) *spantimes.Span {
			binary.NativeEndian.PutUint64(sample.TransactionID[:], uint64(i)+1)
			return spanOf(sample, begin.Add(time.Duration(i)), time.Second)
		}
		var spans []spantimes.Span
		for i := range n {
			spans = append(spans, *of(order(i, n)))
		}
		s.AddSpans(begin.Add(time.Minute), spans...)
		got := s.Stats().Spans
		there := 0
		for i := range n {
			span := of(i)
			if s.spans.find(transactionID{span.TraceID, span.ID}) != nil {
				there++
			} else {
				assert.Assert(t, i < n-spanWays+1, "%s: of %d spans, the one that ended as number %d is not there", name, n, i)
			}
		}
		last := of(order(n-1, n))
		assert.Check(t, s.spans.find(transactionID{last.TraceID, last.ID}) != nil, "%s: the last has no place", name)
		assert.Check(t, got == SpanStats{Added: uint64(n), Evicted: uint64(n - there)} && there > n/4,
			"%s: %d of %d, %+v",
			name, there, n, got)
	}
}
