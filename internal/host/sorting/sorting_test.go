package sorting

import (
	"cmp"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// What is returned is what package slices returns; the order of what is equal is Stable's to keep.
func TestSort(t *testing.T) {
	type pair struct{ a, b int }
	compare := func(x, y pair) int { return cmp.Compare(x.a, y.a) }
	for n := range 100 {
		var pairs []pair
		for i := range n {
			pairs = append(pairs, pair{i * 7 % 11, i})
		}
		sorted, stable := slices.Clone(pairs), slices.Clone(pairs)
		slices.SortFunc(sorted, compare)
		slices.SortStableFunc(stable, compare)
		assert.Check(t, slices.EqualFunc(Sorted(slices.Values(pairs), compare), sorted,
			func(x, y pair) bool { return x.a == y.a }))
		Stable(pairs, compare)
		assert.Check(t, slices.Equal(pairs, stable))
	}
}
