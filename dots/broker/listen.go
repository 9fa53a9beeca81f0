package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"correlator/dots/endpoint"
	"correlator/dots/frame"
	"correlator/internal/host/connlimit"
)

// ListenURI listens at an endpoint, as package endpoint describes them, and serves it until
// Shutdown. It returns where it listens.
func (b *Broker) ListenURI(uri string) (net.Addr, error) {
	e, err := endpoint.Parse(uri)
	if err != nil {
		return nil, err
	}
	l, err := e.Listen(context.Background(), b.options.SocketMode)
	if err != nil {
		return nil, err
	}
	if !b.begin() {
		_ = l.Close()
		return nil, ErrClosed
	}
	go func() {
		defer b.running.Done()
		if e.WebSocket() {
			_ = b.ServeWebSocket(l)
		} else {
			_ = b.Serve(l, e.Format())
		}
	}()
	return l.Addr(), nil
}

// begin counts a goroutine that Shutdown waits for, unless the broker is shut down.
func (b *Broker) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Add(1)
	return true
}

// track registers what Shutdown closes.
func (b *Broker) track(l io.Closer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.listeners[l] = struct{}{}
	}
	return !b.closed
}

func (b *Broker) untrack(l io.Closer) {
	b.mu.Lock()
	delete(b.listeners, l)
	b.mu.Unlock()
}

// Serve accepts connections of a listener, which it closes in the end. It returns after Shutdown,
// with ErrClosed, or when the listener was closed.
func (b *Broker) Serve(l net.Listener, f frame.Format) error {
	handshakes := b.newHandshakes(l)
	defer handshakes.Close()
	if !b.track(handshakes) {
		return ErrClosed
	}
	defer b.untrack(handshakes)
	_ = handshakes.Serve(func(c *connlimit.Conn) { b.serveConn(c, f) }) // until it is closed
	return ErrClosed
}

// Connections that are no guests yet have a limit of their own, which their peers share: so those that
// say nothing, or do not know the secret, keep nobody out. There may be as many of them as guests, within
// these bounds.
const (
	minHandshakes = 16
	maxHandshakes = 1024
)

// newHandshakes returns a listener whose connections are no guests yet. Those for which there is no place
// are counted as refused.
func (b *Broker) newHandshakes(l net.Listener) *connlimit.Listener {
	handshakes := connlimit.NewListener(l, b.handshakes)
	handshakes.Failed = func(err error) { b.acceptFailed(l.Addr().String(), err) }
	handshakes.Refused = func(peer net.Addr) {
		b.count.accepted.Add(1)
		b.refuse(peer.String(), TooManyHandshakes)
	}
	return handshakes
}

func (b *Broker) acceptFailed(address string, err error) {
	if b.options.Events != nil {
		b.options.Events.AcceptFailed(address, err)
	}
}

// handshakeListener is a listener for an HTTP server.
type handshakeListener struct{ *connlimit.Listener }

// Accept implements net.Listener.
func (l handshakeListener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	c.Begin() // it may need its place for connlimit.Grace
	return c, nil
}

// serveConn begins to serve a connection.
func (b *Broker) serveConn(handshake *connlimit.Conn, f frame.Format) {
	handshake.Begin()
	conn := handshake.Conn
	s, err := newStream(conn)
	if err != nil || !b.begin() {
		_ = handshake.Close()
		return
	}
	g := &guest{format: format(f), transport: s, handshake: handshake}
	if isUnix(conn.LocalAddr()) {
		g.address = conn.LocalAddr().String()
	} else {
		g.address = conn.RemoteAddr().String()
		g.ip = netip.IPv6Unspecified() // if there is no address it is still no Unix socket
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			g.ip = a.AddrPort().Addr().Unmap()
		}
	}
	go func() {
		defer b.running.Done()
		b.run(g)
	}()
}

// serverLog makes events of what an HTTP server logs.
type serverLog struct {
	b       *Broker
	address string
}

// Write implements io.Writer; it is called with one message.
func (l *serverLog) Write(text []byte) (int, error) {
	l.b.acceptFailed(l.address, errors.New(string(bytes.TrimSpace(text))))
	return len(text), nil
}

// ServeWebSocket serves WebSockets, and Options.Page, as Serve serves streams.
func (b *Broker) ServeWebSocket(l net.Listener) error {
	defer l.Close()
	const pageTime = 30 * time.Second // for those that read the page slowly; a WebSocket has no limit
	server := &http.Server{
		Handler: b.WebSocket(), ReadHeaderTimeout: b.options.Limits.Handshake, WriteTimeout: pageTime,
		IdleTimeout: b.options.Limits.Handshake, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(&serverLog{b, l.Addr().String()}, "", 0),
	}
	if !b.track(server) {
		return ErrClosed
	}
	defer b.untrack(server)
	if err := server.Serve(handshakeListener{b.newHandshakes(l)}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving WebSockets: %w", err)
	}
	return ErrClosed
}
