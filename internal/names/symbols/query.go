package symbols

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"correlator/elfsym"
	"correlator/internal/host/textcut"
)

const (
	// maxNameBytes bounds what one name takes. The longest C++ names of libjvm.so have 600 bytes,
	// of libLLVM 3000; longer ones are truncated.
	maxNameBytes = 4096

	// maxMatches bounds the time that a table of overlapping symbols can cost, each of which might
	// contain all addresses: 50 ms. In honest tables an address is in a handful of symbols:
	// aliases.
	maxMatches = 16 << 20

	// maxAliases bounds how many names of functions that have several are compared in one table:
	// 100 ms. Libraries have thousands of such functions, of which few are asked for.
	maxAliases = 64 << 10
)

// Query is a set of addresses and their names. It is not safe for concurrent use.
type Query struct {
	addrs      []uint64 // sorted, each once
	names      []string // of addrs, empty when unknown
	ranges     []Range  // of addrs; nil: not wanted
	budgets    []*Budget
	overBudget bool
}

// Range is a range of addresses; End is the first one after it.
type Range struct{ Start, End uint64 }

// addressBytes is the memory of an address, without that of its name.
const addressBytes = 24

// NewQuery returns a query for addresses; it keeps and changes the slice. Its memory is taken from
// budgets. When they do not suffice for the addresses, the query has none; when not for a name,
// reading ends with elfsym.ErrLimit.
func NewQuery(addrs []uint64, budgets ...*Budget) *Query {
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	over := !take(budgets, addressBytes*len(addrs))
	if over {
		addrs = nil
	}
	return &Query{addrs: addrs, names: make([]string, len(addrs)), budgets: budgets, overBudget: over}
}

// FindRanges has the query find ranges, too; it is called before names are read.
func (q *Query) FindRanges() {
	q.ranges = make([]Range, len(q.addrs))
	for i := range q.ranges {
		q.ranges[i].End = math.MaxUint64
	}
}

// Range returns the addresses around one of the query that have the same name as it, or like it none.
// There may be more of them. A nil query has no names anywhere.
func (q *Query) Range(addr uint64) Range {
	if q == nil {
		return Range{0, math.MaxUint64}
	}
	if i, found := slices.BinarySearch(q.addrs, addr); found && q.ranges != nil {
		return q.ranges[i]
	}
	return Range{addr, addr + 1}
}

// Intersect returns the addresses that are in both ranges.
func (r Range) Intersect(other Range) Range {
	return Range{max(r.Start, other.Start), min(r.End, other.End)}
}

// OverBudget reports whether a budget did not suffice.
func (q *Query) OverBudget() bool { return q != nil && q.overBudget }

// text returns a name as a string, if the budgets suffice. That of one with maxNameBytes or more, of which more may not
// have been read, says so at its end.
func (q *Query) text(name []byte) (string, error) {
	if len(name) >= maxNameBytes {
		name = append(slices.Clone(textcut.At(name, maxNameBytes-len(textcut.Mark))), textcut.Mark...)
	}
	if !take(q.budgets, len(name)) {
		q.overBudget = true
		return "", fmt.Errorf("%w: names take too much memory", elfsym.ErrLimit)
	}
	return string(name), nil
}

// Name returns the name of an address, empty when it was not found or is not in the query.
func (q *Query) Name(addr uint64) string {
	if q == nil {
		return ""
	}
	i, found := slices.BinarySearch(q.addrs, addr)
	if !found {
		return ""
	}
	return q.names[i]
}

// countUnnamed returns how many addresses have no name yet.
func (q *Query) countUnnamed() (n int) {
	for _, name := range q.names {
		if name == "" {
			n++
		}
	}
	return n
}

// symbol is the address range of a table's entry.
type symbol struct {
	start, end uint64 // end is the first address behind it
	open       bool   // it has no size: it ends where the next symbol begins, at the latest at end
	rank       uint8  // of two that begin at one address the higher is taken, then the better name
	known      bool   // false: the zero value, which is no symbol
	name       uint64 // position of its name
}

// preferred reports whether a symbol is taken instead of another one. That does not depend on their
// order in the table, so a function has one name wherever and whenever it is looked for.
func (m *matcher) preferred(s, other symbol) bool {
	switch {
	case !other.known || s.start != other.start:
		return !other.known || s.start > other.start
	case s.rank != other.rank || m.isBetter == nil || m.aliases == 0:
		return s.rank > other.rank
	}
	m.aliases--
	return m.isBetter(s, other)
}

// isBetterName reports whether a name is taken instead of another one of the same function: the
// shortest one, which is usually the one that callers use.
func isBetterName(name, other []byte) bool {
	if len(name) != len(other) {
		return len(name) < len(other)
	}
	return bytes.Compare(name, other) < 0
}

// matcher finds the symbol of every address in one pass over a table in any order: the innermost
// that contains the address, or if there is none, the last that begins before it, if that one is
// open.
type matcher struct {
	addrs  []uint64
	inside []symbol // the innermost that contains the address
	before []symbol // the last that begins at or before the address, but after the previous address
	left   int      // how many matches are still allowed
	edges  *edges   // nil: ranges are not wanted

	isBetter func(s, other symbol) bool // by their names; nil: the first is
	aliases  int                        // how often that may still be asked
}

// edges are where symbols begin and end, so that between two of them all addresses have one name: of
// those between an address and the previous one the first and the last. There may be one gap more
// than addresses.
type edges struct {
	addrs       []uint64
	first, last []uint64 // before addrs[i], after addrs[i-1]
	known       []bool
}

func newEdges(addrs []uint64) *edges {
	n := len(addrs) + 1
	return &edges{addrs: addrs, first: make([]uint64, n), last: make([]uint64, n), known: make([]bool, n)}
}

// add adds those of a symbol, which begins before an address, or there: what begins at an address includes it.
func (e *edges) add(start, end uint64, before int) {
	if e == nil {
		return
	}
	e.addIn(before, start)
	if end < start || before < len(e.addrs) && end > e.addrs[before] {
		before, _ = slices.BinarySearch(e.addrs, end)
	}
	e.addIn(before, end)
}

// addIn adds an edge in a gap.
func (e *edges) addIn(i int, addr uint64) {
	if !e.known[i] {
		e.first[i], e.last[i], e.known[i] = addr, addr, true
		return
	}
	e.first[i], e.last[i] = min(e.first[i], addr), max(e.last[i], addr)
}

// ranges returns, for each address, the range between two edges.
func (e *edges) ranges() []Range {
	all := make([]Range, len(e.addrs))
	start := uint64(0)
	for i := range all {
		if e.known[i] {
			start = e.last[i]
		}
		all[i].Start = start
	}
	end := uint64(math.MaxUint64)
	for i := len(all) - 1; i >= 0; i-- {
		if e.known[i+1] {
			end = e.first[i+1]
		}
		all[i].End = end
	}
	return all
}

// newMatcher returns a matcher of what has no name yet in a query, and the index of each in the query.
func (q *Query) newMatcher() (m *matcher, places []int) {
	addrs, places := q.unnamed()
	m = &matcher{
		addrs: addrs, inside: make([]symbol, len(addrs)), before: make([]symbol, len(addrs)), left: maxMatches,
		aliases: maxAliases,
	}
	if q.ranges != nil {
		m.edges = newEdges(addrs)
	}
	return m, places
}

// narrowRanges narrows the ranges of a query to those between the symbols that were added; err says
// that some are missing.
func (q *Query) narrowRanges(m *matcher, places []int, err error) {
	if m.edges == nil {
		return
	}
	for i, r := range m.edges.ranges() {
		if err != nil {
			r = Range{m.addrs[i], m.addrs[i] + 1}
		}
		q.ranges[places[i]] = q.ranges[places[i]].Intersect(r)
	}
}

// add adds a symbol of the table, and reports whether it may be that of an address. The error is
// elfsym.ErrLimit.
func (m *matcher) add(s symbol) (taken bool, err error) {
	s.known = true
	i, _ := slices.BinarySearch(m.addrs, s.start)
	m.edges.add(s.start, s.end, i)
	if i == len(m.addrs) {
		return false, nil
	}
	if m.preferred(s, m.before[i]) {
		m.before[i], taken = s, true
	}
	if s.open {
		return taken, nil
	}
	for ; i < len(m.addrs) && m.addrs[i] < s.end; i++ {
		if m.left--; m.left < 0 {
			return taken, fmt.Errorf("%w: symbols overlap too often", elfsym.ErrLimit)
		}
		if m.preferred(s, m.inside[i]) {
			m.inside[i], taken = s, true
		}
	}
	return taken, nil
}

// found returns the symbol of each address.
func (m *matcher) found() []symbol {
	var last symbol
	for i, addr := range m.addrs {
		if m.before[i].known {
			last = m.before[i]
		}
		if !m.inside[i].known && last.open && addr < last.end {
			m.inside[i] = last
		}
	}
	return m.inside
}

// unnamed returns the addresses that have no name yet, and the index of each in the query.
func (q *Query) unnamed() (addrs []uint64, places []int) {
	for i, name := range q.names {
		if name == "" {
			addrs, places = append(addrs, q.addrs[i]), append(places, i)
		}
	}
	return addrs, places
}
