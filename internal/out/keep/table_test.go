package keep

import (
	"maps"
	"math/rand/v2"
	"testing"

	"gotest.tools/v3/assert"
)

// A table has what a map has, also while it is made small.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var small table[int, int]
	want := make(map[int]int)
	change := func(part int) {
		switch key := random.IntN(20 * step); {
		case random.IntN(part) == 0:
			small.put(key, key+1)
			want[key] = key + 1
		default:
			small.delete(key)
			delete(want, key)
		}
	}
	same := func() {
		t.Helper()
		if small.len() != len(want) {
			t.Fatalf("%d entries, want %d", small.len(), len(want))
		}
		for key := range 20 * step {
			if got := small.get(key); got != want[key] {
				t.Fatalf("%d: %d, want %d", key, got, want[key])
			}
		}
	}
	for range 100_000 {
		change(1)
	}
	for range 30_000 {
		change(10)
	}
	same()
	pauses := 0
	small.shrink(func() {
		pauses++
		for range 100 {
			change(2)
		}
		same()
	})
	same()
	got := make(map[int]bool)
	for value := range small.values() {
		assert.Check(t, !got[value], "%d twice", value)
		got[value] = true
	}
	if len(got) != len(want) || pauses < 2 || pauses > 20 || small.old != nil || small.most >= 20*step*9/10 {
		t.Errorf("%d values, want %d; %d pauses, %d at most", len(got), len(want), pauses, small.most)
	}
	for key := range maps.Clone(want) {
		small.delete(key)
	}
	if small.shrink(func() {}); small.len() != 0 || small.most != 0 {
		t.Errorf("%d entries, %d at most", small.len(), small.most)
	}
	for key := range leastShrunk {
		small.put(key, key)
	}
	for key := range leastShrunk {
		small.delete(key)
	}
	small.shrink(func() {})
	assert.Check(t, small.most == leastShrunk, "one that is small already has room for %d", small.most)
}
