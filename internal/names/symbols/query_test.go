package symbols

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

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
	assert.Assert(t, len(q.addrs) == len(want), "%d addresses, want %d", len(q.addrs), len(want))
	// In any order.
	for range len(symbols) {
		symbols = append(symbols[1:], symbols[0])
		m, _ := q.newMatcher()
		for _, s := range symbols {
			_, err := m.add(s)
			assert.NilError(t, err)
		}
		for i, s := range m.found() {
			assert.Check(t, s.name == want[q.addrs[i]],
				"address %d: symbol %d, want %d", q.addrs[i], s.name, want[q.addrs[i]])
		}
	}
}

// Any number of symbols that hold all addresses do not cost any amount of time.
func TestMatcherIsBounded(t *testing.T) {
	addrs := make([]uint64, 1<<12)
	for i := range addrs {
		addrs[i] = uint64(i)
	}
	m, _ := NewQuery(addrs).newMatcher()
	for i := range maxMatches/len(addrs) + 1 {
		_, err := m.add(symbol{end: 1 << 20})
		last := i == maxMatches/len(addrs)
		assert.Assert(t, (err != nil) == last && (!last || errors.Is(err, elfsym.ErrLimit)), "symbol %d: %v", i, err)
	}
}

func TestQueryWithoutAnswer(t *testing.T) {
	var none *Query
	name := none.Name(1)
	assert.Check(t, name == "", name)
	q := NewQuery([]uint64{5, 5, 3})
	assert.Check(t, q.countUnnamed() == 2 && q.Name(3) == "" && q.Name(4) == "", "%+v", q)
}

// Names of aliases are compared so often and no more.
func TestAliasesAreBounded(t *testing.T) {
	m, _ := NewQuery([]uint64{5}).newMatcher()
	compared := 0
	m.isBetter = func(s, other symbol) bool {
		compared++
		return s.name < other.name
	}
	for i := range uint64(maxAliases + 10) {
		if _, err := m.add(symbol{start: 1, end: 6, name: math.MaxInt64 - i}); err != nil {
			t.Fatal(err)
		}
	}
	assert.Check(t, compared == maxAliases, "%d names of one function were compared", compared)
}

// All addresses of a range have the name of the one that it was found for, whatever others are asked
// for, and it ends where the next symbol could change that.
func TestRanges(t *testing.T) {
	const most = 140
	texts := map[string][]string{
		"":  {"1e 14 outer\n28 a inner\n", "1e 14 outer\n", "28 a inner\n30 32 later\n", "", "46 1 one\n5 2 two\n"},
		"x": {"1 8b all\n"},
	}
	for _, all := range texts {
		text := strings.Join(all, "")
		var addrs []uint64
		for addr := range uint64(most) {
			addrs = append(addrs, addr)
		}
		whole := NewQuery(addrs)
		read := func(q *Query) {
			q.FindRanges()
			assert.NilError(t, q.ReadPerfMap(strings.NewReader(text), int64(len(text))))
		}
		read(whole)
		for addr := range uint64(most) {
			for _, asked := range [][]uint64{{addr}, {addr, addr + 3}, {addr / 2, addr, 130}} {
				q := NewQuery(asked)
				read(q)
				r := q.Range(addr)
				assert.Assert(t, addr >= r.Start && addr < r.End, "%d is not in its range %v", addr, r)
				for other := r.Start; other < min(r.End, most); other++ {
					if whole.Name(other) != q.Name(addr) {
						t.Fatalf("%d is %q and not %q, but in the range %v of %d", other, whole.Name(other),
							q.Name(addr), r, addr)
					}
				}
				assert.Assert(t, r.End >= most || whole.Range(r.End).Start == r.End,
					"nothing begins or ends at the end of %v", r)
			}
		}
	}
	var none *Query
	r := none.Range(5)
	assert.Check(t, r.Start == 0 && r.End == math.MaxUint64, "%v: there are no names anywhere", r)
	failed := NewQuery([]uint64{5})
	failed.FindRanges()
	m, places := failed.newMatcher()
	failed.narrowRanges(m, places, errors.New("not all was read"))
	r = failed.Range(5)
	assert.Check(t, r == Range{5, 6}, "%v: what was not read could be anywhere", r)
}

// What is added with where it begins is what is added by itself, also where it ends before that.
func TestEdges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	addrs := []uint64{3, 4, 9, 15}
	got, want := newEdges(addrs), newEdges(addrs)
	for range 1000 {
		if random.IntN(10) == 0 {
			got, want = newEdges(addrs), newEdges(addrs)
		}
		start, end := random.Uint64N(20), random.Uint64N(20)
		for _, addr := range []uint64{start, end} {
			i, _ := slices.BinarySearch(addrs, addr)
			want.addIn(i, addr)
		}
		before, _ := slices.BinarySearch(addrs, start)
		got.add(start, end, before)
		assert.Assert(t, slices.Equal(got.ranges(), want.ranges()), "%d, %d: %v, want %v", start, end, got.ranges(),
			want.ranges())
	}
}
