package naming

import (
	"slices"
	"unsafe"

	"correlator/internal/symbols"
	"correlator/profile"
)

// named is a range of addresses that have one name.
type named struct {
	symbols.Range
	function *profile.Function // nil: none
}

// namedBytes is what a range takes without its name, and with its share of what slices have spare.
const namedBytes = 2*int(unsafe.Sizeof(named{})) + int(unsafe.Sizeof(profile.Function{}))

func (n *named) bytes() int {
	if n.function == nil {
		return namedBytes
	}
	return namedBytes + len(n.function.Name)
}

// ranges are the names in a file, or in memory: sorted, none overlaps another.
type ranges []named

// find returns the function at an address, nil for none, and whether that is known.
func (r ranges) find(addr uint64) (function *profile.Function, known bool) {
	i := r.search(addr)
	if i == len(r) || addr < r[i].Start {
		return nil, false
	}
	return r[i].function, true
}

// search returns the index of the first range that ends behind an address.
func (r ranges) search(addr uint64) int {
	i, _ := slices.BinarySearchFunc(r, addr, func(n named, addr uint64) int {
		if n.End <= addr {
			return -1
		}
		return 1
	})
	return i
}

// add adds the name of a range around an address, as far as none is known there. It returns the memory
// that it takes.
func (r *ranges) add(addr uint64, around symbols.Range, name string) (bytes int) {
	i := r.search(addr)
	if addr < around.Start || addr >= around.End || i < len(*r) && (*r)[i].Start <= addr {
		return 0
	}
	if i > 0 {
		around.Start = max(around.Start, (*r)[i-1].End)
	}
	if i < len(*r) {
		around.End = min(around.End, (*r)[i].Start)
	}
	n := named{Range: around}
	if name != "" {
		n.function = profile.NewFunction(name, "")
	}
	*r = slices.Insert(*r, i, n)
	return n.bytes()
}
