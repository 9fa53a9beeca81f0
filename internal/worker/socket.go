package worker

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is the agent's end of a channel, on which goroutines wait without a thread. It is not package net's, which
// takes longer to initialize than a worker to start, see Early.
type socket struct {
	*os.File
	raw syscall.RawConn
}

// newSocket takes over a descriptor.
func newSocket(fd int) (*socket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	s := &socket{File: os.NewFile(uintptr(fd), "worker")}
	var err error
	if s.raw, err = s.SyscallConn(); err == nil {
		err = s.SetDeadline(time.Time{}) // which fails if the runtime does not poll it
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// The system calls of this file do not block, and are raw: an ordinary one wakes the monitor thread of the Go runtime,
// which then looks for a while whether the process is idle again. So does a timer, even one that is stopped.

// send sends a message, waiting for room until the time is over.
func (s *socket) send(message, rights []byte, timeout time.Duration) error {
	var err error
	try := func(fd uintptr) bool {
		_, err = call(unix.SYS_SENDMSG, fd, newHeader(message, rights), unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	}
	sent := false
	waitErr := s.raw.Write(func(fd uintptr) bool {
		sent = try(fd)
		return true
	})
	if waitErr == nil && !sent { // it has to wait
		if waitErr = s.SetWriteDeadline(time.Now().Add(timeout)); waitErr == nil {
			waitErr = errors.Join(s.raw.Write(try), s.SetWriteDeadline(time.Time{}))
		}
	}
	if waitErr != nil {
		return waitErr
	}
	return err
}

// receive waits for a message, whose size is 0 at the end. Descriptors that come with it are close-on-exec.
func (s *socket) receive(buffer, control []byte) (n, controlBytes, flags int, err error) {
	header := newHeader(buffer, control)
	waitErr := s.raw.Read(func(fd uintptr) bool {
		n, err = call(unix.SYS_RECVMSG, fd, header, unix.MSG_CMSG_CLOEXEC)
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
