package receiver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"correlator/internal/host/connlimit"
)

// listener is a net.Listener with a limited number of connections. Accept fails only after Close.
type listener struct {
	*connlimit.Listener
	conns *connlimit.Table
}

func newListener(l net.Listener) *listener {
	conns := connlimit.New(maxConnections)
	return &listener{connlimit.NewListener(l, conns), conns}
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
// open streams, and so keeps their buffers until it expires.
func (l *listener) setState(c net.Conn, state http.ConnState) {
	if own := ownConn(c); own != nil {
		own.setIdle(state == http.StateIdle)
	}
}

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// withConn is a hook of http.Server.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if own := ownConn(c); own != nil {
		return context.WithValue(ctx, connKey{}, own.Conn)
	}
	return ctx
}

// connOf returns the connection of a request.
func connOf(q *http.Request) *connlimit.Conn { return q.Context().Value(connKey{}).(*connlimit.Conn) }

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

	mu     sync.Mutex
	closed bool
	timer  *time.Timer // while it is idle
}

func (c *conn) Read(b []byte) (int, error) {
	c.writing <- struct{}{} // Write ends at the latest when its deadline is over, or with Close
	<-c.writing
	return c.Conn.Read(b)
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
