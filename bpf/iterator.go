package bpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The two bpf(2) commands of this file are called directly, because cilium/ebpf (v0.22) cannot pass
// the filter of a task iterator, and needs Linux 5.9 even without. The layouts are those of
// include/uapi/linux/bpf.h, host byte order, for 64-bit machines.

// linkCreate is struct link_create of union bpf_attr, the argument of BPF_LINK_CREATE.
//
//	offset size field
//	     0    4 prog_fd
//	     4    4 target_fd      0
//	     8    4 attach_type    BPF_TRACE_ITER
//	    12    4 flags          0
//	    16    8 iter_info      pointer, null for no filter
//	    24    4 iter_info_len  bytes there
//	    28    4 not used       0
type linkCreate struct {
	programFD   uint32
	targetFD    uint32
	attachType  uint32
	flags       uint32
	filter      *taskFilter
	filterBytes uint32
	notUsed     uint32
}

// taskFilter is struct task of union bpf_iter_link_info. At most one field may be set. Kernels from
// 5.9 to 6.0 know only the first four bytes of the union, as something else, and return E2BIG when
// one after them is not 0; Linux 5.8 returns EINVAL for any filter.
//
//	offset size field
//	     0    4 tid     0
//	     4    4 pid     in our pid namespace
//	     8    4 pid_fd  0
type taskFilter struct {
	tid   uint32
	pid   uint32
	pidFD uint32
}

// iterCreate is struct iter_create of union bpf_attr, the argument of BPF_ITER_CREATE.
//
//	offset size field
//	     0    4 link_fd
//	     4    4 flags    0
type iterCreate struct {
	linkFD uint32
	flags  uint32
}

// openTaskIterator returns a descriptor whose reads run the program for every thread of process
// pid, or of all. The caller must close it. An iterator can be read once.
func openTaskIterator(program *ebpf.Program, pid uint32) (fd int, err error) {
	link := linkCreate{programFD: uint32(program.FD()), attachType: unix.BPF_TRACE_ITER}
	if pid != everyProcess {
		link.filter = &taskFilter{tid: 0, pid: pid, pidFD: 0}
		link.filterBytes = uint32(unsafe.Sizeof(*link.filter))
	}
	linkFD, err := bpf(unix.BPF_LINK_CREATE, unsafe.Pointer(&link), unsafe.Sizeof(link))
	runtime.KeepAlive(program)
	if err != nil {
		return -1, fmt.Errorf("linking task iterator: %w", err)
	}
	defer unix.Close(linkFD)
	iter := iterCreate{linkFD: uint32(linkFD)}
	if fd, err = bpf(unix.BPF_ITER_CREATE, unsafe.Pointer(&iter), unsafe.Sizeof(iter)); err != nil {
		return -1, fmt.Errorf("opening task iterator: %w", err)
	}
	return fd, nil
}

// canFilter reports whether this kernel can walk a single process. An error means that it cannot
// walk tasks at all.
func canFilter(program *ebpf.Program) (bool, error) {
	fd, err := openTaskIterator(program, uint32(os.Getpid()))
	filters := err == nil
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.EINVAL) {
		fd, err = openTaskIterator(program, everyProcess)
	}
	if err != nil {
		return false, err
	}
	return filters, unix.Close(fd)
}

// bpf is bpf(2) for commands that return a descriptor.
func bpf(command uintptr, attr unsafe.Pointer, attrBytes uintptr) (fd int, err error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), attrBytes)
	if errno != 0 {
		return -1, os.NewSyscallError("bpf", errno)
	}
	return int(r), nil
}
