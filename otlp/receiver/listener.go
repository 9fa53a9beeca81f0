package receiver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"correlator/internal/host/connlimit"
)

// listener is a net.Listener with a limited number of connections. Accept fails only after Close.
type listener struct {
	*connlimit.Listener
	conns     *connlimit.Table
	malformed func()      // is called for what net/http refuses by itself
	tls       *tls.Config // nil: without
}

func newListener(l net.Listener, malformed func()) *listener {
	conns := connlimit.New(maxConnections)
	return &listener{connlimit.NewListener(l, conns), conns, malformed, nil}
}

// Accept makes room for a connection beyond the limit, or closes it at once. With TLS, net/http is not told of that: so
// what it reads can be followed, see frames.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	own := &conn{Conn: c, writing: make(chan struct{}, 1), malformed: l.malformed}
	if l.tls != nil {
		own.tls = tls.Server(own, l.tls)
		return &secureConn{Conn: own.tls, own: own}, nil
	}
	return own, nil
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
		own.await()
		own.active = true
	case state == http.StateClosed && !own.active && own.heard.Load() && !own.isSecure():
		l.malformed()
	case isIdle || state == http.StateClosed:
		own.giveUp(isIdle, l.malformed)
	}
}

// countError is a hook of http.Server. It counts requests by HTTP/2 that net/http refuses by themselves and of which
// setState is not told.
func (l *listener) countError(name string) {
	if strings.Contains(name, "over_max_streams") {
		l.malformed()
	}
}

// await notes that a request has begun, for which the handler is to be called.
func (c *conn) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unread = true
}

// begin notes that a call of the handler begins.
func (c *conn) begin(q *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.givenUp == 0 || q.Context().Err() == nil {
		c.unread = false
	} else if c.givenUp--; c.givenUp == 0 { // another request may be unread already
		c.overdue.Stop()
	}
}

// giveUp notes that the request has ended, and calls malformed if there was no call of the handler, nor will be one: by
// HTTP/2 a client can end a request before its call begins.
func (c *conn) giveUp(isIdle bool, malformed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unread := c.unread
	c.unread = false
	switch {
	case !unread:
	case !c.http2 && isIdle:
		c.http2 = true // it is active, then idle, before the first request
	case !c.http2:
		malformed()
	default:
		if c.givenUp++; c.givenUp > 1 {
			return // they are counted together
		}
		c.overdue = time.AfterFunc(beginTimeout, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for ; c.givenUp > 0; c.givenUp-- {
				malformed()
			}
		})
	}
}

// isSecure reports whether the handshake of a connection has ended as it should.
func (c *conn) isSecure() bool { return c.tls != nil && c.tls.ConnectionState().HandshakeComplete }

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
	if secure, ok := c.(*secureConn); ok {
		return secure.own
	}
	own, _ := c.(*conn)
	return own
}

// conn is a connection that is closed when it has been idle for idleTimeout. While a write waits for
// its client to read, nothing more is read of that: net/http would queue thousands of responses for
// it.
type conn struct {
	*connlimit.Conn
	tls     *tls.Conn     // above it; nil: none
	writing chan struct{} // full during Write
	heard   atomic.Bool   // something was read of it
	idled   atomic.Bool   // it was closed for having been idle
	frames  frames        // what net/http has read of it, for Read alone

	malformed func()
	active    bool // it was active before, see setState

	mu      sync.Mutex
	closed  bool
	timer   *time.Timer // while it is idle
	unread  bool        // it is active, and the handler has not been called since
	http2   bool        // and has been idle before that call
	givenUp int         // requests without a call of the handler, as yet
	overdue *time.Timer // counts them, if there are any
}

func (c *conn) Read(b []byte) (int, error) {
	c.writing <- struct{}{} // Write ends at the latest when its deadline is over, or with Close
	<-c.writing
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	if c.tls == nil {
		c.follow(b[:n], err)
	}
	return n, err
}

// follow notes what net/http has read, and counts headers that end with the connection, of which that says nothing.
func (c *conn) follow(read []byte, err error) {
	c.frames.read(read)
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		c.idled.Load()
	if err != nil && ended && c.frames.endHeaders() {
		c.malformed()
	}
}

// secureConn is a conn with TLS.
type secureConn struct {
	net.Conn // *tls.Conn, which net/http need not know
	own      *conn
	told     bool // that it is TLS, for Read alone
}

func (c *secureConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.own.follow(b[:n], err)
	other, ok := errors.AsType[tls.RecordHeaderError](err)
	if ok && other.Conn != nil && isHTTP(other.RecordHeader) && !c.told {
		c.told = true // net/http reads again
		_, _ = io.WriteString(other.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis is a port for HTTPS.\n")
	}
	return n, err
}

// isHTTP reports whether the first bytes of a client are those of HTTP rather than of TLS.
func isHTTP(first [5]byte) bool {
	return slices.Contains([]string{"POST ", "GET /", "HEAD ", "PUT /", "PRI *", "OPTIO"}, string(first[:]))
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
		c.timer = time.AfterFunc(idleTimeout, func() {
			c.idled.Store(true)
			c.Close()
		})
	}
}

func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.setIdle(false)
	return c.Conn.Close()
}
