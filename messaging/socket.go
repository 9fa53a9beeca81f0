package messaging

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is a connection to one process's socket, made by Dial and closed by the Sender that
// it is given to. Every process needs its own: the kernel charges unread datagrams to the
// sending socket, so that a shared one would let a few stalled receivers silence all others.
type Socket struct {
	file     *os.File
	raw      syscall.RawConn
	control  []byte // see Credentials.control
	identity Identity
}

// Identity is that of the socket file at the time of Dial.
func (s *Socket) Identity() Identity { return s.identity }

// Close ends the connection, also under a goroutine that waits for room, and returns when that
// one has left. A Sender closes the socket that it was given.
func (s *Socket) Close() error { return s.file.Close() }

// send hands one datagram to the kernel and never waits. It is for use within s.raw.Write.
func (s *Socket) send(fd uintptr, message []byte) error {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if s.control == nil {
		return unix.Send(int(fd), message, flags)
	}
	_, err := unix.SendmsgN(int(fd), message, s.control, nil, flags)
	return err
}

// interrupt makes a goroutine that waits for room leave with os.ErrDeadlineExceeded, and so
// does every further wait until resume.
func (s *Socket) interrupt() { s.file.SetWriteDeadline(time.Unix(1, 0)) }

func (s *Socket) resume() { s.file.SetWriteDeadline(time.Time{}) }

// verdict is what became of a message that was given to the kernel. Only a message that was
// sent is in the receiver's queue: with every other verdict the kernel kept nothing of it.
type verdict uint8

const (
	sent    verdict = iota
	full            // the receiver's queue is: there will be room
	again           // interrupted by a signal
	busy            // the kernel lacks memory at the moment
	refused         // this message cannot be sent, another may
	gone            // the connection is of no use any more
)

// classify reads the error of sendmsg on a connected Unix datagram socket. What is not known to
// be about the message or the moment is about the connection: the owner then looks again at the
// process, which helps or tells more.
func classify(err error) verdict {
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
