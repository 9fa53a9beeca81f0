package sorting

import (
	"cmp"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// What is returned is what package slices returns, also of what is equal.
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
		assert.Check(t, slices.Equal(Sorted(slices.Values(pairs), compare), sorted))
		Stable(pairs, compare)
		assert.Check(t, slices.Equal(pairs, stable))
	}
}
