package share

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"gotest.tools/v3/assert"
)

// Each test does random operations of some keys, and the same by a model that is obviously right.
const operations = 20_000

func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A key may hold as much as is left for all others, and not a unit more: what is held adds up to no
// more than there is, and whoever holds nothing can have half of what is left, whatever others do.
func TestBudget(t *testing.T) {
	r := random(t)
	for _, capacity := range []int{0, 1, 2, 3, 10, 1000} {
		b := NewBudget[int](capacity)
		held := make(map[int]int)
		used := 0
		for range operations {
			key, n := r.IntN(6), r.IntN(capacity/4+2)
			if r.IntN(2) == 0 {
				want := n == 0 || held[key]+n <= capacity-used-n
				if got := b.Take(key, n); got != want {
					t.Fatalf("%d, which holds %d, takes %d of %d with %d used: %t", key, held[key], n, capacity, used, got)
				}
				if want {
					held[key], used = held[key]+n, used+n
				}
			} else {
				n = min(n, held[key])
				b.Give(key, n)
				held[key], used = held[key]-n, used-n
			}
			if b.Held(key) != held[key] || b.Used() != used || b.Left() != capacity-used || b.Capacity() != capacity {
				t.Fatalf("%d holds %d instead of %d, all %d of %d instead of %d", key, b.Held(key), held[key], b.Used(),
					b.Capacity(), used)
			}
			half := b.Left() / 2
			if !b.Take(-1, half) || b.Take(-1, b.Left()+1) {
				t.Fatalf("a new key cannot have %d of the %d that are left, or can have too much", half, half+b.Left())
			}
			b.Give(-1, half)
		}
		for key, n := range held {
			b.Give(key, n)
		}
		if b.Used() != 0 || len(b.held) != 0 {
			t.Errorf("%d are used, by %d keys, after all were returned", b.Used(), len(b.held))
		}
	}
}

// The next element is the first of the key that was served longest ago, or began to wait first: so
// nobody is served twice while another waits, however many elements it has.
func TestTurns(t *testing.T) {
	type element struct{ key, number int }
	r := random(t)
	var (
		q       Turns[int, int]
		model   []element
		since   = make(map[int]int) // when a key that waits was served, or began to
		waiting = func(key int) int {
			return len(slices.DeleteFunc(slices.Clone(model), func(e element) bool { return e.key != key }))
		}
	)
	for now := range operations {
		key, k := r.IntN(5), 1+r.IntN(3)
		switch may, is := func(key int) bool { return key%k == 0 }, func(n int) bool { return n%k == 0 }; r.IntN(6) {
		case 0, 1, 2:
			if len(model) > 50 {
				continue
			}
			if waiting(key) == 0 {
				since[key] = now
			}
			q.Push(key, now)
			model = append(model, element{key, now})
		case 3:
			at := slices.IndexFunc(model, func(e element) bool { return e.key == key && is(e.number) })
			if q.Remove(key, is) != (at >= 0) {
				t.Fatalf("an element is removed, or not, of %v", model)
			}
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
			}
		default:
			if r.IntN(2) == 0 {
				may = nil
			}
			if r.IntN(2) == 0 {
				is = nil
			}
			next := -1
			for at, e := range model {
				if (may == nil || may(e.key)) && (is == nil || is(e.number)) &&
					(next < 0 || since[e.key] < since[model[next].key]) {
					next = at
				}
			}
			key, number, ok := q.PopFunc(may, is)
			if ok != (next >= 0) || ok && (element{key, number}) != model[next] {
				t.Fatalf("%d, %d, %t is next of %v, which wait since %v", key, number, ok, model, since)
			}
			if ok {
				model, since[key] = slices.Delete(model, next, next+1), now
			}
		}
		if q.Len() != len(model) || q.Waiting(key) != waiting(key) {
			t.Fatalf("%d wait, of %d %d, instead of %v", q.Len(), key, q.Waiting(key), model)
		}
	}
	for range model {
		_, _, ok := q.Pop()
		assert.Assert(t, ok, "an element is missing")
	}
	_, _, ok := q.Pop()
	assert.Check(t, !ok && q.Keys() == 0 && q.first == nil && q.last == nil, "the queue is not empty")
}

// Each of the known keys may do what a limiter of its own permits, whatever others do. A new key that
// finds no room gets that of the key used longest ago if this one's limiter is full, and shares one with
// other new keys if not: so none ever does more than by two limiters.
func TestRates(t *testing.T) {
	const limit, burst, maxKeys = 2, 8, 4
	r := random(t)
	for _, keys := range []int{1, maxKeys, 3 * maxKeys} {
		rates := NewRates[int](limit, burst, maxKeys)
		var known []int // that used longest ago first
		limiters := make(map[int]*rate.Limiter)
		others := rate.NewLimiter(limit, burst)
		done := make(map[int]int)
		start := time.Unix(1, 0)
		now := start
		for range operations {
			now = now.Add(time.Duration(r.IntN(8)) * time.Second / 8 / time.Duration(keys))
			key, n := r.IntN(keys), 1+r.IntN(burst+1)
			limiter := others
			switch {
			case slices.Contains(known, key):
				known = append(slices.DeleteFunc(known, func(k int) bool { return k == key }), key)
				limiter = limiters[key]
			case len(known) == maxKeys && limiters[known[0]].TokensAt(now) < burst:
				known = append(known[1:], known[0])
			default:
				if len(known) == maxKeys {
					known = known[1:]
				}
				known = append(known, key)
				limiter = rate.NewLimiter(limit, burst)
				limiters[key] = limiter
			}
			if got, want := rates.Allow(key, n, now), limiter.AllowN(now, n); got != want {
				t.Fatalf("%d of %d keys may do %d: %t", key, keys, n, got)
			} else if got {
				done[key] += n
			}
			if most := 2 * (burst + limit*now.Sub(start).Seconds()); float64(done[key]) > most {
				t.Fatalf("%d of %d keys has done %d, more than %f", key, keys, done[key], most)
			}
		}
	}
}
