package tlsdesc

import (
	"encoding/binary"
	"fmt"
	"math"

	"correlator/memread"
)

// unallocated is glibc's TLS_DTV_UNALLOCATED (sysdeps/generic/dl-dtv.h): the
// thread has no block of the module yet.
const unallocated = math.MaxUint64

// VariableAddrs finds the variable of each thread: out[i] is its address in the
// thread with threadPointers[i], or 0 when that thread has none, which is no
// error. A thread pointer of 0 is that of a thread without any TLS. errs[i] is
// why thread i could not be looked at, else nil; it spoils no other thread. The
// three slices are of one length. When the result is an error, it is one of the
// whole process, and out and errs mean nothing.
//
// A static rule reads nothing. The others take four batches of reads and two
// allocations however many the threads, 120 bytes for each.
//
// The process runs meanwhile. A thread that can be seen has its DTV: both C
// libraries make it before they ask the kernel for the thread. glibc lets a
// thread replace its own DTV when a new module does not fit in, and frees the old
// one; musl replaces all of them at dlopen. Therefore the pointer is read again at
// the end, and when it is another, the answer is ErrChanged. glibc updates the
// entries of a DTV before its generation, so the generation is read before the
// entry.
//
// What is left: glibc frees the old DTV a few instructions before it stores the
// pointer to the new one. All four reads would have to come in between, and
// another thread to reuse the memory before them, for the answer to be wrong. A
// thread that has ended: its memory can be unmapped, which is an error of that
// thread, can still be there with the last values, or can be that of a new thread
// with the same thread pointer; callers to whom it matters look at the list of
// threads again, after they have read the variable. And a thread that the C library
// did not make: its thread pointer means what its maker wants, so that the answer
// can be any address.
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

// followDTVs goes the way that Rule describes, all threads together.
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

	// Also for those without the variable: perhaps what said so was not a DTV any more.
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

// search looks up all threads at a time; its slices are parallel.
type search struct {
	mem      Memory
	errs     []error // a thread with an error is at its end
	lookups  []lookup
	requests []memread.Request
}

// lookup is one thread on its way through its DTV.
type lookup struct {
	threadPointer uint64
	dtv, block    uint64
	covered       bool                // the DTV knows of the module
	words         [3 * wordBytes]byte // what was read last; the most is glibc's header
}

func (l *lookup) word(off int64) uint64 { return binary.LittleEndian.Uint64(l.words[off:]) }

// read reads lenBytes at off from the base of every thread, and has them used. A
// thread whose base is 0 has nothing to read.
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
