package bpf

import (
	"errors"
	"io"
	"math"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of this file are made ten times a second and wait for no other process, so they
// are raw. An ordinary system call wakes the monitor thread of the Go runtime, which then checks
// every 20 µs whether the process is idle again: more work than all the rest of a drain.

// batchAttr is the part of union bpf_attr (include/uapi/linux/bpf.h) for operations on batches.
//
//	offset size field
//	     0    8 inBatch    cursor to go on from, nil: from the beginning
//	     8    8 outBatch   where the next cursor goes
//	    16    8 keys
//	    24    8 values
//	    32    4 count      room for elements; elements returned
//	    36    4 mapFD
//	    40    8 elemFlags
//	    48    8 flags
type batchAttr struct {
	inBatch, outBatch *batchCursor
	keys, values      unsafe.Pointer
	count, mapFD      uint32
	elemFlags, flags  uint64
}

// batchCursor is the kernel's position in a hash table: the number of a bucket.
type batchCursor uint32

// A batch moves elements out of a table.
type batch struct {
	attr   batchAttr
	cursor batchCursor
}

// lookupAndDelete moves elements out of the table mapFD, as many as there is room for in keys and
// values, and returns their number. The error is ENOENT when these were the last ones. It takes as
// long as the table has buckets: some 10 µs, and a few hundred for the largest one.
func (b *batch) lookupAndDelete(mapFD int, keys, values unsafe.Pointer, room int, first bool) (n int, err error) {
	b.attr = batchAttr{
		inBatch: &b.cursor, outBatch: &b.cursor,
		keys: keys, values: values,
		count: uint32(room), mapFD: uint32(mapFD),
	}
	if first {
		b.attr.inBatch = nil
	}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH,
		uintptr(unsafe.Pointer(&b.attr)), unsafe.Sizeof(b.attr))
	if errno != 0 {
		err = errno
	}
	return int(b.attr.count), err
}

// drain moves all elements out of a table, and calls yield with how many there are in keys and values each time.
func (b *batch) drain(mapFD int, keys, values unsafe.Pointer, room int, yield func(n int)) error {
	for first := true; ; first = false {
		n, err := b.lookupAndDelete(mapFD, keys, values, room, first)
		last := errors.Is(err, unix.ENOENT)
		if err != nil && !last {
			return err
		}
		if yield(n); last {
			return nil
		}
	}
}

// elemAttr is the part of union bpf_attr for operations on one element.
//
//	offset size field
//	     0    4 mapFD
//	     8    8 key
//	    16    8 value
//	    24    8 flags
type elemAttr struct {
	mapFD      uint32
	_          uint32
	key, value unsafe.Pointer
	flags      uint64
}

// lookupElem copies a value out of the table mapFD. The error is ENOENT when the key has none.
func lookupElem(mapFD int, key, value unsafe.Pointer) error {
	attr := elemAttr{mapFD: uint32(mapFD), key: key, value: value}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_ELEM, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr))
	if errno != 0 {
		return errno
	}
	return nil
}

// readEvent reads a perf event that counts one thing.
func readEvent(fd int) (uint64, error) {
	var value uint64
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value))
	switch {
	case errno != 0:
		return 0, errno
	case n != unsafe.Sizeof(value):
		return 0, io.ErrUnexpectedEOF
	}
	return value, nil
}

// Now returns CLOCK_MONOTONIC in ns, the clock of samples. There is no Linux on which reading it
// can fail.
func Now() uint64 { return clockGettime(unix.CLOCK_MONOTONIC) }

// clockGettime returns the time of a clock in ns.
func clockGettime(clock uintptr) uint64 {
	var now unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0)
	return uint64(now.Nano())
}

// An Instant is one moment by several clocks.
type Instant struct {
	time.Time
	MonotonicNs uint64 // CLOCK_MONOTONIC, that of samples
	BoottimeNs  uint64 // CLOCK_BOOTTIME, which goes on while the machine is suspended
}

var firstInstant = sync.OnceValue(readClocks)

// ReadInstant returns the instant at which it is called. It cannot fail. Go's clock is CLOCK_MONOTONIC, too: between
// two instants both have counted the same time.
func ReadInstant() Instant {
	first, now := firstInstant(), readClocks()
	now.MonotonicNs = first.MonotonicNs + uint64(now.Sub(first.Time))
	return now
}

func readClocks() Instant {
	return readInstant(func() (Instant, time.Duration) {
		i := Instant{MonotonicNs: Now()}
		i.Time = time.Now()
		i.BoottimeNs = clockGettime(unix.CLOCK_BOOTTIME)
		return i, time.Duration(Now() - i.MonotonicNs)
	})
}

// readInstant has clocks read one after the other until that took no time: whoever reads them may get no CPU in
// between, for seconds. It returns the best of some attempts.
func readInstant(read func() (i Instant, took time.Duration)) (best Instant) {
	const attempts, quick = 10, 20 * time.Microsecond
	shortest := time.Duration(math.MaxInt64)
	for n := 0; n < attempts && shortest > quick; n++ {
		if i, took := read(); took < shortest {
			best, shortest = i, took
		}
	}
	return best
}
