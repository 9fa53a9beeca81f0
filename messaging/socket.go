package messaging

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a connection to one process's socket, made by Dial and closed by the Sender that
// it is given to. Every process needs its own: the kernel charges unread datagrams to the
// sending socket, so that a shared one would let a few stalled receivers silence all others.
type Socket struct {
	identity SocketID
	control  []byte // see Credentials.control

	mu      sync.Mutex // held over what is done with fd, so that its number is nobody else's meanwhile
	fd      int        // -1 when closed
	watched bool       // the epoll instance of a Poller knows it, armed or not
}

// Identity is that of the socket file at the time of Dial.
func (s *Socket) Identity() SocketID { return s.identity }

// Close ends the connection, and waits for a message that is just being handed to the kernel. A
// Sender closes the socket that it was given.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd) // epoll forgets it with that
}

// send hands one datagram to the kernel and never waits for room.
func (s *Socket) send(message []byte) error {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	if s.control == nil {
		// Raw, because it cannot block: an ordinary system call wakes the runtime's monitor thread.
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(message))),
			uintptr(len(message)), flags, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
	_, err := unix.SendmsgN(s.fd, message, s.control, nil, flags)
	return err
}

// arm has epoll tell once of room, at once if there is some. All calls are for the same epoll.
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

// sendResult is what became of a message that was given to the kernel. Only a message that was
// sent is in the receiver's queue: with every other sendResult the kernel kept nothing of it.
type sendResult uint8

const (
	sent    sendResult = iota
	full               // the receiver's queue is: there will be room
	again              // interrupted by a signal
	busy               // the kernel lacks memory at the moment
	refused            // this message cannot be sent, another may
	gone               // the connection is of no use any more
)

// classify reads the error of sendmsg on a connected Unix datagram socket. What is not known to
// be about the message or the moment is about the connection: the owner then looks again at the
// process, which helps or tells more.
func classify(err error) sendResult {
	switch err {
	case nil:
		return sent
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
