package keep

import (
	"math"
	"slices"
	"time"

	"correlator/profile"
)

const (
	// partOfMoments is which part of the memory times may take in a slice, and a quarter of the slice at most: then it
	// ends. partOfAllMoments is that in all slices, as if they had ended: open
	// ones take twice that. An owner has no more of it than is left for others.
	partOfMoments    = 64
	partOfAllMoments = 8

	// What a time takes in a slice, which grows to twice what it has while it is being filled.
	openMomentBytes = 64
	momentBytes     = 34

	// maxMoments is how many times an answer has at most: a picture cannot show more.
	maxMoments = 5000

	// sampleWeight is what a sample counts among waits where there are too many: that of 20 a second.
	sampleWeight = int64(50 * time.Millisecond)

	// maxSpanTimes is of how many spans it is looked for when they were.
	maxSpanTimes = 1000

	momentText   = 100 // with large numbers
	spanTimeText = intervalText + spanText + 16
)

// moment is when samples of an entry were taken that came together, or when a wait was.
type moment struct {
	entry       uint32 // its place in the slice
	count       uint32
	first, last int64 // in ns: of samples; of a wait, when it began and when it ended
	sum         int64 // of a wait: what it stands for, in ns
}

// hasMoments reports whether the slice has as many times as it may.
func (s *Store) hasMoments(slice *timeSlice) bool {
	return (len(slice.moments)+1)*openMomentBytes > min(s.limit/partOfMoments, maxSliceBytes/4)
}

// MomentOf returns when samples or a wait were; false: it is not known of some of them.
func MomentOf(sample *profile.Sample) (Moment, bool) {
	m := Moment{Count: sample.Count}
	m.First, m.Last = seen(sample, time.Time.UnixNano)
	if w := sample.Wait; w != nil {
		m.Last = sample.At.UnixNano() - int64(max(w.Queue, 0))
		m.First, m.Sum = m.Last-int64(w.Longest), int64(w.Sum)
		return m, sample.Count == 1 && w.Longest > 0
	}
	return m, true
}

// addMoment keeps when samples or a wait of an entry of a slice were, if there is room.
func (s *Store) addMoment(o *owner, slice *timeSlice, entry uint32, sample *profile.Sample) {
	m, known := MomentOf(sample)
	if !known || !s.moments.Take(o.name, 1) {
		s.stats.Untimed += sample.Count
		return
	}
	kept := s.clock.Ns(sample.At) - sample.At.UnixNano() // so much later
	slice.moments = append(slice.moments,
		moment{entry, uint32(min(m.Count, math.MaxUint32)), m.First + kept, m.Last + kept, m.Sum})
	s.grow(o, openMomentBytes)
}

// made returns the moment as answers have it.
func (m *moment) made() Moment {
	return Moment{First: m.first, Last: m.last, Count: uint64(m.count), Sum: m.sum}
}

// Rank is what the moment stands for, in ns, divided by a random part of 1, which is 1 less a chance. Those of the
// highest ranks are of all the time, more of them where more was done, and have the longest waits.
func (m Moment) Rank(chance float64) float64 {
	weight := max(m.Sum, m.Last-m.First)
	if m.Sum == 0 {
		weight = int64(m.Count) * sampleWeight
	}
	return float64(weight) / (1 - chance)
}

// rankedMoment is a moment with its Rank.
type rankedMoment struct {
	moment
	rank float64
}

// timed are the moments of samples, or of waits.
type timed[K comparable] struct {
	entries []K // of the slice that is being collected; zero: it is not wanted
	all     map[K][]rankedMoment
	held    int // in all
	keys    []K // of what is in the answer
}

func newTimed[K comparable]() timed[K] {
	return timed[K]{all: make(map[K][]rankedMoment)}
}

// want has the moments of the next entry of the slice added, unless the key is zero.
func (t *timed[K]) want(key K) { t.entries = append(t.entries, key) }

// add adds a moment of what is wanted, if its rank is higher than the least.
func (t *timed[K]) add(m rankedMoment, least float64) {
	var none K
	if int(m.entry) < len(t.entries) && t.entries[m.entry] != none && m.rank > least {
		t.held++
		t.all[t.entries[m.entry]] = append(t.all[t.entries[m.entry]], m)
	}
}

// leaveOut leaves out those of no higher rank than the least.
func (t *timed[K]) leaveOut(least float64) {
	t.held = 0
	for key, all := range t.all {
		t.all[key] = slices.DeleteFunc(all, func(m rankedMoment) bool { return m.rank <= least })
		t.held += len(t.all[key])
	}
}

// leaveOut leaves out the moments that are too many, those of the lowest ranks.
func (c *collector) leaveOut() {
	var ranks []float64
	for _, all := range c.ofSamples.all {
		for i := range all {
			ranks = append(ranks, all[i].rank)
		}
	}
	for _, all := range c.ofWaits.all {
		for i := range all {
			ranks = append(ranks, all[i].rank)
		}
	}
	if len(ranks) > maxMoments {
		slices.Sort(ranks)
		c.least = ranks[len(ranks)-maxMoments-1]
		c.ofSamples.leaveOut(c.least)
		c.ofWaits.leaveOut(c.least)
	}
}

// addMoments adds when samples and waits were, and their spans, as long as there is room.
func (c *collector) addMoments() {
	for i, key := range c.ofWaits.keys {
		c.answer.Waits[i].Moments = c.moments(c.ofWaits.all[key], c.answer.Waits[i].Count)
	}
	for i, key := range c.ofSamples.keys {
		c.answer.Samples[i].Moments = c.moments(c.ofSamples.all[key], c.answer.Samples[i].Count)
	}
	known := make(map[transactionID]bool)
	for _, key := range c.ofSamples.keys {
		c.addSpanTimes(&key, known)
	}
	for _, key := range c.ofWaits.keys {
		c.addSpanTimes(&key.entryKey, known)
	}
}

// moments returns as many of some moments as there is room for, of no more than so many samples: some may have been
// left out.
func (c *collector) moments(some []rankedMoment, count uint64) (made []Moment) {
	behind := c.store.clock.Behind()
	for _, m := range some {
		if c.bytes+momentText > answerBytes || uint64(m.count) > count {
			break
		}
		c.bytes += momentText
		count -= uint64(m.count)
		of := m.made()
		of.First, of.Last = of.First+behind, of.Last+behind
		made = append(made, of)
	}
	return made
}

// addSpanTimes adds when the span of an entry was, if it is known, and not that of the transaction.
func (c *collector) addSpanTimes(of *entryKey, known map[transactionID]bool) {
	id := transactionID{of.transaction.id.trace, of.span}
	if id == of.transaction.id || known[id] || len(known) == maxSpanTimes || c.bytes+spanTimeText > answerBytes {
		return
	}
	known[id] = true
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	found, tx := c.store.spans.find(id), of.transaction
	if found != nil && found.start <= tx.last && found.end >= tx.first { // else it is another one
		c.bytes += spanTimeText
		c.answer.Spans = append(c.answer.Spans, Span{c.number[of.transaction], hexadecimal(of.span[:]),
			Interval{c.store.clock.Time(found.start), c.store.clock.Time(found.end)}})
	}
}
