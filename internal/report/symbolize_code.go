package report

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"correlator/internal/record"
	"correlator/procscan"
)

// This file distinguishes code that a process compiled from addresses in no memory, which walking a
// stack yields where the register is not a frame pointer.

const (
	// codeReadInterval is the shortest time between two reads of a process's mappings: each stack
	// may have a new address that is in no memory. A read takes a millisecond.
	codeReadInterval = time.Second

	// maxCodeRanges bounds the ranges of one process: as many as it can have executable mappings
	// (procscan).
	maxCodeRanges = 32 << 10
)

// codeRange is a range of memory; end is the first address after it.
type codeRange struct{ start, end uint64 }

// findCode reads the executable memory without a file if an address is in no known range.
func (of *sources) findCode(p *record.Process, addrs []uint64) {
	unknown := func(addr uint64) bool { return !within(of.code, addr) }
	if !slices.ContainsFunc(addrs, unknown) || time.Since(of.codeRead) < codeReadInterval {
		return
	}
	mappings, err := p.Handle.ExecutableMemory()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return // it has exited
	}
	of.codeRead = time.Now()
	for _, m := range mappings {
		if isCode(m) {
			of.code = append(of.code, codeRange{m.Start, m.End})
		}
	}
	of.code = joined(of.code)
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
	slices.SortFunc(ranges, func(x, y codeRange) int { return cmp.Compare(x.start, y.start) })
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
