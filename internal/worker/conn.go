package worker

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// MaxMessageBytes bounds a message in either direction.
const MaxMessageBytes = 128 << 10

// channelBufferBytes lets a message of MaxMessageBytes pass whatever net.core.wmem_default is; it is
// the default net.core.wmem_max.
const channelBufferBytes = 212992

// MaxDescriptors bounds the descriptors that come with a message to a worker; the kernel's bound is
// 253 (SCM_MAX_FD).
const MaxDescriptors = 64

// Conn is a worker's channel to the agent: a SOCK_SEQPACKET socket, on which each side sends whole
// messages. One goroutine at a time may receive, and one may send.
//
// A worker that waits for a message does so without a system call that blocks: that would wake three
// threads of the Go runtime for each message.
type Conn struct {
	fd     int
	socket *socket
	buffer []byte
}

// newConn takes over a descriptor, which must be one that blocks.
func newConn(fd int) (*Conn, error) {
	socket, err := newSocket(fd)
	if err != nil {
		return nil, err
	}
	return &Conn{fd: fd, socket: socket, buffer: make([]byte, MaxMessageBytes+1)}, nil
}

// Receive waits for a message, which is valid until the next call. io.EOF means that the agent has
// closed the channel.
func (c *Conn) Receive() ([]byte, error) {
	n, _, _, err := c.socket.receive(c.buffer, nil)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	case n > MaxMessageBytes: // it may have been cut off
		return nil, unix.EMSGSIZE
	}
	return c.buffer[:n], nil
}

// ReceiveDescriptors is Receive for a message that comes with up to MaxDescriptors descriptors, which
// the caller must close. They are close-on-exec.
func (c *Conn) ReceiveDescriptors() (message []byte, fds []int, err error) {
	control := make([]byte, unix.CmsgSpace(4*MaxDescriptors))
	n, controlLen, flags, err := c.socket.receive(c.buffer, control)
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return nil, nil, io.EOF
	}
	fds, err = receivedDescriptors(control[:controlLen])
	if err == nil && (n > MaxMessageBytes || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0) {
		err = unix.EMSGSIZE
	}
	if err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	return c.buffer[:n], fds, nil
}

// receivedDescriptors returns the descriptors of ancillary data.
func receivedDescriptors(control []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Send sends a message, and with it a descriptor unless that is negative. The caller still has to
// close the descriptor.
func (c *Conn) Send(message []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, err := call(unix.SYS_SENDMSG, uintptr(c.fd), newHeader(message, rights), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	if !errors.Is(err, unix.EAGAIN) {
		return err
	}
	return uninterrupted(func() error { return unix.Sendmsg(c.fd, message, rights, nil, unix.MSG_NOSIGNAL) })
}
