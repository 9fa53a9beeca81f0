package client

import (
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
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
	_, err := p.conn.Write(encode(p.t, x, h))
	assert.NilError(p.t, err)
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
