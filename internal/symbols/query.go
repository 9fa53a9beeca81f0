package symbols

import (
	"fmt"
	"slices"

	"correlator/elfsym"
)

const (
	// maxNameBytes bounds what one name takes. The longest C++ names of libjvm.so have 600 bytes,
	// of libLLVM 3000; longer ones are truncated.
	maxNameBytes = 4096

	// maxMatches bounds the time that a table of overlapping symbols can cost, each of which might
	// contain all addresses: 50 ms. In honest tables an address is in a handful of symbols:
	// aliases.
	maxMatches = 16 << 20
)

// Query is a set of addresses and their names. It is not safe for concurrent use.
type Query struct {
	addrs      []uint64 // sorted, each once
	names      []string // of addrs, empty when unknown
	budgets    []*Budget
	overBudget bool
}

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

// OverBudget reports whether a budget did not suffice.
func (q *Query) OverBudget() bool { return q != nil && q.overBudget }

// text returns a name as a string, if the budgets suffice.
func (q *Query) text(name []byte) (string, error) {
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
	rank       uint8  // of two that begin at one address the higher is taken
	known      bool   // false: the zero value, which is no symbol
	name       uint64 // position of its name
}

func (s symbol) preferred(other symbol) bool {
	if !other.known || s.start != other.start {
		return !other.known || s.start > other.start
	}
	return s.rank > other.rank
}

// matcher finds the symbol of every address in one pass over a table in any order: the innermost
// that contains the address, or if there is none, the last that begins before it, if that one is
// open.
type matcher struct {
	addrs  []uint64
	inside []symbol // the innermost that contains the address
	before []symbol // the last that begins at or before the address, but after the previous address
	left   int      // how many matches are still allowed
}

func newMatcher(addrs []uint64) *matcher {
	return &matcher{
		addrs: addrs, inside: make([]symbol, len(addrs)), before: make([]symbol, len(addrs)), left: maxMatches,
	}
}

// add adds a symbol of the table, and reports whether it may be that of an address. The error is
// elfsym.ErrLimit.
func (m *matcher) add(s symbol) (taken bool, err error) {
	s.known = true
	i, _ := slices.BinarySearch(m.addrs, s.start)
	if i == len(m.addrs) {
		return false, nil
	}
	if s.preferred(m.before[i]) {
		m.before[i], taken = s, true
	}
	if s.open {
		return taken, nil
	}
	for ; i < len(m.addrs) && m.addrs[i] < s.end; i++ {
		if m.left--; m.left < 0 {
			return taken, fmt.Errorf("%w: symbols overlap too often", elfsym.ErrLimit)
		}
		if s.preferred(m.inside[i]) {
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
