package keep

import (
	"hash/maphash"
	"math"
	"time"

	"correlator/otlp/spantimes"
)

const (
	// partOfSpans is which part of the memory the times of spans have, from the first one on.
	partOfSpans = 32

	spanBytes = 40

	// spanWays is among how many places a span has to be.
	spanWays = 4

	// A span that is longer, or ends so much later than now, is none that was measured here.
	maxSpan, maxAhead = 24 * time.Hour, time.Minute
)

// spanTimes are when spans began and ended: of those for which there is no room, the ones that ended last and that
// which came last, and of those with the same ids the first one. They are found by the ids in full. Whose they are is
// not known; who sends many takes the room of others.
type spanTimes struct {
	seed  maphash.Seed
	slots []spanTime // nil: there were none yet
}

type spanTime struct {
	id         transactionID
	start, end int64 // in ns
}

func (t *spanTimes) bytes() int { return len(t.slots) * spanBytes }

// places returns where a span may be.
func (t *spanTimes) places(id transactionID) []spanTime {
	var key [len(id.trace) + len(id.transaction)]byte
	copy(key[copy(key[:], id.trace[:]):], id.transaction[:])
	i := int(maphash.Bytes(t.seed, key[:])%uint64(len(t.slots)/spanWays)) * spanWays
	return t.slots[i : i+spanWays]
}

// find returns the span with the id of a transaction; nil: none is known.
func (t *spanTimes) find(id transactionID) *spanTime {
	if len(t.slots) == 0 || id.transaction == [8]byte{} {
		return nil
	}
	places := t.places(id)
	for i := range places {
		if places[i].id == id {
			return &places[i]
		}
	}
	return nil
}

// put puts a span in the place of that which ended first, and returns whether that one ended after a time. What comes
// last always has a place: else clocks that are ahead would keep out all others.
func (t *spanTimes) put(span spanTime, after int64) (evicted bool) {
	places := t.places(span.id)
	oldest := &places[0]
	for i := range places {
		if places[i].end < oldest.end {
			oldest = &places[i]
		}
	}
	evicted = oldest.end > after
	*oldest = span
	return evicted
}

// SpanStats is what became of times of spans.
type SpanStats struct{ Added, Evicted, Invalid, Repeated uint64 }

// AddSpans keeps when spans were, in case that they are transactions.
func (s *Store) AddSpans(now time.Time, spans ...spantimes.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Look(now)
	for i := range spans {
		s.addSpan(&spans[i], now)
	}
}

// addSpan is AddSpans for one. The caller holds the lock.
func (s *Store) addSpan(span *spantimes.Span, now time.Time) {
	if span.ID == [8]byte{} || span.Start == 0 || span.End < span.Start || span.End > math.MaxInt64 ||
		span.End-span.Start > uint64(maxSpan) || int64(span.End) > now.Add(maxAhead).UnixNano() {
		s.stats.Spans.Invalid++
		return
	}
	if s.spans.slots == nil {
		s.spans = spanTimes{maphash.MakeSeed(), make([]spanTime, s.limit/partOfSpans/spanBytes/spanWays*spanWays)}
		s.evict(now)
	}
	behind := s.clock.Behind()
	made := spanTime{transactionID{span.TraceID, span.ID}, int64(span.Start) - behind, int64(span.End) - behind}
	if s.spans.find(made.id) != nil {
		s.stats.Spans.Repeated++
		return
	}
	s.stats.Spans.Added++
	if s.spans.put(made, s.clock.Ns(now)-int64(s.period)) {
		s.stats.Spans.Evicted++
	}
}

// room is how much memory there is for all that owners have.
func (s *Store) room() int { return s.limit - s.gone.bytes() - s.spans.bytes() }

// span returns the span that a transaction is, if that is known: one that was at another time is none of it, whatever
// its id. The caller holds the lock.
func (s *Store) span(tx *transaction, first, last int64) *spanTime {
	found := s.spans.find(tx.id)
	if found == nil || found.start > last || found.end < first {
		return nil
	}
	return found
}
