package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"correlator/dots/dynamic"
	"correlator/dots/endpoint"
	"correlator/dots/frame"
)

// subprotocol is the one of WebSockets that carry DOTS: each message is a JSON array of a header
// and an instance.
const subprotocol = "dots-json"

// webSocket is a WebSocket as a stream of frames of format v2, so that nothing else needs to know.
type webSocket struct {
	net.Conn // nil: nothing of it is used but what is defined here
	c        *Client
	ws       *websocket.Conn
	ctx      context.Context
	cancel   context.CancelFunc
	received []byte // frames that Read has not returned yet
	buf      []byte // what they are in
	message  []byte // that is written
}

func (c *Client) dialWebSocket(ctx context.Context, e endpoint.Endpoint) (net.Conn, error) {
	ws, response, err := websocket.Dial(ctx, "ws://"+e.Address()+"/", &websocket.DialOptions{
		Subprotocols: []string{subprotocol}, CompressionMode: websocket.CompressionDisabled,
		HTTPClient: &http.Client{
			Transport:     &http.Transport{Proxy: nil},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if response != nil && response.Body != nil {
		_ = response.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", e, err)
	}
	if ws.Subprotocol() != subprotocol {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("connecting to %s: %w: subprotocol %.30q", e, ErrProtocol, ws.Subprotocol())
	}
	ws.SetReadLimit(int64(c.options.FrameBytes))
	w := &webSocket{c: c, ws: ws}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

// Read returns frames for the messages that arrive. Those of a type that is not known cannot be
// converted, and nobody has subscribed to them.
func (w *webSocket) Read(p []byte) (int, error) {
	for len(w.received) == 0 {
		kind, data, err := w.ws.Read(w.ctx)
		switch {
		case websocket.CloseStatus(err) == websocket.StatusNormalClosure:
			return 0, io.EOF
		case err != nil:
			return 0, err
		case kind != websocket.MessageText:
			return 0, fmt.Errorf("%w: a binary WebSocket message", ErrProtocol)
		}
		var h frame.Header
		instance, s, err := dynamic.ParseMessage(data, &h, w.c.registry.StructBytes)
		switch {
		case errors.Is(err, dynamic.ErrUnknownType):
			w.c.counters.unsubscribed.Add(1)
			continue
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if w.buf, err = frame.Append(w.buf[:0], frame.V2, &h, s.Flags.Internal, 0, instance); err != nil {
			return 0, err
		}
		w.received = w.buf
	}
	n := copy(p, w.received)
	w.received = w.received[n:]
	return n, nil
}

// Write sends a message for each frame in data, which has no part of a frame.
func (w *webSocket) Write(data []byte) (int, error) {
	for used := 0; used < len(data); {
		var h frame.Header
		instance, n, err := frame.Next(frame.V2, data[used:], len(data), &h)
		if err != nil || n == 0 {
			return used, fmt.Errorf("splitting frames: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		s := w.c.registry.StructBytes(h.TypeName)
		if s == nil {
			return used, fmt.Errorf("%w: %.255q", ErrUnknownType, h.TypeName)
		}
		if w.message, _, err = dynamic.AppendMessage(w.message[:0], &h, s, instance, math.MaxInt,
			dynamic.BareNumbers); err != nil {
			return used, err
		}
		if err := w.ws.Write(w.ctx, websocket.MessageText, w.message); err != nil {
			return used, err
		}
		used += n
	}
	return len(data), nil
}

// Close closes the WebSocket without waiting for the peer.
func (w *webSocket) Close() error {
	w.cancel()
	return w.ws.CloseNow()
}
