// Package sorting sorts what is sorted seldom, or is short. For each type of struct that package slices sorts, the
// binary has 6 to 23 kB of code; here all types share one copy, which takes about twice the time.
package sorting

import (
	"iter"
	"slices"
	"sort"
)

// Sort sorts as slices.SortFunc does.
func Sort[E any](s []E, compare func(a, b E) int) {
	sort.Slice(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}

// Stable sorts as slices.SortStableFunc does.
func Stable[E any](s []E, compare func(a, b E) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}

// Sorted returns what slices.SortedFunc does.
func Sorted[E any](seq iter.Seq[E], compare func(a, b E) int) []E {
	s := slices.Collect(seq)
	Sort(s, compare)
	return s
}
