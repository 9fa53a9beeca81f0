package receiver

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/connlimit"
	"correlator/internal/host/sockfile"
)

const (
	// backlogInterval is the pause between two looks at the backlog while the listener is closed.
	backlogInterval = time.Millisecond
	// backlogTimeout is for a listener that cannot accept, such as for lack of descriptors.
	backlogTimeout = time.Second
)

// listener accepts connections. A client that finds the backlog full reports an error to its
// application at once, so nothing else is done between two calls of accept: a connection is added to
// the table, and its goroutine started.
type listener struct {
	*sockfile.Listener
	conns *connlimit.Table

	accepting *connlimit.Listener
}

// listen binds the socket. The net package passes net.core.somaxconn to listen(2), which is the most
// that the kernel grants.
func listen(c *Config) (*listener, error) {
	gid, err := c.gid()
	if err != nil {
		return nil, err
	}
	l, err := sockfile.Listen(c.Socket, c.SocketMode, gid)
	if err != nil {
		return nil, err
	}
	conns := connlimit.New(c.MaxConnections)
	return &listener{l, conns, connlimit.NewListener(l, conns)}, nil
}

// close removes the file, so that nobody connects any more, and ends accepting when it has accepted the
// connections in the backlog, which takes no time unless it fails: what clients have written to
// those is still read.
func (l *listener) close(ctx context.Context) {
	l.Remove() // before the socket is closed: until then the path belongs to it
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	for l.hasBacklog() && ctx.Err() == nil {
		time.Sleep(backlogInterval)
	}
	l.accepting.Close()
}

// hasBacklog reports whether there are connections that are not accepted yet.
func (l *listener) hasBacklog() (waiting bool) {
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails after Close
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		waiting = err == nil && n > 0
	})
	return waiting
}

// rawConn returns the descriptor of a connection.
func rawConn(c *connlimit.Conn) (syscall.RawConn, error) { return c.Conn.(*net.UnixConn).SyscallConn() }
