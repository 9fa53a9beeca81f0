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

// Conn is a worker's channel to the agent: a SOCK_SEQPACKET socket, on which each side sends whole
// messages. One goroutine at a time may receive, and one may send.
type Conn struct {
	fd     int
	buffer []byte
}

// Receive waits for a message, which is valid until the next call. io.EOF means that the agent has
// closed the channel.
func (c *Conn) Receive() ([]byte, error) {
	if c.buffer == nil {
		c.buffer = make([]byte, MaxMessageBytes)
	}
	for {
		n, err := unix.Read(c.fd, c.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.EOF
		default:
			return c.buffer[:n], nil
		}
	}
}

// Send sends a message, and with it a descriptor unless that is negative. The caller still has to
// close the descriptor.
func (c *Conn) Send(message []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for {
		err := unix.Sendmsg(c.fd, message, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
