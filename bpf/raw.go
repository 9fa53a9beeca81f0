package bpf

import (
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
	keys              *samplerCountKey
	values            *samplerCount
	count, mapFD      uint32
	elemFlags, flags  uint64
}

// batchCursor is the kernel's position in a hash table: the number of a bucket.
type batchCursor uint32

// lookupAndDelete moves counts out of the table mapFD, and returns their number. The error is
// ENOENT when these were the last ones. It takes as long as the table has buckets: some 10 µs, and
// a few hundred for the largest one.
func (d *drain) lookupAndDelete(mapFD int, first bool) (n int, err error) {
	d.attr = batchAttr{
		inBatch: &d.cursor, outBatch: &d.cursor,
		keys: &d.keys[0], values: &d.values[0],
		count: drainBatch, mapFD: uint32(mapFD),
	}
	if first {
		d.attr.inBatch = nil
	}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH,
		uintptr(unsafe.Pointer(&d.attr)), unsafe.Sizeof(d.attr))
	if errno != 0 {
		err = errno
	}
	return int(d.attr.count), err
}

// Now returns CLOCK_MONOTONIC in ns, the clock of samples. There is no Linux on which reading it
// can fail.
func Now() uint64 {
	var now unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
	return uint64(now.Nano())
}
