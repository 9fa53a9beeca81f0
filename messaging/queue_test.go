package messaging

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func keyOf(n int) (k Key) {
	k.TraceID[0], k.TraceID[1], k.StackTraceID[15] = byte(n), byte(n>>8), 1
	return k
}

// model is a queue with a record of every single sample.
type model struct {
	t      *testing.T
	q      *queue
	window int64
	times  map[Key][]int64 // ascending
}

func newModel(t *testing.T, delayNs int64) *model {
	return &model{t: t, q: newQueue(), window: delayNs / maxParts, times: make(map[Key][]int64)}
}

func (m *model) add(key Key, count int, sampledNs int64) {
	m.t.Helper()
	assert.Assert(m.t, m.q.add(key, uint64(count), sampledNs, m.window), "no place in a queue that is not full")
	for range count {
		at, _ := slices.BinarySearch(m.times[key], sampledNs)
		m.times[key] = slices.Insert(m.times[key], at, sampledNs)
	}
	m.check()
}

// expire checks that all late samples are dropped, and of the others none that is more than slackNs
// from being late.
func (m *model) expire(limitNs, slackNs int64) {
	m.t.Helper()
	before := m.total()
	dropped := m.q.expire(limitNs)
	for key, times := range m.times {
		kept := 0
		if index, ok := m.q.byKey[key]; ok {
			kept = int(m.q.items[index].count())
		}
		gone := len(times) - kept
		if gone > 0 && times[gone-1] > limitNs+slackNs {
			m.t.Fatalf("dropped a sample of %d at the limit %d", times[gone-1], limitNs)
		}
		if kept > 0 && times[gone] <= limitNs {
			m.t.Fatalf("kept a sample of %d at the limit %d", times[gone], limitNs)
		}
		m.forget(key, gone)
	}
	if before-m.total() != dropped {
		m.t.Fatalf("expire returned %d, dropped %d", dropped, before-m.total())
	}
	m.check()
}

// take takes from the head, which must have the oldest sample, and requeues it unless sent.
func (m *model) take(limit uint64, sent bool) {
	m.t.Helper()
	if !m.q.waiting() {
		return
	}
	m.q.take(limit)
	key, count := m.q.taken.key, int(m.q.taken.count())
	want := min(int(limit), len(m.times[key]))
	assert.Assert(m.t, count == want, "took %d, want %d", count, want)
	for other, times := range m.times {
		if first := m.times[key][0]; times[0]+m.window < first {
			m.t.Fatalf("took %v with a sample of %d before %v with one of %d", key, first, other, times[0])
		}
	}
	if !sent {
		m.q.requeue(m.window)
	} else {
		got := m.q.finishTaken()
		assert.Assert(m.t, int(got) == count, "finished %d of %d", got, count)
		m.forget(key, count)
	}
	m.check()
}

func (m *model) forget(key Key, n int) {
	if m.times[key] = m.times[key][n:]; len(m.times[key]) == 0 {
		delete(m.times, key)
	}
}

func (m *model) total() (n uint64) {
	for _, times := range m.times {
		n += uint64(len(times))
	}
	return n
}

func (m *model) check() {
	m.t.Helper()
	if m.q.total != m.total() || len(m.q.heap) != len(m.times) || len(m.q.byKey) != len(m.times) {
		m.t.Fatalf("queue has %d samples of %d (%d) keys, want %d of %d",
			m.q.total, len(m.q.heap), len(m.q.byKey), m.total(), len(m.times))
	}
	for place, index := range m.q.heap {
		it := &m.q.items[index]
		assert.Assert(m.t, int(it.place) == place && m.q.byKey[it.key] == index && it.n >= 1,
			"item %d at %d: %+v", index, place, it)
		assert.Assert(m.t, place <= 0 || !m.q.less(int32(place), int32(place-1)/2),
			"item %d is older than its parent", place)
		if int(it.count()) != len(m.times[it.key]) {
			m.t.Fatalf("%d samples of %v, want %d", it.count(), it.key, len(m.times[it.key]))
		}
		assert.Assert(m.t, it.parts[0].sampledNs <= m.times[it.key][0], "%v counts as younger than it is", it.key)
		if !slices.IsSortedFunc(it.parts[:it.n], func(a, b part) int { return int(a.sampledNs - b.sampledNs) }) {
			m.t.Fatalf("parts are not in order: %+v", it.parts[:it.n])
		}
	}
}

// In whatever order samples are added, none is lost and no late one is kept. If they are added in
// the order of their age, none is dropped more than an eighth of the delay early.
func TestQueueAgainstModel(t *testing.T) {
	const delay = 800
	for _, disorder := range []int64{0, 50, 2000} {
		rng := rand.New(rand.NewPCG(1, uint64(disorder)))
		m := newModel(t, delay)
		slack := m.window
		if disorder > 0 {
			slack = delay + disorder
		}
		var now int64 = 10_000
		for range 6000 {
			now += rng.Int64N(30)
			switch op := rng.IntN(10); {
			case op < 6:
				sampled := now
				if disorder > 0 {
					sampled -= rng.Int64N(disorder)
				}
				m.add(keyOf(rng.IntN(20)), 1+rng.IntN(3), sampled)
			case op < 7:
				m.expire(now-delay, slack)
			default:
				// As in the sender, late samples are dropped before any is taken.
				m.expire(now-delay, slack)
				m.take(1+rng.Uint64N(6), op < 9)
			}
		}
	}
}

func TestQueueBound(t *testing.T) {
	q := newQueue()
	for n := range maxQueued {
		assert.Assert(t, q.add(keyOf(n), 1, int64(n), 0), "full with %d keys", n)
	}
	assert.Check(t, !q.add(keyOf(maxQueued), 1, 0, 0), "accepted one key too many")
	assert.Check(t, q.add(keyOf(0), 1, 0, 0), "refused more samples of a queued key")
	q.take(maxCount)
	assert.Check(t, q.add(keyOf(maxQueued), 1, 0, 0), "refused a new key while one is being sent")
	q.requeue(0) // keeps one more than maxQueued
	got := q.expire(never)
	assert.Check(t, got == maxQueued+2, "held %d samples, want %d", got, maxQueued+2)
	if q.waiting() || q.total != 0 || len(q.byKey) != 0 {
		t.Errorf("not empty: %d keys, %d samples", len(q.byKey), q.total)
	}
}
