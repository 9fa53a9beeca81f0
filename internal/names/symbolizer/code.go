package symbolizer

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"correlator/internal/host/sorting"
	"correlator/procscan"
)

// This file distinguishes code that a process compiled from addresses in no memory, which walking a
// stack yields where the register is not a frame pointer.

// maxCodeRanges bounds the ranges of one process: as many as it can have executable mappings
// (procscan).
const maxCodeRanges = 32 << 10

// vdsoPath is the path that /proc/PID/maps gives the vDSO.
const vdsoPath = "[vdso]"

// codeRange is a range of memory; end is the first address after it.
type codeRange struct{ start, end uint64 }

// findCode reads the executable memory without a file if an address is in no known range.
func (p *process) findCode(handle *procscan.Handle, addrs []uint64) {
	unknown := func(addr uint64) bool { return !within(p.code, addr) }
	if !slices.ContainsFunc(addrs, unknown) {
		return
	}
	mappings, err := handle.ExecutableMemory()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return // it has exited
	}
	for _, m := range mappings {
		if isCode(m) {
			p.code = append(p.code, codeRange{m.Start, m.End})
		}
	}
	p.code = joined(p.code)
}

// isCode reports whether a mapping is memory that compilers write to: anonymous, or of a file in
// memory, which some map twice.
func isCode(m procscan.Mapping) bool {
	switch {
	case m.Path == vdsoPath:
		return false
	case m.Ino == 0:
		return true
	}
	return strings.HasPrefix(m.Path, "/memfd:") || strings.HasPrefix(m.Path, "/dev/zero") ||
		strings.HasPrefix(m.Path, "/SYSV")
}

// joined sorts ranges and merges adjacent ones.
func joined(ranges []codeRange) []codeRange {
	sorting.Sort(ranges, func(x, y codeRange) int { return cmp.Compare(x.start, y.start) })
	n := 0
	for _, r := range ranges {
		if n > 0 && r.start <= ranges[n-1].end {
			ranges[n-1].end = max(ranges[n-1].end, r.end)
			continue
		}
		ranges[n] = r
		n++
	}
	return ranges[:min(n, maxCodeRanges)]
}

func within(ranges []codeRange, addr uint64) bool {
	i, found := slices.BinarySearchFunc(ranges, addr,
		func(r codeRange, addr uint64) int { return cmp.Compare(r.start, addr) })
	return found || i > 0 && addr < ranges[i-1].end
}
