package tlsdesc

import (
	"encoding/binary"
	"fmt"
	"math"

	"correlator/memread"
)

// unallocated is glibc's TLS_DTV_UNALLOCATED (sysdeps/generic/dl-dtv.h): the thread has no block of
// the module yet.
const unallocated = math.MaxUint64

// VariableAddrs finds the variable of each thread: out[i] is its address in the thread with
// threadPointers[i], or 0 when that thread has none, which is no error. A thread pointer of 0 is
// that of a thread without any TLS. errs[i] is the error of thread i alone, or nil. The three
// slices have the same length. An error that is returned is that of the whole process; then out and
// errs are not valid.
//
// A static rule reads nothing. The others take four batches of reads and two allocations for any
// number of threads, 120 bytes for each.
//
// The process runs meanwhile. Every visible thread has its DTV: both C libraries allocate it before
// they create the thread. In glibc a thread replaces its own DTV when a new module does not fit,
// and frees the old one; musl replaces all of them at dlopen. Therefore the pointer is read again
// at the end, and if it has changed, the error is ErrChanged. glibc updates the entries of a DTV
// before its generation, so the generation is read before the entry.
//
// What remains: glibc frees the old DTV a few instructions before it stores the pointer to the new
// one. The result is wrong if all four reads come in between, and another thread reuses the memory
// before them. A thread that has exited: its memory can be unmapped, which is an error of that
// thread, can still hold the last values, or can be that of a new thread with the same thread
// pointer; callers to whom it matters list the threads again after they have read the variable. And
// a thread that the C library did not create: its thread pointer can be anything, and so can the
// result.
func (r Rule) VariableAddrs(mem Memory, threadPointers, out []uint64, errs []error) error {
	clear(out)
	clear(errs)
	switch r.Kind {
	case Static:
		for i, tp := range threadPointers {
			if tp != 0 {
				out[i], errs[i] = offsetAddr(tp, r.Offset)
			}
		}
		return nil
	case Dynamic, DTPMod:
		return r.followDTVs(mem, threadPointers, out, errs)
	}
	return ErrUnresolved
}

// VariableAddr is VariableAddrs for one thread.
func (r Rule) VariableAddr(mem Memory, threadPointer uint64) (uint64, error) {
	var out [1]uint64
	var errs [1]error
	if err := r.VariableAddrs(mem, []uint64{threadPointer}, out[:], errs[:]); err != nil {
		return 0, err
	}
	return out[0], errs[0]
}

// followDTVs follows the steps of Rule for all threads together.
func (r Rule) followDTVs(mem Memory, threadPointers, out []uint64, errs []error) error {
	s := search{
		mem:      mem,
		errs:     errs,
		lookups:  make([]lookup, len(threadPointers)),
		requests: make([]memread.Request, len(threadPointers)),
	}
	for i, tp := range threadPointers {
		s.lookups[i].threadPointer = tp
	}

	if err := s.read("pointer to DTV", wordBytes, r.DTVOffset, func(l *lookup) uint64 {
		return l.threadPointer
	}, func(_ int, l *lookup) {
		l.dtv = l.word(0)
	}); err != nil {
		return err
	}

	headerBytes := wordBytes - r.DTVCapacityOffset // from the capacity to the generation
	if err := s.read("DTV header", headerBytes, r.DTVCapacityOffset, func(l *lookup) uint64 {
		return l.dtv
	}, func(_ int, l *lookup) {
		capacity, generation := l.word(0), l.word(headerBytes-wordBytes)
		l.covered = capacity >= r.Module && (r.Generation == 0 || generation >= r.Generation)
	}); err != nil {
		return err
	}

	if err := s.read("DTV entry", wordBytes, int64(r.Module*r.DTVStride), func(l *lookup) uint64 {
		if !l.covered {
			return 0
		}
		return l.dtv
	}, func(_ int, l *lookup) {
		l.block = l.word(0)
	}); err != nil {
		return err
	}

	// Also for those without the variable: what was read may not have been a DTV any more.
	return s.read("pointer to DTV", wordBytes, r.DTVOffset, func(l *lookup) uint64 {
		if l.dtv == 0 {
			return 0
		}
		return l.threadPointer
	}, func(i int, l *lookup) {
		switch {
		case l.word(0) != l.dtv:
			errs[i] = ErrChanged
		case l.block != 0 && l.block != unallocated:
			out[i], errs[i] = offsetAddr(l.block, r.Offset)
		}
	})
}

// search looks up all threads at once; its slices are parallel.
type search struct {
	mem      Memory
	errs     []error // a thread with an error is skipped
	lookups  []lookup
	requests []memread.Request
}

// lookup is the state of one thread's lookup.
type lookup struct {
	threadPointer uint64
	dtv, block    uint64
	covered       bool                // the DTV has an entry of the module
	words         [3 * wordBytes]byte // what was read last; glibc's header is the longest
}

func (l *lookup) word(off int64) uint64 { return binary.LittleEndian.Uint64(l.words[off:]) }

// read reads lenBytes at off from the base of every thread, and calls use for each. A thread whose
// base is 0 is skipped.
func (s *search) read(what string, lenBytes, off int64, base func(*lookup) uint64, use func(int, *lookup)) error {
	for i := range s.lookups {
		l := &s.lookups[i]
		s.requests[i] = memread.Request{}
		start := base(l)
		if start == 0 || s.errs[i] != nil {
			continue
		}
		addr, err := offsetAddr(start, off)
		if err != nil {
			s.errs[i] = fmt.Errorf("reading %s: %w", what, err)
			continue
		}
		s.requests[i] = memread.Request{Addr: addr, Buf: l.words[:lenBytes]}
	}
	if err := s.mem.ReadBatch(s.requests); err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	for i := range s.lookups {
		switch r := &s.requests[i]; {
		case r.Err != nil:
			s.errs[i] = fmt.Errorf("reading %s at %#x: %w", what, r.Addr, r.Err)
		case len(r.Buf) > 0:
			use(i, &s.lookups[i])
		}
	}
	return nil
}
