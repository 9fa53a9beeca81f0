package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json/jsontext"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
)

// headerType describes the header, for its conversion from and to JSON.
var headerType = func() *schema.Struct {
	property := func(tag uint32, name string, kind schema.Kind) schema.Property {
		return schema.Property{Tag: tag, Name: name, Type: schema.Builtin(kind)}
	}
	s, err := schema.NewStruct("DotsHeader", schema.Flags{Internal: true}, []schema.Property{
		property(1, "typeName", schema.String), property(2, "sentTime", schema.Timepoint),
		property(7, "serverSentTime", schema.Timepoint), property(3, "attributes", schema.PropertySet),
		property(5, "sender", schema.Uint32), property(8, "fromCache", schema.Uint32),
		property(4, "removeObj", schema.Bool), property(6, "isFromMyself", schema.Bool),
		property(9, "subscriptionId", schema.Uint32),
	}, "")
	if err != nil {
		panic(err) // the table above is wrong
	}
	return s
}()

// convert makes a message of a frame of v2: a transmission as JSON.
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
		if ws.last = b.structOf(string(h.TypeName)); ws.last == nil {
			return dynamic.ErrUnknownType
		}
	}
	const prefix = 5
	message, err := dynamic.AppendJSON(append(ws.message[:0], '['), headerType, data[prefix:len(data)-len(instance)])
	if err != nil {
		return err
	}
	limit := max(b.options.Limits.Frame, b.options.Limits.Queue)
	if message, err = dynamic.AppendJSONWithin(append(message, ','), ws.last, instance, limit); err != nil {
		return err
	}
	ws.message = append(message, ']')
	return nil
}

// splitMessage returns the two elements of a message, which are parts of it.
func splitMessage(data []byte) (header, instance []byte, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	if d.PeekKind() != '[' {
		return nil, nil, errors.New("no array")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, nil, err
	}
	var parts [2][]byte
	for i := range parts {
		if d.PeekKind() != '{' {
			return nil, nil, errors.New("no object")
		}
		v, err := d.ReadValue()
		if err != nil {
			return nil, nil, err
		}
		end := d.InputOffset()
		parts[i] = data[end-int64(len(v)) : end]
	}
	if d.PeekKind() != ']' {
		return nil, nil, errors.New("more than a header and an instance")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("data behind a message: %w", err)
	}
	return parts[0], parts[1], nil
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
