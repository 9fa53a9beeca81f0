package keep

import (
	"cmp"
	"slices"
)

// How many sums there are at most: more would not have room in an answer.
const (
	maxSums     = answerBytes / sampleText
	maxWaitSums = answerBytes / waitText
)

// sums counts samples by something, of which it keeps what has most.
type sums[K comparable] struct {
	most   int
	all    map[K]sum
	sorted []counted[K] // of sort
	added  int
}

type sum struct {
	samples uint64
	order   int // in which they came
}

type counted[K comparable] struct {
	key K
	sum
}

func newSums[K comparable](most int) sums[K] { return sums[K]{most: most, all: make(map[K]sum)} }

// add adds samples. When there is no more room, the half with fewest samples is given to dropped.
func (s *sums[K]) add(key K, samples uint64, dropped func(key K, samples uint64)) {
	of, known := s.all[key]
	if !known {
		s.added++
		of.order = s.added
	}
	of.samples += samples
	s.all[key] = of
	if len(s.all) < s.most {
		return
	}
	for _, least := range s.sort()[s.most/2:] {
		delete(s.all, least.key)
		dropped(least.key, least.samples)
	}
}

// sort returns what there is, the most samples first, until it is called again.
func (s *sums[K]) sort() []counted[K] {
	s.sorted = slices.Grow(s.sorted[:0], len(s.all))
	for key, of := range s.all {
		s.sorted = append(s.sorted, counted[K]{key, of})
	}
	slices.SortFunc(s.sorted, func(a, b counted[K]) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.order, b.order))
	})
	return s.sorted
}
