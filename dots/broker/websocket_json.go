package broker

import (
	"errors"
	"io"
	"net"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json/jsontext"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
)

// convert makes the message of a frame of v2: a transmission as JSON.
func (ws *webSocket) convert(b *Broker, data []byte) error {
	if len(data) > chunkSize { // how much memory they take is known only afterwards
		b.converting.Lock()
		defer b.converting.Unlock()
	}
	var h frame.Header
	instance, _, err := frame.Next(frame.V2, data, len(data), &h)
	if err != nil {
		return err
	}
	if ws.last == nil || ws.last.Name != string(h.TypeName) {
		if ws.last = b.structOf(h.TypeName); ws.last == nil {
			return dynamic.ErrUnknownType
		}
	}
	limit := max(b.options.Limits.Frame, b.options.Limits.Queue)
	message, unset, err := dynamic.AppendMessage(ws.message[:0], &h, ws.last, instance, limit, ws.numbers)
	b.count.unsetNumbers.Add(uint64(unset))
	if err == nil {
		ws.message = message
	}
	return err
}

// message handles a message of a WebSocket.
func (g *guest) message(data []byte) error {
	b := g.b
	var h frame.Header
	// Nobody waits while JSON is parsed: a type that is known does not change.
	instance, s, err := dynamic.ParseMessage(data, &h, b.structOf)
	var syntax *jsontext.SyntacticError
	unknown := errors.Is(err, dynamic.ErrUnknownType)
	if err != nil && !unknown && (s == nil || errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF)) {
		b.count.undecoded.Add(uint64(len(data)))
		return fail(BadFrame, "decoding a message: %v", err)
	}
	b.lock()
	defer func() { g.writers = b.unlock(g.writers) }()
	switch {
	case g.dead:
		b.count.undecoded.Add(uint64(len(data)))
		return fail(g.reason, "")
	case err != nil && !unknown && g.state == connecting:
		return fail(HandshakeViolation, "unexpected message")
	case err != nil && !unknown:
		return fail(BadInstance, "%v", err)
	}
	b.receivedFrames++
	b.receivedBytes += uint64(len(data))
	g.traffic.receivedFrames++
	g.traffic.receivedBytes += uint64(len(data))
	if unknown {
		return b.unknownType(g, &h)
	}
	return b.handle(g, &h, instance)
}

// structOf returns the struct of a name, nil if none is known.
func (b *Broker) structOf(name []byte) *schema.Struct {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.topics[string(name)]; t != nil {
		return t.s
	}
	return nil
}

// tryWrite writes one message. It never writes at once: the connection may block.
func (ws *webSocket) tryWrite(list *chunkList, wait bool) (released int, full bool, err error) {
	if !wait {
		return 0, true, nil
	}
	b := ws.guest.b
	ws.frame = list.frame(ws.frame)
	if err := ws.convert(b, ws.frame); err != nil {
		b.count.unencodable.Add(1)
		ws.message = nil
	} else if err := ws.writeMessage(b); err != nil {
		return 0, false, err
	}
	released = list.consume(len(ws.frame))
	if cap(ws.frame) > chunkSize {
		ws.frame = nil
	}
	if cap(ws.message) > chunkSize {
		ws.message = nil
	}
	return released, false, nil
}

// writeMessage writes the message. A long one counts while it waits.
func (ws *webSocket) writeMessage(b *Broker) error {
	if size := cap(ws.frame) + cap(ws.message); size > 2*chunkSize {
		b.lock()
		b.use(ws.guest, size)
		dead := ws.guest.dead && !ws.guest.goodbye
		b.unlock(nil)
		defer ws.guest.account(-size)
		if dead {
			return net.ErrClosed
		}
	}
	return ws.conn.Write(ws.ctx, websocket.MessageText, ws.message)
}
