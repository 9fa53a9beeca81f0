package try

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are system calls of which Go's scheduler is not told, so that a thread blocks in nothing else.

//go:nosplit
func clock(id uintptr) time.Duration {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Sec)*time.Second + time.Duration(t.Nsec)
}

// delays is the kernel's clock of how long the current thread has waited for a CPU, an open file.
type delays int

// openDelays opens the clock. Where the kernel has none, it stands still.
func openDelays() (delays, error) {
	fd, err := unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return -1, nil
	}
	return delays(fd), err
}

func (d delays) read() (delay time.Duration) {
	var b [64]byte
	n, _, err := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(d), uintptr(unsafe.Pointer(&b)), uintptr(len(b)), 0, 0, 0)
	if err == 0 {
		_, _ = fmt.Sscanf(string(b[:n]), "%d %d", new(uint64), &delay)
	}
	return delay
}

func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	for {
		_, _, err := unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), uintptr(unsafe.Pointer(&t)), 0)
		if err != unix.EINTR {
			return
		}
	}
}

// Operations of futex(2), in a process's own memory.
const (
	futexWaitPrivate = 128
	futexWakePrivate = 129
)

func futex(word *uint32, op int, value uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(value), 0, 0, 0)
}

// transfer reads or writes one byte.
func transfer(call uintptr, fd int) error {
	var b [1]byte
	for {
		switch n, _, err := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1); {
		case err == unix.EINTR:
		case err != 0:
			return err
		case n == 0:
			return unix.EPIPE
		default:
			return nil
		}
	}
}

func read(fd int) error  { return transfer(unix.SYS_READ, fd) }
func write(fd int) error { return transfer(unix.SYS_WRITE, fd) }

func (p *pipe) send() error    { return write(p[1]) }
func (p *pipe) receive() error { return read(p[0]) }

// await receives once it has polled, as servers do.
func (p *pipe) await() error {
	fds := unix.PollFd{Fd: int32(p[0]), Events: unix.POLLIN}
	for {
		_, _, err := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, 0, 0, 0, 0)
		switch err {
		case unix.EINTR:
		case 0:
			return p.receive()
		default:
			return err
		}
	}
}
