package receiver

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"correlator/internal/host/connlimit"
)

// listener is a net.Listener with a limited number of connections. Accept fails only after Close.
type listener struct {
	*connlimit.Listener
	conns     *connlimit.Table
	malformed func() // is called for what net/http refuses by itself
}

func newListener(l net.Listener, malformed func()) *listener {
	conns := connlimit.New(maxConnections)
	return &listener{connlimit.NewListener(l, conns), conns, malformed}
}

// Accept makes room for a connection beyond the limit, or closes it at once.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, writing: make(chan struct{}, 1)}, nil
}

// setState is a hook of http.Server. It closes connections that have been idle for idleTimeout. The
// server's own IdleTimeout is not used: Go 1.26 restarts that timer when a connection ends with
// open streams, and so keeps their buffers until it expires. A connection that was active without a call
// of the handler had no request that net/http could read; nor had one that never was, and sent a few bytes, or
// began a handshake of TLS.
func (l *listener) setState(c net.Conn, state http.ConnState) {
	own := ownConn(c)
	if own == nil {
		return
	}
	isIdle := state == http.StateIdle
	own.setIdle(isIdle)
	switch {
	case state == http.StateActive:
		own.unread.Store(true)
		own.active = true
	case state == http.StateClosed && !own.active && own.heard.Load() && !isSecure(c):
		l.malformed()
	case (isIdle || state == http.StateClosed) && own.unread.Swap(false) && (own.begun || !isIdle):
		l.malformed()
	}
	own.begun = own.begun || isIdle // HTTP/2 is active, then idle, before the first request
}

// isSecure reports whether the handshake of a connection has ended as it should.
func isSecure(c net.Conn) bool {
	secure, ok := c.(*tls.Conn)
	return ok && secure.ConnectionState().HandshakeComplete
}

// Write counts connections that net/http gives up, of which it tells a log alone: of HTTP/2 with what is none, or
// too many headers.
func (l *listener) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http2: server connection error")) {
		l.malformed()
	}
	return len(line), nil
}

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// withConn is a hook of http.Server.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if own := ownConn(c); own != nil {
		return context.WithValue(ctx, connKey{}, own)
	}
	return ctx
}

// connOf returns the connection of a request.
func connOf(q *http.Request) *conn { return q.Context().Value(connKey{}).(*conn) }

// ownConn returns the connection below TLS, or nil if it is not one that Accept returned.
func ownConn(c net.Conn) *conn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

// conn is a connection that is closed when it has been idle for idleTimeout. While a write waits for
// its client to read, nothing more is read of that: net/http would queue thousands of responses for
// it.
type conn struct {
	*connlimit.Conn
	writing chan struct{} // full during Write
	unread  atomic.Bool   // it is active, and the handler has not been called since
	heard   atomic.Bool   // something was read of it
	active  bool          // it was active before, see setState
	begun   bool          // it was idle before, see setState

	mu     sync.Mutex
	closed bool
	timer  *time.Timer // while it is idle
}

func (c *conn) Read(b []byte) (int, error) {
	c.writing <- struct{}{} // Write ends at the latest when its deadline is over, or with Close
	<-c.writing
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	return c.Conn.Write(b)
}

func (c *conn) setIdle(idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if idle && !c.closed {
		c.timer = time.AfterFunc(idleTimeout, func() { c.Close() })
	}
}

func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.setIdle(false)
	return c.Conn.Close()
}
