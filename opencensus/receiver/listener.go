package receiver

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/connlimit"
	"correlator/internal/host/sockfile"
)

const (
	// Delays after an error of accept, such as a lack of descriptors or memory, which may pass at
	// any time.
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
	// backlogInterval is the pause between two looks at the backlog while the listener is closed.
	backlogInterval = time.Millisecond
	// backlogTimeout is for a listener that cannot accept, such as for lack of descriptors.
	backlogTimeout = time.Second
)

// listener accepts connections. A client that finds the backlog full reports an error to its
// application at once, so nothing else is done between two calls of accept: a connection is added to
// the table, and its goroutine started.
type listener struct {
	*net.UnixListener
	file  *sockfile.File
	conns *connlimit.Table

	closing chan struct{}

	mu       sync.Mutex
	accepted uint64
	failed   failures
}

// failures are those of accept.
type failures struct {
	count uint64
	last  string
	at    time.Time // of the last one
}

// listen binds the socket. The net package passes net.core.somaxconn to listen(2), which is the most
// that the kernel grants.
func listen(c *Config) (*listener, error) {
	gid, err := c.gid()
	if err != nil {
		return nil, err
	}
	l := &listener{conns: connlimit.New(c.MaxConnections), closing: make(chan struct{})}
	bind := func(config net.ListenConfig, path string) error {
		raw, err := config.Listen(context.Background(), "unix", path)
		if err != nil {
			return err
		}
		l.UnixListener = raw.(*net.UnixListener)
		l.SetUnlinkOnClose(false) // by then the path may belong to another socket
		return nil
	}
	if l.file, err = sockfile.BindGroup("unix", c.Socket, c.SocketMode, gid, bind); err != nil {
		if l.UnixListener != nil {
			l.UnixListener.Close()
		}
		return nil, err
	}
	return l, nil
}

// serve calls start with each connection until close.
func (l *listener) serve(start func(*connlimit.Conn)) {
	delay := minAcceptDelay
	for {
		raw, err := l.AcceptUnix()
		if err == nil {
			delay = minAcceptDelay
			l.count(nil)
			if c := l.conns.Add(raw); c != nil {
				start(c)
			}
			continue
		}
		select {
		case <-l.closing:
			return
		default:
		}
		l.count(err)
		select {
		case <-time.After(delay):
			delay = min(2*delay, maxAcceptDelay)
		case <-l.closing:
			return
		}
	}
}

// count counts a connection, or an error because of which a client could not connect.
func (l *listener) count(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.accepted++
	} else {
		l.failed = failures{l.failed.count + 1, err.Error(), time.Now()}
	}
}

func (l *listener) counts() (accepted uint64, failed failures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted, l.failed
}

// close removes the file, so that nobody connects any more, and ends serve when it has accepted the
// connections in the backlog, which takes no time unless it fails: what clients have written to
// those is still read.
func (l *listener) close(ctx context.Context) {
	l.file.Remove() // before the socket is closed: until then the path belongs to it
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	for l.hasBacklog() && ctx.Err() == nil {
		time.Sleep(backlogInterval)
	}
	close(l.closing)
	l.Close()
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
