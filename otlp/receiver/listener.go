package receiver

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// Delays after an error of accept, such as a lack of descriptors or memory, which may pass at
	// any time.
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

// listener is a net.Listener with a limited number of connections. Accept fails only after Close.
type listener struct {
	net.Listener
	closing chan struct{}
	once    sync.Once // closes it

	mu      sync.Mutex
	conns   map[*conn]struct{}
	counted connCounts // except open
}

// connCounts counts connections.
type connCounts struct {
	open    int
	refused uint64 // because of the limit
	failed  uint64 // errors of accept and of reading certificates
	err     string // the last one
	errAt   time.Time
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, closing: make(chan struct{}), conns: make(map[*conn]struct{})}
}

// Accept closes connections beyond the limit at once, so that their clients need not wait for a
// timeout.
func (l *listener) Accept() (net.Conn, error) {
	delay := minAcceptDelay
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			delay = minAcceptDelay
			if c := l.add(raw); c != nil {
				return c, nil
			}
			raw.Close()
			continue
		}
		if l.isClosing() {
			return nil, net.ErrClosed
		}
		l.report(err)
		select {
		case <-time.After(delay):
			delay = min(2*delay, maxAcceptDelay)
		case <-l.closing:
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// add returns nil if the limit is reached.
func (l *listener) add(raw net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosing() {
		return nil
	}
	if len(l.conns) >= maxConnections {
		l.counted.refused++
		return nil
	}
	c := &conn{Conn: raw, listener: l}
	l.conns[c] = struct{}{}
	return c
}

// report records an error because of which a client could not connect.
func (l *listener) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counted.failed++
	l.counted.err, l.counted.errAt = err.Error(), time.Now()
}

func (l *listener) counts() connCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counted
	c.open = len(l.conns)
	return c
}

// Close ends Accept. Connections stay open.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closing) })
	return l.Listener.Close()
}

// setState is a hook of http.Server. It closes connections that have been idle for idleTimeout. The
// server's own IdleTimeout is not used: Go 1.26 restarts that timer when a connection ends with
// open streams, and so keeps their buffers until it expires.
func (l *listener) setState(c net.Conn, state http.ConnState) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	idle, ok := c.(*conn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if idle.timer != nil {
		idle.timer.Stop()
		idle.timer = nil
	}
	if _, open := l.conns[idle]; open && state == http.StateIdle {
		idle.timer = time.AfterFunc(idleTimeout, func() { idle.Close() })
	}
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	listener *listener
	timer    *time.Timer // while the connection is idle; guarded by listener.mu
}

func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	delete(l.conns, c)
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	l.mu.Unlock()
	return c.Conn.Close()
}
