package broker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/internal/host/connlimit"
	"correlator/internal/host/loopback"
)

// subprotocol is the one of WebSockets that carry DOTS: each message is a JSON array of a header
// and an instance.
const subprotocol = "dots-json"

// webSocket is a WebSocket.
type webSocket struct {
	conn    *websocket.Conn
	below   net.Conn // that it is made of, for deadlines
	ctx     context.Context
	cancel  context.CancelFunc
	timer   *time.Timer
	expired atomic.Bool
	buf     []byte         // of what is read
	frame   []byte         // that is written
	message []byte         // what it becomes
	last    *schema.Struct // of the last one
	numbers dynamic.Numbers
	guest   *guest
}

// hijacker notes the connection that a WebSocket is made of.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (conn net.Conn, buf *bufio.ReadWriter, err error) {
	conn, buf, err = http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, buf, err
}

// WebSocket returns the handler that makes guests of WebSockets. Other requests get Options.Page.
func (b *Broker) WebSocket() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case b.options.Auth.Secret == "" && loopback.IsForeign(r):
			b.count.foreignHosts.Add(1)
			http.Error(w, "this server is localhost", http.StatusForbidden)
		case r.Header.Get("Upgrade") == "" && b.options.Page != nil:
			b.options.Page.ServeHTTP(w, r)
		default:
			b.serveWebSocket(w, r)
		}
	})
}

// serveWebSocket upgrades a request and serves the guest until its end.
func (b *Broker) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	h := &hijacker{ResponseWriter: w}
	conn, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols: []string{subprotocol}, OriginPatterns: b.options.Origins,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil { // it was answered
		b.count.refusedUpgrades.Add(1)
		return
	}
	ws := &webSocket{conn: conn, below: h.conn}
	if r.Header.Get("Origin") != "" { // a browser, which would take no such message
		ws.numbers = dynamic.NoNumbers
	}
	ws.ctx, ws.cancel = context.WithCancel(context.Background())
	defer ws.close()
	if conn.Subprotocol() != subprotocol {
		b.count.refusedUpgrades.Add(1)
		ws.sayClose(websocket.StatusPolicyViolation, "subprotocol dots-json is required")
		return
	}
	if !b.begin() {
		return
	}
	defer b.running.Done()
	conn.SetReadLimit(int64(min(handshakeFrame, b.options.Limits.Frame)))
	g := &guest{format: formatV2, address: r.RemoteAddr, transport: ws}
	ws.guest = g
	g.handshake, _ = h.conn.(*connlimit.Conn)
	if addr, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		g.ip = addr.Addr().Unmap()
	} else {
		g.ip = netip.IPv6Unspecified() // no Unix socket: those need no authentication
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isUnix(local) {
		g.ip = netip.Addr{}
	}
	b.run(g)
}

func (ws *webSocket) read(g *guest) error {
	for {
		kind, data, err := ws.readMessage(g)
		switch {
		case ws.expired.Load():
			return &net.OpError{Op: "read", Err: context.DeadlineExceeded}
		case errors.Is(err, websocket.ErrMessageTooBig):
			return fail(BadFrame, "%v", frame.ErrTooLarge)
		case websocket.CloseStatus(err) != -1:
			return io.EOF
		case err != nil:
			return err
		case kind != websocket.MessageText:
			return fail(BadFrame, "binary message")
		}
		if err := g.message(data); err != nil {
			return err
		}
		if err := ws.trim(g); err != nil {
			return err
		}
		g.pause()
	}
}

// readMessage reads a message into the buffer, which grows with what arrives.
func (ws *webSocket) readMessage(g *guest) (kind websocket.MessageType, data []byte, err error) {
	kind, r, err := ws.conn.Reader(ws.ctx)
	if err != nil {
		return kind, nil, err
	}
	const least = 512
	data = ws.buf[:0]
	for {
		if cap(data)-len(data) < least/2 {
			larger := make([]byte, len(data), max(2*cap(data), least))
			copy(larger, data)
			if err := g.grow(cap(larger) - cap(data)); err != nil {
				return kind, nil, err
			}
			data, ws.buf = larger, larger
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return kind, data, nil
		}
		if err != nil {
			return kind, nil, err
		}
	}
}

// trim gives up a large buffer.
func (ws *webSocket) trim(g *guest) error {
	size := cap(ws.buf)
	if size <= chunkSize {
		return nil
	}
	ws.buf = nil
	return g.grow(-size)
}

func (ws *webSocket) begin(d time.Duration) {
	ws.timer = time.AfterFunc(d, func() {
		ws.expired.Store(true)
		ws.cancel()
	})
}

func (ws *webSocket) accepted(g *guest) {
	ws.timer.Stop()
	ws.conn.SetReadLimit(int64(g.b.options.Limits.Frame))
}

// stopReading closes the WebSocket after what is queued: a read that is cancelled closes it at
// once.
func (ws *webSocket) stopReading(g *guest) { g.b.running.Go(g.drain) }

func (ws *webSocket) linger() { ws.sayClose(websocket.StatusNormalClosure, "") }

// sayClose closes the WebSocket. Without the deadline a peer that does not answer is waited for 5
// s.
func (ws *webSocket) sayClose(code websocket.StatusCode, reason string) {
	if ws.ctx.Err() == nil {
		_ = ws.below.SetDeadline(time.Now().Add(lingerTime))
	}
	_ = ws.conn.Close(code, reason)
}

func (ws *webSocket) abort() {
	ws.cancel()
	_ = ws.below.SetDeadline(time.Unix(1, 0)) // closing heeds no context
}

func (ws *webSocket) close() {
	ws.cancel()
	_ = ws.conn.CloseNow()
}
