package memread

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
)

// maxElements is the kernel's UIO_MAXIOV (include/uapi/linux/uio.h): with more elements
// process_vm_readv returns EINVAL.
const maxElements = 1024

// vector is a list of reads: remote[i] is copied to local[i], which has the same length.
// Transferring shortens an element by the bytes read, so its length is always what is missing.
type vector struct {
	local  []unix.Iovec
	remote []unix.RemoteIovec
}

func (v vector) set(i int, addr uint64, buf []byte) {
	v.local[i] = unix.Iovec{Base: unsafe.SliceData(buf), Len: uint64(len(buf))}
	v.remote[i] = unix.RemoteIovec{Base: uintptr(addr), Len: len(buf)}
}

func (v vector) missing(i int) int { return v.remote[i].Len }

func (v vector) from(i int) vector { return vector{v.local[i:], v.remote[i:]} }

// advance removes the n bytes that a call has read, and returns the elements from the first
// incomplete one on.
func (v vector) advance(n int) vector {
	done := 0
	for done < len(v.remote) && n >= v.remote[done].Len {
		n -= v.remote[done].Len
		v.remote[done].Len, v.local[done].Len = 0, 0
		done++
	}
	v = v.from(done)
	if n > 0 && len(v.remote) > 0 {
		v.remote[0].Base += uintptr(n)
		v.remote[0].Len -= n
		v.local[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v.local[0].Base), n))
		v.local[0].Len -= uint64(n)
	}
	return v
}

// transfer reads all elements in order and leaves in v what could not be read. The error is that of
// the whole process, never ErrUnmapped.
//
// A call ends early at the first page that it cannot read, and returns only how far it came,
// neither the reason nor anything of the elements after. So the next call starts where the last one
// ended; if it reads nothing and returns ErrUnmapped, that proves the fault, and its first element
// is given up. Other reasons to end early (the kernel copies at most 2 GiB in one call) need no
// special care.
func (p *Process) transfer(v vector) error {
	if p.remote != nil {
		return p.transferRemote(v)
	}
	for len(v.remote) > 0 {
		if v.remote[0].Len == 0 {
			v = v.from(1)
			continue
		}
		n, err := p.readSome(v)
		switch {
		case errors.Is(err, ErrUnmapped):
			v = v.from(1)
		case err != nil:
			return err
		default:
			v = v.advance(n)
		}
	}
	return nil
}

// transferRemote is transfer by p.remote.
func (p *Process) transferRemote(v vector) error {
	p.requests = p.requests[:0]
	for i := range v.remote {
		if n := v.remote[i].Len; n > 0 {
			p.requests = append(p.requests,
				Request{Addr: uint64(v.remote[i].Base), Buf: unsafe.Slice(v.local[i].Base, n)})
		}
	}
	err := p.remote(p.requests)
	next := 0
	for i := range v.remote {
		if v.remote[i].Len > 0 {
			v.remote[i].Len -= p.requests[next].N
			next++
		}
	}
	clear(p.requests) // as the vector, they must not keep the caller's buffers alive
	return err
}

// readSome reads at least one byte of the first element and perhaps more, also of those after it.
// ErrUnmapped means that the first byte cannot be read.
func (p *Process) readSome(v vector) (int, error) {
	if p.mem == nil {
		n, err := p.readVM(p.pid, v)
		if errors.Is(err, ErrGone) {
			if tid := procdir.LivingThread(p.procRoot, p.pid); tid != p.pid {
				if n, err = p.readVM(tid, v); !procdir.HasThread(p.procRoot, p.pid, tid) {
					n, err = 0, ErrGone // the id may be that of another process meanwhile
				}
			}
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			return n, err
		}
		if err := p.openMem(); err != nil {
			return 0, err
		}
	}
	return p.readMem(unsafe.Slice(v.local[0].Base, v.local[0].Len), uint64(v.remote[0].Base))
}

// readVM is one call of process_vm_readv, with the id of a thread. The kernel copies element after
// element and, contrary to process_vm_readv(2), page after page within an element: "partial transfers
// apply at the granularity of iovec elements" does not hold (mm/process_vm_access.c). EPERM and
// ENOSYS are returned unwrapped.
func (p *Process) readVM(pid int, v vector) (int, error) {
	count := min(len(v.remote), maxElements)
	for {
		var n int
		var err error
		if p.alone {
			n, err = rawReadv(pid, v.local[:count], v.remote[:count])
		} else {
			n, err = unix.ProcessVMReadv(pid, v.local[:count], v.remote[:count], 0)
		}
		switch {
		case err == nil:
			if n == 0 {
				return 0, os.NewSyscallError("process_vm_readv", io.ErrNoProgress)
			}
			return n, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
			return 0, err
		case errors.Is(err, unix.EFAULT):
			return 0, ErrUnmapped
		case errors.Is(err, unix.ESRCH):
			return 0, ErrGone
		}
		return 0, os.NewSyscallError("process_vm_readv", err)
	}
}

// rawReadv is unix.ProcessVMReadv of which the Go runtime is not told. There must be elements.
func rawReadv(pid int, local []unix.Iovec, remote []unix.RemoteIovec) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local[0])),
		uintptr(len(local)), uintptr(unsafe.Pointer(&remote[0])), uintptr(len(remote)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// openMem opens /proc/PID/mem, through which p is read from then on. It is used where
// process_vm_readv is refused (by a seccomp filter, or a kernel built without it). Permission is
// checked here, once. It also reads pages that the process has made unreadable for itself
// (PROT_NONE), for which process_vm_readv returns EFAULT.
func (p *Process) openMem() error {
	if err := p.Close(); err != nil {
		return err
	}
	file, err := p.openFile("mem")
	if err == nil {
		p.mem = file
	}
	return err
}

// openFile opens a file of the process's directory in procfs.
func (p *Process) openFile(name string) (*os.File, error) {
	file, err := os.Open(path.Join(procdir.Dir(p.procRoot, p.pid), name))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return nil, ErrGone
	case errors.Is(err, fs.ErrPermission):
		return nil, ErrDenied
	}
	return file, err
}

// readMem reads at addr from /proc/PID/mem.
func (p *Process) readMem(buf []byte, addr uint64) (int, error) {
	if int64(addr) < 0 {
		// pread takes no such offset, and no process has memory there: the upper half of the
		// address space is the kernel's.
		return 0, ErrUnmapped
	}
	n, err := readAt(p.mem, buf, int64(addr))
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	// The file refers to the memory that the process had when it was opened, and is empty once that
	// is released: on exit, and on exec.
	if err := p.openMem(); err != nil {
		return 0, err
	}
	if n, err = readAt(p.mem, buf, int64(addr)); errors.Is(err, io.EOF) {
		err = ErrGone
	}
	return n, err
}

// readAt is one pread of /proc/PID/mem; io.EOF means that there is no memory behind it.
func readAt(mem *os.File, buf []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(int(mem.Fd()), buf, off)
		switch err {
		case nil:
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		case unix.EINTR:
			continue
		case unix.EIO, unix.EFAULT:
			return 0, ErrUnmapped
		}
		return 0, os.NewSyscallError("pread of /proc/PID/mem", err)
	}
}
