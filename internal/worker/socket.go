package worker

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is an end of a channel, on which goroutines wait without a thread. It is not package net's, which
// takes longer to initialize than a worker to start, see Early.
//
// The runtime does not poll it, but an epoll that has messages alone: it would be woken, too, whenever a worker has
// taken a message, since there is room for more then. The system calls of this file do not block, and are raw: an
// ordinary one wakes the monitor thread of the Go runtime, which then looks for a while whether the process is idle
// again. So does a timer, even one that is stopped.
type socket struct {
	file     *os.File
	raw      syscall.RawConn
	epoll    *os.File
	messages syscall.RawConn // of epoll
}

// newSocket takes over a descriptor, which must be one that blocks.
func newSocket(fd int) (*socket, error) {
	s := &socket{file: os.NewFile(uintptr(fd), "worker")}
	err := s.watch(fd)
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err == nil {
		s.messages, err = s.epoll.SyscallConn()
	}
	if err == nil {
		err = s.epoll.SetDeadline(time.Time{}) // which fails if the runtime does not poll it
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// watch opens epoll.
func (s *socket) watch(fd int) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	err = errors.Join(unix.SetNonblock(epoll, true),
		unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP}))
	s.epoll = os.NewFile(uintptr(epoll), "messages")
	return err
}

// Close closes it. Nobody may wait any more.
func (s *socket) Close() error {
	if s.epoll != nil {
		s.epoll.Close()
	}
	return s.file.Close()
}

// SetReadDeadline sets until when receive waits, also one that waits already.
func (s *socket) SetReadDeadline(at time.Time) error { return s.epoll.SetReadDeadline(at) }

// send sends a message, waiting for room until the time is over.
func (s *socket) send(message, rights []byte, timeout time.Duration) (err error) {
	header := newHeader(message, rights)
	controlErr := s.raw.Control(func(fd uintptr) {
		_, err = call(unix.SYS_SENDMSG, fd, header, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		for until := time.Now().Add(timeout); errors.Is(err, unix.EAGAIN); {
			left := time.Until(until)
			if left <= 0 {
				err = os.ErrDeadlineExceeded
				return
			}
			room := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			_, _ = unix.Poll(room, int(left.Milliseconds())+1)
			_, err = call(unix.SYS_SENDMSG, fd, header, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		}
	})
	return errors.Join(controlErr, err)
}

// receive waits for a message, whose size is 0 at the end. Descriptors that come with it are close-on-exec.
func (s *socket) receive(buffer, control []byte) (n, controlBytes, flags int, err error) {
	header := newHeader(buffer, control)
	waitErr := s.messages.Read(func(uintptr) bool {
		controlErr := s.raw.Control(func(fd uintptr) {
			n, err = call(unix.SYS_RECVMSG, fd, header, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		})
		if controlErr != nil {
			err = controlErr
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	if waitErr != nil {
		err = waitErr
	}
	if err != nil {
		return 0, 0, 0, err
	}
	return n, int(header.Controllen), int(header.Flags), nil
}

// newHeader returns what sendmsg and recvmsg take. There may be no control.
func newHeader(message, control []byte) *unix.Msghdr {
	iov := &unix.Iovec{Base: unsafe.SliceData(message)}
	iov.SetLen(len(message))
	header := &unix.Msghdr{Iov: iov}
	header.SetIovlen(1)
	if len(control) > 0 {
		header.Control = unsafe.SliceData(control)
		header.SetControllen(len(control))
	}
	return header
}

// call makes a raw system call for a message.
func call(number, fd uintptr, header *unix.Msghdr, flags uintptr) (n int, err error) {
	err = uninterrupted(func() error {
		size, _, errno := unix.RawSyscall(number, fd, uintptr(unsafe.Pointer(header)), flags)
		if n = int(size); errno != 0 {
			return errno
		}
		return nil
	})
	return n, err
}

// uninterrupted repeats a system call that a signal has interrupted.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
