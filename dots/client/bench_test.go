package client

import (
	"context"
	"io"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
)

// accepted connects a client without preload to a broker that a test plays.
func accepted(t testing.TB, c *Client) (broker *net.UnixConn) {
	t.Helper()
	mine, theirs := streams(t)
	c.options.NoPreload = true
	b := &peer{t: t, conn: theirs}
	b.send(&system.DotsMsgHello{ServerName: value.Some("test"), AuthChallenge: value.Some[uint64](0)})
	b.send(&system.DotsMsgConnectResponse{
		ClientID: value.Some[uint32](2), Accepted: value.Some(true), Preload: value.Some(false),
	})
	assert.NilError(t, c.ConnectConn(t.Context(), mine, frame.V2))
	t.Cleanup(func() { _ = theirs.Close(); <-c.Done() })
	return theirs
}

// peer is a broker that a test plays.
type peer struct {
	t    testing.TB
	conn net.Conn
}

// send sends an instance with all its properties.
func (p *peer) send(x Instance) { p.sendHeader(x, frame.Header{Sender: 1, Set: frame.Sender}) }

func (p *peer) sendHeader(x Instance, h frame.Header) {
	p.t.Helper()
	if _, err := p.conn.Write(encode(p.t, x, h)); err != nil {
		p.t.Fatal(err)
	}
}

// encode returns a frame. Members of the header that are missing are those of all properties.
func encode(t testing.TB, x Instance, h frame.Header) []byte {
	t.Helper()
	h.TypeName = []byte(x.Descriptor().Name)
	if h.Set&frame.Attributes == 0 {
		h.Attributes = x.Valid()
	}
	h.Set |= frame.TypeName | frame.Attributes
	data, err := frame.Append(nil, frame.V2, &h, false, 0, x.AppendInstance(nil, x.Valid()))
	assert.NilError(t, err)
	return data
}

// BenchmarkPublish publishes to a peer that discards everything.
func BenchmarkPublish(b *testing.B) {
	x := demo.DemoPing{N: value.Some[uint32](1), T: value.Some[value.Timepoint](1)}
	benchmarkPublish(b, &x, &x.N)
}

// BenchmarkPublishText is BenchmarkPublish for a type whose values are checked.
func BenchmarkPublishText(b *testing.B) {
	x := demo.DemoThing{ID: value.Some[uint32](1), Name: value.Some("a name of some length")}
	benchmarkPublish(b, &x, &x.ID)
}

func benchmarkPublish(b *testing.B, x Instance, n *value.Opt[uint32]) {
	c := New(Options{})
	conn := accepted(b, c)
	go func() { _, _ = io.Copy(io.Discard, readerOnly{conn}) }()
	ctx := context.Background()
	b.ReportAllocs()
	for i := range b.N {
		n.Set(uint32(i))
		if err := c.Publish(ctx, x); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.out.flush(ctx); err != nil {
		b.Fatal(err)
	}
}

// readerOnly hides that a connection can be spliced.
type readerOnly struct{ io.Reader }

// BenchmarkReceive receives what a peer has encoded before.
func BenchmarkReceive(b *testing.B) {
	h := frame.Header{
		SentTime: 1, ServerSentTime: 1, Sender: 3,
		Set: frame.SentTime | frame.ServerSentTime | frame.Sender | frame.RemoveObj | frame.IsFromMyself,
	}
	b.Run("uncached", func(b *testing.B) {
		x := demo.DemoPing{N: value.Some[uint32](1), T: value.Some[value.Timepoint](1)}
		n, done := 0, make(chan struct{})
		benchmarkReceive(b, encode(b, &x, h), done, func(c *Client) error {
			_, err := Subscribe(c, func(e *Event[*demo.DemoPing]) {
				n += int(e.Updated.N.Value())
				if n == b.N {
					close(done)
				}
			})
			return err
		})
	})
	b.Run("cached", func(b *testing.B) {
		x := demo.RoundtripData{ID: value.Some[uint32](1), SomeFloat: value.Some[float32](1)}
		n, done := 0, make(chan struct{})
		benchmarkReceive(b, encode(b, &x, h), done, func(c *Client) error {
			_, err := Subscribe(c, func(e *Event[*demo.RoundtripData]) {
				n += int(e.Updated.ID.Value())
				if n == b.N {
					close(done)
				}
			})
			return err
		})
	})
}

func benchmarkReceive(b *testing.B, data []byte, done chan struct{}, subscribe func(*Client) error) {
	c := New(Options{})
	conn := accepted(b, c)
	if err := subscribe(c); err != nil {
		b.Fatal(err)
	}
	const per = 1000
	var many []byte
	for range per {
		many = append(many, data...)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= per {
		if _, err := conn.Write(many[:min(left, per)*len(data)]); err != nil {
			b.Fatal(err)
		}
	}
	<-done
}
