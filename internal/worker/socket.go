package worker

import (
	"errors"
	"os"
	"syscall"
	"time"

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

// send sends a message, waiting for room.
func (s *socket) send(message, rights []byte) error {
	var err error
	waitErr := s.raw.Write(func(fd uintptr) bool {
		err = uninterrupted(func() error {
			return unix.Sendmsg(int(fd), message, rights, nil, unix.MSG_NOSIGNAL)
		})
		return !errors.Is(err, unix.EAGAIN)
	})
	if waitErr != nil {
		return waitErr
	}
	return err
}

// receive waits for a message, whose size is 0 at the end. Descriptors that come with it are close-on-exec.
func (s *socket) receive(buffer, control []byte) (n, controlBytes, flags int, err error) {
	waitErr := s.raw.Read(func(fd uintptr) bool {
		err = uninterrupted(func() error {
			n, controlBytes, flags, _, err = unix.Recvmsg(int(fd), buffer, control, unix.MSG_CMSG_CLOEXEC)
			return err
		})
		return !errors.Is(err, unix.EAGAIN)
	})
	if waitErr != nil {
		return 0, 0, 0, waitErr
	}
	return n, controlBytes, flags, err
}

// uninterrupted repeats a system call that a signal has interrupted.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
