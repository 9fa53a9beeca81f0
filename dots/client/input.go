package client

import (
	"errors"
	"fmt"
	"io"
	"time"

	"correlator/dots/frame"
	"correlator/dots/value"
)

// readBytes is the size of the buffer for reading: what a socket has at most when the sender is
// fast. It grows for a longer frame, by as much as has arrived of it.
const readBytes = 256 << 10

// smallBytes is how much of an incomplete frame is moved to the start of the buffer at once.
const smallBytes = 4 << 10

// input is the state of the reading goroutine.
type input struct {
	header frame.Header
	now    value.Timepoint // when what is handled was read
	last   *route          // of the last frame
	routes *routes         // that last is from

	presize int // bytes that may still be allocated for announced objects
}

// read handles what arrives until the connection ends.
func (c *Client) read() {
	err := c.readAll()
	c.mu.Lock()
	switch {
	case c.err != nil:
	case errors.Is(err, io.EOF):
		c.err = fmt.Errorf("reading from a DOTS broker: %w", io.ErrUnexpectedEOF) // and no goodbye
	default:
		c.err = err
	}
	err = c.err
	c.mu.Unlock()
	c.end(err)
	close(c.done)
}

func (c *Client) readAll() error {
	buf := make([]byte, readBytes)
	start, end := 0, 0
	for {
		if end == len(buf) {
			buf, start, end = makeRoom(buf, start, end)
		}
		n, err := c.conn.Read(buf[end:])
		if n > 0 {
			end += n
			used, err := c.handleBatch(buf[start:end])
			if err != nil {
				return err
			}
			start += used
			if start == end && len(buf) > keepBytes {
				buf = make([]byte, readBytes)
			}
			if end-start < smallBytes {
				start, end = 0, copy(buf, buf[start:end])
			}
		}
		if err != nil {
			return fmt.Errorf("reading from a DOTS broker: %w", err)
		}
	}
}

// makeRoom moves an incomplete frame to the start of the buffer, and doubles the buffer when it is
// full of it.
func makeRoom(buf []byte, start, end int) (next []byte, newStart, newEnd int) {
	next = buf
	if start < len(buf)/2 {
		next = make([]byte, 2*len(buf))
	}
	return next, 0, copy(next, buf[start:end])
}

// handleBatch handles the complete frames in what was read.
func (c *Client) handleBatch(data []byte) (used int, err error) {
	c.in.now = value.TimepointOf(time.Now())
	frames := uint64(0)
	for err == nil {
		var instance []byte
		var n int
		instance, n, err = frame.Next(c.format, data[used:], c.options.FrameBytes, &c.in.header)
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if n == 0 || err != nil {
			break
		}
		err = c.handle(&c.in.header, instance)
		used += n
		frames++
	}
	c.counters.receivedFrames.Add(frames)
	c.counters.receivedBytes.Add(uint64(used))
	return used, err
}

// handle handles a transmission.
func (c *Client) handle(h *frame.Header, instance []byte) error {
	if h.Set&frame.Sender == 0 {
		h.Sender = 1
	}
	if h.Set&frame.SentTime == 0 {
		h.SentTime = c.in.now
	}
	if h.Set&frame.RemoveObj == 0 {
		h.RemoveObj = false // and not what it was in the header before
	}
	r := c.in.last
	if all := c.routes.Load(); r == nil || all != c.in.routes || r.name != string(h.TypeName) {
		r = all.byName[string(h.TypeName)]
		c.in.last, c.in.routes = r, all
	}
	if r == nil {
		return c.handleUnrouted(h, instance)
	}
	if r.protocol == nil && c.id.Load() == 0 {
		return errEarly(h)
	}
	if r.protocol != nil {
		if err := r.protocol(c, instance); err != nil {
			return err
		}
	}
	return c.deliver(r, h, instance)
}

// handleUnrouted handles what nobody has subscribed to. That is no error: a broker may have sent it
// before the subscription ended.
func (c *Client) handleUnrouted(h *frame.Header, instance []byte) error {
	if handler := protocolHandler(h.TypeName); handler != nil {
		return handler(c, instance)
	}
	if c.id.Load() == 0 {
		return errEarly(h)
	}
	c.counters.unsubscribed.Add(1)
	return nil
}

func errEarly(h *frame.Header) error {
	return fmt.Errorf("%w: %.255q before the client was accepted", ErrProtocol, h.TypeName)
}
