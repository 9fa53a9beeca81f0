package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"correlator/internal/host/connlimit"
)

// maxHead is many times the size of a probe's request. Longer ones are served as others are.
const maxHead = 4 << 10

// refusalDelay is the time after which a request is refused because of the rate. Meanwhile, the
// connection counts as idle.
const refusalDelay = time.Second

// front reads the first bytes of each connection. It answers probes itself, at once, however many
// other requests there are; it hands others to net/http as long as their peer does not make too
// many. Every connection has one request.
type front struct {
	conns  *connlimit.Table
	probes map[string]*probe // by path
	rates  rates
	next   *handover

	tooFast atomic.Uint64 // refused, because of the rate
	tooSlow atomic.Uint64 // closed, because the request or the response took too long
}

// serve serves a connection, which it closes or hands over. Setting a deadline fails only on one
// that was closed to make room.
func (f *front) serve(ctx context.Context, conn *connlimit.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	head, err := readHead(conn)
	if err != nil {
		f.countSlow(err)
		conn.Close()
		return
	}
	if p := f.probes[probePath(head)]; p != nil {
		conn.Begin() // until it is closed
		status, text := p.response()
		f.respond(conn, status, text)
		return
	}
	if !f.rates.allow(conn.Peer(), time.Now()) {
		f.tooFast.Add(1)
		select { // so that a client that asks again and again does not do so thousands of times a second
		case <-time.After(refusalDelay):
		case <-conn.Done(): // replaced
		}
		f.respond(conn, http.StatusTooManyRequests, "too many requests from this address\n")
		return
	}
	conn.Begin() // until it is closed
	f.next.pass(ctx, &handedOver{Conn: conn, front: f, head: head})
}

// readHead reads until the end of the headers of a request, or maxHead bytes. What follows the
// headers is the next request, which is not read.
func readHead(conn net.Conn) ([]byte, error) {
	head := make([]byte, 0, maxHead/8)
	for {
		n, err := conn.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if i := bytes.Index(head, []byte("\r\n\r\n")); i >= 0 {
			return head[:i+4], nil
		}
		switch {
		case err != nil:
			return nil, err
		case len(head) == maxHead:
			return head, nil
		case len(head) == cap(head):
			head = append(make([]byte, 0, maxHead), head...)
		}
	}
}

// probePath returns the path of a GET request, without its query.
func probePath(head []byte) string {
	path, ok := bytes.CutPrefix(head, []byte("GET "))
	if !ok || !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		return ""
	}
	return string(path[:max(0, bytes.IndexAny(path, " ?\r"))])
}

// respond writes a response and closes the connection. The response fits into the socket's buffer,
// so this does not wait for the peer.
func (f *front) respond(conn net.Conn, status int, text string) {
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nX-Content-Type-Options: nosniff\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), textPlain, len(text), text)
	f.countSlow(err)
}

// countSlow counts a connection that is closed because of err, if that is a timeout.
func (f *front) countSlow(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.tooSlow.Add(1)
	}
}

// handedOver is a connection whose first bytes have been read.
type handedOver struct {
	*connlimit.Conn
	front   *front
	head    []byte // what is left of them
	writing bool
}

func (c *handedOver) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// Write writes a part of the response, all of which must be written within writeTimeout from the
// first part.
func (c *handedOver) Write(b []byte) (int, error) {
	if !c.writing {
		c.writing = true
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	n, err := c.Conn.Write(b)
	c.front.countSlow(err)
	return n, err
}

// handover is the listener of net/http.
type handover struct {
	addr  net.Addr
	conns chan net.Conn
	done  <-chan struct{}
}

// pass waits until the connection is accepted. Accept only starts a goroutine for it.
func (h *handover) pass(ctx context.Context, conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-ctx.Done():
		conn.Close()
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return h.addr }

// Close implements net.Listener. It does nothing: the context of Serve ends Accept.
func (h *handover) Close() error { return nil }
