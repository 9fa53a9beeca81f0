package messaging

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a connection to one process's socket, made by Dial, in this process or in another, and
// closed by the Sender that it is passed to. Every process needs its own: the kernel charges unread
// datagrams to the sending socket, so that with a shared one a few stalled receivers would silence
// all others.
type Socket struct {
	identity SocketID
	control  []byte // see Credentials.control

	mu      sync.Mutex // held while fd is used, so that its number is not reused meanwhile
	fd      int        // -1 when closed
	watched bool       // added to the epoll instance of a Poller, armed or not
}

// NewSocket returns the Socket of a descriptor that Release returned in another process, which had
// dialed with these credentials. Messages show sender.
func NewSocket(fd int, identity SocketID, creds Credentials, sender SenderPID) *Socket {
	return &Socket{fd: fd, identity: identity, control: creds.control(sender)}
}

// Release returns the descriptor, which is the caller's from now on. The Socket is closed.
func (s *Socket) Release() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd := s.fd
	s.fd = -1
	return fd
}

// Identity returns that of the socket file at the time of Dial.
func (s *Socket) Identity() SocketID { return s.identity }

// Close ends the connection after waiting for a message that is being handed to the kernel. A
// Sender closes the socket that was passed to it.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd) // which removes it from epoll
}

// send hands one datagram to the kernel, without waiting for room. Quick is by a raw system call: an ordinary one wakes
// the monitor thread of the Go runtime, and that costs more; but during a raw one, the runtime can neither collect
// garbage nor run anything else on this CPU.
func (s *Socket) send(message []byte, quick bool) error {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	if quick {
		return sendRaw(s.fd, message, s.control, flags)
	}
	if s.control == nil {
		return unix.Send(s.fd, message, flags)
	}
	_, err := unix.SendmsgN(s.fd, message, s.control, nil, flags)
	return err
}

// sendRaw is sendmsg as a raw system call. Neither the message is empty, nor a control that is not nil.
func sendRaw(fd int, message, control []byte, flags uintptr) error {
	iov := unix.Iovec{Base: unsafe.SliceData(message)}
	iov.SetLen(len(message))
	header := unix.Msghdr{Iov: &iov}
	header.SetIovlen(1)
	if control != nil {
		header.Control = unsafe.SliceData(control)
		header.SetControllen(len(control))
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&header)), flags)
	if errno != 0 {
		return errno
	}
	return nil
}

// arm asks epoll for one event when there is room, which may be now. All calls are for the same
// epoll.
func (s *Socket) arm(epoll int, token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	op := unix.EPOLL_CTL_MOD
	if !s.watched {
		op = unix.EPOLL_CTL_ADD
	}
	if err := unix.EpollCtl(epoll, op, s.fd, armedEvent(token)); err != nil {
		return err
	}
	s.watched = true
	return nil
}

// sendResult is the result of handing a message to the kernel. With every result but sent, the
// kernel kept nothing of it.
type sendResult uint8

const (
	sent    sendResult = iota
	full               // the receiver's queue is full: there will be room
	again              // interrupted by a signal
	busy               // the kernel lacks memory at the moment
	refused            // this message cannot be sent, another may
	gone               // the connection is unusable
)

// classify interprets the error of sendmsg on a connected Unix datagram socket. An error that is
// not known to be about the message, or temporary, is about the connection: the owner then probes
// the process again, which solves or explains it.
func classify(err error) sendResult {
	if err == nil {
		return sent
	}
	var errno unix.Errno // stays 0 for os.ErrClosed
	errors.As(err, &errno)
	switch errno {
	case unix.EAGAIN:
		return full
	case unix.EINTR:
		return again
	case unix.ENOBUFS, unix.ENOMEM:
		return busy
	case unix.EMSGSIZE:
		return refused
	default:
		// ECONNREFUSED: the receiver closed its socket; ENOTCONN: it did so before the last
		// message; ECONNRESET: it connected itself elsewhere with our messages unread; EPERM: it
		// did so and takes no others; EPIPE: it shut down reading; EACCES: a security module.
		return gone
	}
}
