package symbols

import (
	"fmt"
	"slices"

	"correlator/elfsym"
)

const (
	// maxNameBytes bounds what one name takes. The longest C++ names of libjvm.so have 600 bytes,
	// of libLLVM 3000; what is longer is cut off.
	maxNameBytes = 4096

	// maxMatches bounds the time that a table of overlapping symbols can cost, each of which might
	// hold all addresses: 50 ms. Honest tables have an address in a handful of symbols: aliases.
	maxMatches = 16 << 20
)

// Query is a set of addresses and their names. It is not safe for concurrent use.
type Query struct {
	addrs []uint64 // sorted, each once
	names []string // of addrs, empty while there is none
	rooms []*Budget
	cut   bool
}

// addressBytes is what an address takes, without the bytes of its name.
const addressBytes = 24

// NewQuery returns a query for addresses, which become its own. It takes memory of rooms; when
// there is none left for the addresses, it is for none, and when there is none for a name, that is
// elfsym.ErrLimit.
func NewQuery(addrs []uint64, rooms ...*Budget) *Query {
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	cut := !take(rooms, addressBytes*len(addrs))
	if cut {
		addrs = nil
	}
	return &Query{addrs: addrs, names: make([]string, len(addrs)), rooms: rooms, cut: cut}
}

// Cut reports whether there was no room for something.
func (q *Query) Cut() bool { return q != nil && q.cut }

// text makes the text of a name.
func (q *Query) text(name []byte) (string, error) {
	if !take(q.rooms, len(name)) {
		q.cut = true
		return "", fmt.Errorf("%w: names take too much memory", elfsym.ErrLimit)
	}
	return string(name), nil
}

// Name is the name of an address, empty when none was found or asked for.
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

// Unnamed is how many addresses have no name yet.
func (q *Query) Unnamed() (n int) {
	for _, name := range q.names {
		if name == "" {
			n++
		}
	}
	return n
}

// symbol is the part of a table's entry that says what it names.
type symbol struct {
	start, end uint64 // end is the first address behind it
	open       bool   // it has no size: it ends where the next symbol begins, at end at the latest
	rank       uint8  // the higher of two that begin at one address is taken
	known      bool   // false: the zero value, which is no symbol
	name       uint64 // where its name is
}

func (s symbol) better(other symbol) bool {
	if !other.known || s.start != other.start {
		return !other.known || s.start > other.start
	}
	return s.rank > other.rank
}

// matcher finds the symbol of every address while a table passes by in any order: the innermost
// that holds the address. Only where none does, it is the last that begins before it, if that one
// is open.
type matcher struct {
	addrs  []uint64
	inside []symbol // the innermost that holds the address
	before []symbol // the last that begins at or before the address, but behind the address before it
	left   int      // matches that are still allowed
}

func newMatcher(addrs []uint64) *matcher {
	return &matcher{
		addrs: addrs, inside: make([]symbol, len(addrs)), before: make([]symbol, len(addrs)), left: maxMatches,
	}
}

// offer takes a symbol into account, and reports whether it may be the name of an address. The
// error is elfsym.ErrLimit.
func (m *matcher) offer(s symbol) (taken bool, err error) {
	s.known = true
	i, _ := slices.BinarySearch(m.addrs, s.start)
	if i == len(m.addrs) {
		return false, nil
	}
	if s.better(m.before[i]) {
		m.before[i], taken = s, true
	}
	if s.open {
		return taken, nil
	}
	for ; i < len(m.addrs) && m.addrs[i] < s.end; i++ {
		if m.left--; m.left < 0 {
			return taken, fmt.Errorf("%w: symbols overlap too often", elfsym.ErrLimit)
		}
		if s.better(m.inside[i]) {
			m.inside[i], taken = s, true
		}
	}
	return taken, nil
}

// found returns the symbols of the addresses.
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

// unnamed returns the addresses that have no name yet, and where in the query each of them is.
func (q *Query) unnamed() (addrs []uint64, places []int) {
	for i, name := range q.names {
		if name == "" {
			addrs, places = append(addrs, q.addrs[i]), append(places, i)
		}
	}
	return addrs, places
}
