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

// This file is how code that a process compiled is told from addresses where there is nothing:
// those that walking a stack makes of what is no frame pointer.

const (
	// codeLookInterval is how long new addresses wait for the next look at a process's memory: each
	// stack may bring one that is nowhere. A look takes a millisecond.
	codeLookInterval = time.Second

	// maxCodeRanges bounds what is kept of one process: as many mappings as one look returns.
	maxCodeRanges = 32 << 10
)

// codeRange is memory, end is the first address behind it.
type codeRange struct{ start, end uint64 }

// findCode looks for executable memory without a file if an address is not in what is known.
func (of *sources) findCode(p *record.Process, addrs []uint64) {
	strange := func(addr uint64) bool { return !within(of.code, addr) }
	if !slices.ContainsFunc(addrs, strange) || time.Since(of.looked) < codeLookInterval {
		return
	}
	mappings, err := p.Handle.ExecutableMemory()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return // it has ended
	}
	of.looked = time.Now()
	for _, m := range mappings {
		if isCode(m) {
			of.code = append(of.code, codeRange{m.Start, m.End})
		}
	}
	of.code = joined(of.code)
}

// isCode reports whether a mapping is memory that code is compiled to: without a file, or with one
// that only lives in memory, which compilers map twice.
func isCode(m procscan.Mapping) bool {
	switch {
	case m.Path == vdsoPath:
		return false
	case m.Ino == 0:
		return true
	}
	return strings.HasPrefix(m.Path, "/memfd:") || strings.HasPrefix(m.Path, "/dev/zero") || strings.HasPrefix(m.Path, "/SYSV")
}

// joined sorts ranges and makes one of those that touch.
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
	i, found := slices.BinarySearchFunc(ranges, addr, func(r codeRange, addr uint64) int { return cmp.Compare(r.start, addr) })
	return found || i > 0 && addr < ranges[i-1].end
}
