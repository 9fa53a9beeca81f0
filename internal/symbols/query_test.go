package symbols

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"correlator/elfsym"
)

func TestMatcher(t *testing.T) {
	symbols := []symbol{
		{start: 100, end: 200, name: 1},                   // a function
		{start: 120, end: 130, name: 2},                   // within it
		{start: 100, end: 200, name: 3, rank: 1},          // another name of it, that is better
		{start: 100, end: 200, name: 4},                   // and one that is not
		{start: 300, end: 1000, open: true, name: 5},      // without a size
		{start: 400, end: 420, name: 6},                   // ends it
		{start: 900, end: 1000, open: true, name: 7},      // begins behind all that is asked for but one
		{start: 1 << 63, end: 1<<63 + 16, name: 8},        // far away
		{start: ^uint64(0) - 1, end: ^uint64(0), name: 9}, // at the end of all addresses
		{start: 150, end: 1000, open: true, name: 10},     // a label in a function names nothing there
	}
	want := map[uint64]uint64{
		99: 0, 100: 3, 119: 3, 120: 2, 129: 2, 130: 3, 160: 3, 199: 3, 200: 10, 299: 10, 300: 5, 399: 5, 400: 6, 419: 6,
		420: 0, 899: 0, 950: 7, 1000: 0, 1 << 63: 8, 1<<63 + 16: 0, ^uint64(0) - 1: 9, ^uint64(0): 0,
	}
	addrs := slices.Collect(maps.Keys(want))
	q := NewQuery(append(addrs, addrs...)) // each twice
	if len(q.addrs) != len(want) {
		t.Fatalf("%d addresses, want %d", len(q.addrs), len(want))
	}
	// In any order.
	for range len(symbols) {
		symbols = append(symbols[1:], symbols[0])
		m := newMatcher(q.addrs)
		for _, s := range symbols {
			if _, err := m.add(s); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range m.found() {
			if s.name != want[q.addrs[i]] {
				t.Errorf("address %d: symbol %d, want %d", q.addrs[i], s.name, want[q.addrs[i]])
			}
		}
	}
}

// Any number of symbols that hold all addresses do not cost any amount of time.
func TestMatcherIsBounded(t *testing.T) {
	addrs := make([]uint64, 1<<12)
	for i := range addrs {
		addrs[i] = uint64(i)
	}
	m := newMatcher(addrs)
	for i := range maxMatches/len(addrs) + 1 {
		_, err := m.add(symbol{end: 1 << 20})
		if last := i == maxMatches/len(addrs); (err != nil) != last || last && !errors.Is(err, elfsym.ErrLimit) {
			t.Fatalf("symbol %d: %v", i, err)
		}
	}
}

func TestQueryWithoutAnswer(t *testing.T) {
	var none *Query
	if name := none.Name(1); name != "" {
		t.Error(name)
	}
	q := NewQuery([]uint64{5, 5, 3})
	if q.countUnnamed() != 2 || q.Name(3) != "" || q.Name(4) != "" {
		t.Errorf("%+v", q)
	}
}
