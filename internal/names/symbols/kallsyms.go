package symbols

import (
	"errors"
	"io"
	"math"
	"slices"

	"correlator/internal/host/kallsyms"
)

// maxKernelFunctionBytes keeps addresses without a symbol from getting the name of a distant one
// before them. The longest functions have some 40 KiB.
const maxKernelFunctionBytes = 256 << 10

// ReadKallsyms names addresses in the kernel's memory, those of modules and of eBPF programs too.
// Symbols have no size there: each reaches to the next one, but not further than
// maxKernelFunctionBytes. r is /proc/kallsyms.
func (q *Query) ReadKallsyms(r io.Reader) error {
	m, places := q.newMatcher()
	// Each symbol begins later than the one before it, and replaces that as the last before an address.
	names := make([][]byte, len(m.addrs)) // of matcher.before
	var name []byte
	m.isBetter = func(_, other symbol) bool { return isBetterName(name, names[other.name]) }
	var limit error
	err := kallsyms.Read(r, func(s kallsyms.Symbol) bool {
		if !s.Code() {
			return true
		}
		addr, ok := s.Addr()
		if !ok || addr == 0 || addr > math.MaxUint64-maxKernelFunctionBytes { // hidden, or no function's
			return true
		}
		var taken bool
		i, _ := slices.BinarySearch(m.addrs, addr)
		name = s.Name[:min(len(s.Name), maxNameBytes)]
		taken, limit = m.add(symbol{
			start: addr, end: addr + maxKernelFunctionBytes, open: true, rank: s.Rank(), name: uint64(i),
		})
		if taken {
			names[i] = append(names[i][:0], name...)
		}
		return limit == nil
	})
	err = errors.Join(err, limit)
	q.narrowRanges(m, places, err)
	texts := make(map[uint64]string) // by place: a function has many addresses
	for i, s := range m.found() {
		if !s.known {
			continue
		}
		if texts[s.name] == "" {
			texts[s.name] = string(names[s.name])
		}
		q.names[places[i]] = texts[s.name]
	}
	return err
}
