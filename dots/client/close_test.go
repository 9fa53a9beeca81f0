package client

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
)

// TestGoodbye: a client says goodbye before it closes, and takes what still arrives.
func TestGoodbye(t *testing.T) {
	c := New(Options{})
	n := 0
	p := readyClient(t, c)
	_, err := Subscribe(c, func(*Event[*demo.DemoPing]) { n++ })
	must(t, err)
	p.read(&system.StructDescriptorData{})
	p.read(&system.DotsMember{})
	closing := make(chan error, 1)
	go func() { closing <- c.Close() }()
	var m system.DotsMsgError
	if p.read(&m); m.Valid() != system.DotsMsgErrorErrorCode || m.ErrorCode.Value() != 0 {
		t.Errorf("%+v", m)
	}
	rest, err := io.ReadAll(p.conn)
	assert.Check(t, err == nil && len(rest) == 0, "after the goodbye: %x, %v", rest, err)
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	_ = p.conn.(*net.UnixConn).Close()
	must(t, <-closing)
	assert.Check(t, n == 1 && errors.Is(c.Err(), ErrClosed), "%d events, %v", n, c.Err())
	must(t, c.Close())
	must(t, New(Options{}).Close())
}

// TestCloseTimeout has a broker that does not close.
func TestCloseTimeout(t *testing.T) {
	c := New(Options{CloseTimeout: 10 * time.Millisecond})
	readyClient(t, c)
	err := c.Close()
	assert.Check(t, errors.Is(err, context.DeadlineExceeded), err)
}

// TestCloseWhileHandling: neither Close nor Connect wait for ever for a handler.
func TestCloseWhileHandling(t *testing.T) {
	blocked, running := make(chan struct{}), make(chan struct{})
	handler := func(*Event[*demo.DemoPing]) { close(running); <-blocked }
	c := New(Options{CloseTimeout: 10 * time.Millisecond})
	_, err := Subscribe(c, handler)
	must(t, err)
	p := &peer{t: t, conn: accepted(t, c)}
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	<-running
	for range 2 {
		err := c.Close()
		assert.Check(t, errors.Is(err, ErrHandler), "Close: %v", err)
	}

	connecting := New(Options{})
	running = make(chan struct{})
	_, err = Subscribe(connecting, handler)
	must(t, err)
	mine, theirs := streams(t)
	p = &peer{t: t, conn: theirs}
	p.send(hello())
	p.send(accept(2))
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-running; cancel() }()
	err = connecting.ConnectConn(ctx, mine, frame.V2)
	assert.Check(t, errors.Is(err, ErrHandler) && errors.Is(err, ctx.Err()), "Connect: %v", err)
	close(blocked)
	<-c.Done()
	<-connecting.Done()
	must(t, c.Close())
}
