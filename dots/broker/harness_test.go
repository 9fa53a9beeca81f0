package broker

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// patience is how long tests wait for what must happen.
const patience = time.Minute

// newBroker returns a broker that is shut down at the end of the test.
func newBroker(tb testing.TB, o Options) *Broker {
	tb.Helper()
	b := New(o)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.Check(tb, b.Shutdown(ctx), "shutting down")
		var ended uint64
		for _, n := range b.Counters().Closed {
			ended += n
		}
		n := b.Counters().Accepted
		assert.Check(tb, n == ended, "%d connections were accepted, and %d have ended", n, ended)
		if c := b.Counters(); c.QueuedBytes != 0 || c.Guests != 0 {
			tb.Errorf("%d bytes and %d guests remain after the shutdown", c.QueuedBytes, c.Guests)
		}
	})
	return b
}

// listenUnix returns the address of a new Unix socket of the broker.
func listenUnix(tb testing.TB, b *Broker, f frame.Format) net.Addr {
	tb.Helper()
	dir, err := os.MkdirTemp("", "dots")
	assert.NilError(tb, err)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	scheme := "uds://"
	if f == frame.V1 {
		scheme = "uds-v1://"
	}
	return listenAt(tb, b, scheme+filepath.Join(dir, "s"))
}

func listenAt(tb testing.TB, b *Broker, uri string) net.Addr {
	tb.Helper()
	addr, err := b.ListenURI(uri)
	assert.NilError(tb, err)
	return addr
}

// peer is the other side of a guest's connection.
type peer struct {
	tb     testing.TB
	conn   net.Conn
	format frame.Format
	buf    []byte
	id     uint32
}

func dial(tb testing.TB, addr net.Addr, f frame.Format) *peer {
	tb.Helper()
	conn, err := net.Dial(addr.Network(), addr.String())
	assert.NilError(tb, err)
	tb.Cleanup(func() { conn.Close() })
	return &peer{tb: tb, conn: conn, format: f}
}

// received is a transmission that a peer received.
type received struct {
	frame.Header
	name     string
	instance []byte
	size     int // of the frame
}

// next returns the next transmission, or an error at the end of the stream.
func (p *peer) next() (r received, err error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		var h frame.Header
		instance, n, err := frame.Next(p.format, p.buf, frame.DefaultLimit, &h)
		if err != nil {
			return r, err
		}
		if n > 0 {
			r = received{h, string(h.TypeName), bytes.Clone(instance), n}
			p.buf = p.buf[n:]
			return r, nil
		}
		var more [64 << 10]byte
		n, err = p.conn.Read(more[:])
		if err != nil {
			return r, err
		}
		p.buf = append(p.buf, more[:n]...)
	}
}

func (p *peer) expect(name string) received {
	p.tb.Helper()
	r, err := p.next()
	assert.Assert(p.tb, err == nil && r.name == name, "received %s %x (%v), want %s", r.name, r.instance, err, name)
	return r
}

// want demands a transmission with certain members.
func (p *peer) want(
	name string, attributes value.PropertySet, sender uint32, remove bool, instanceHex string,
) received {
	p.tb.Helper()
	r := p.expect(name)
	assert.Assert(p.tb, r.Attributes == attributes && r.Sender == sender && r.RemoveObj == remove &&
		hex.EncodeToString(r.instance) == strings.ReplaceAll(instanceHex, " ", ""),
		"%s: attributes %#x sender %d remove %v instance %x,\nwant %#x %d %v %s", name, r.Attributes, r.Sender,
		r.RemoveObj, r.instance, attributes, sender, remove, instanceHex)
	return r
}

// end demands the end of the stream.
func (p *peer) end() {
	p.tb.Helper()
	r, err := p.next()
	assert.Assert(p.tb, errors.Is(err, io.EOF), "received %s %x (%v), want the end", r.name, r.instance, err)
}

// wantError demands DotsMsgError with a code, and the end.
func (p *peer) wantError(code int32) string {
	p.tb.Helper()
	var m system.DotsMsgError
	decodeInto(p.tb, p.expect("DotsMsgError").instance, m.DecodeInstance)
	assert.Check(p.tb, m.ErrorCode.Value() == code,
		"error %d %q, want %d", m.ErrorCode.Value(), m.ErrorText.Value(), code)
	p.end()
	return m.ErrorText.Value()
}

func decodeInto(tb testing.TB, instance []byte, into func(*cbor.Reader)) {
	tb.Helper()
	r := cbor.NewReader(instance)
	into(&r)
	assert.NilError(tb, r.Err(), "decoding %x", instance)
}

func (p *peer) write(data []byte) {
	p.tb.Helper()
	_, err := p.conn.Write(data)
	assert.NilError(p.tb, err)
}

// send sends an instance with all its properties.
func (p *peer) send(x Instance) {
	p.sendHeader(x, frame.Header{Attributes: x.Valid(), Set: frame.Attributes})
}

func (p *peer) sendHeader(x Instance, h frame.Header) {
	p.tb.Helper()
	s := x.Descriptor()
	p.raw(s.Name, s.Flags.Internal, h, x.AppendInstance(nil, x.Valid()))
}

// raw sends an instance that is encoded.
func (p *peer) raw(name string, internal bool, h frame.Header, instance []byte) {
	p.tb.Helper()
	p.write(p.encode(name, internal, h, instance))
}

// encode returns the frame that raw sends.
func (p *peer) encode(name string, internal bool, h frame.Header, instance []byte) []byte {
	p.tb.Helper()
	h.TypeName = []byte(name)
	h.Set |= frame.TypeName
	data, err := frame.Append(nil, p.format, &h, internal, 1, instance)
	assert.Assert(p.tb, err == nil, err)
	return data
}

func (p *peer) describe(s *schema.Struct) {
	p.tb.Helper()
	for _, t := range append(schema.Dependencies(s), schema.OfStruct(s)) {
		instance, name, props := system.AppendDescription(nil, t)
		p.raw(name, true, frame.Header{Attributes: props, Set: frame.Attributes}, instance)
	}
}

func (p *peer) member(name string, event system.DotsMemberEvent) {
	p.tb.Helper()
	p.send(&system.DotsMember{GroupName: value.Some(name), Event: value.Some(event)})
}

func (p *peer) join(name string) { p.tb.Helper(); p.member(name, system.DotsMemberEventJoin) }

// barrier waits until the broker has handled everything that was sent.
func (p *peer) barrier() {
	p.tb.Helper()
	p.send(&system.DotsEcho{Request: value.Some(true)})
	p.expect("DotsEcho")
}

// connect returns a guest that is connected.
func connect(tb testing.TB, addr net.Addr, f frame.Format) *peer {
	tb.Helper()
	p := dial(tb, addr, f)
	p.expect("DotsMsgHello")
	p.send(&system.DotsMsgConnect{ClientName: value.Some(tb.Name()), PreloadCache: value.Some(false)})
	var m system.DotsMsgConnectResponse
	decodeInto(tb, p.expect("DotsMsgConnectResponse").instance, m.DecodeInstance)
	assert.Assert(tb, m.Accepted.Value() && !m.Preload.Value(), "answer %+v", m)
	p.id = m.ClientID.Value()
	return p
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		assert.Assert(tb, !time.Now().After(deadline), "still not: %s", what)
	}
}
