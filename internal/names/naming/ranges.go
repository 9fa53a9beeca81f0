package naming

import (
	"slices"
	"unsafe"

	"correlator/internal/names/symbols"
	"correlator/profile"
)

// named is a range of addresses that have one name.
type named struct {
	symbols.Range
	function *profile.Function // nil: none
	used     uint32            // when it was last, in seconds since the Namer was opened
	version  uint32            // of the file, when it was read
}

// namedBytes is what a range takes without its name, and with its share of what slices have spare.
const namedBytes = 2*int(unsafe.Sizeof(named{})) + int(unsafe.Sizeof(profile.Function{}))

func (n *named) bytes() int {
	if n.function == nil {
		return namedBytes
	}
	return namedBytes + n.function.TextBytes()
}

// ranges are the names in a file, or in memory: sorted, none overlaps another.
type ranges []named

// find returns the range of an address, nil if none is known. It is valid until ranges change.
func (r ranges) find(addr uint64) *named {
	if i := r.search(addr); i < len(r) && r[i].Start <= addr {
		return &r[i]
	}
	return nil
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

// put adds a range around an address, as far as nothing newer is known there. It replaces ranges of
// earlier versions; but one that has no name replaces none that have: a perf map is read while it
// is written, too. It returns by how much the memory of all grows.
func (r *ranges) put(addr uint64, around named) (bytes int) {
	if addr < around.Start || addr >= around.End {
		return 0
	}
	stays := func(n *named) bool {
		return n.version == around.version || around.function == nil && n.function != nil
	}
	if known := r.find(addr); known != nil && stays(known) {
		known.version, known.used = around.version, around.used
		return 0
	}
	first := r.search(addr)
	last := first
	for ; first > 0 && (*r)[first-1].End > around.Start; first-- {
		if before := &(*r)[first-1]; stays(before) {
			around.Start = before.End
			break
		}
	}
	for ; last < len(*r) && (*r)[last].Start < around.End; last++ {
		if after := &(*r)[last]; stays(after) {
			around.End = after.Start
			break
		}
	}
	bytes = around.bytes()
	for i := first; i < last; i++ {
		bytes -= (*r)[i].bytes()
	}
	*r = slices.Replace(*r, first, last, around)
	return bytes
}

// deleteFunc deletes ranges. It returns how many there were and how much memory they had.
func (r *ranges) deleteFunc(is func(*named) bool) (bytes, count int) {
	left := slices.DeleteFunc(*r, func(n named) bool {
		if !is(&n) {
			return false
		}
		bytes += n.bytes()
		count++
		return true
	})
	if count > 0 {
		*r = slices.Clone(left) // without spare capacity
	}
	return bytes, count
}
