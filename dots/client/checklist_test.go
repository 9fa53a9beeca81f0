package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/auth"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

// frame reads a frame that the client sent.
func (p *peer) frame() (h frame.Header, instance []byte) {
	p.t.Helper()
	prefix := make([]byte, 5)
	_, err := io.ReadFull(p.conn, prefix)
	assert.Assert(p.t, err == nil, err)
	size := int(prefix[1])<<24 | int(prefix[2])<<16 | int(prefix[3])<<8 | int(prefix[4])
	data := append(prefix, make([]byte, size)...)
	_, err = io.ReadFull(p.conn, data[5:])
	assert.NilError(p.t, err)
	instance, n, err := frame.Next(frame.V2, data, len(data), &h)
	assert.Assert(p.t, err == nil && n == len(data), "%x: %v", data, err)
	return h, instance
}

// read reads a frame that the client sent, of the type of x, into x.
func (p *peer) read(x message) frame.Header {
	p.t.Helper()
	h, instance := p.frame()
	if string(h.TypeName) != x.Descriptor().Name {
		p.t.Fatalf("%s instead of %s", h.TypeName, x.Descriptor().Name)
	}
	assert.NilError(p.t, decodeMessage(x, instance))
	return h
}

// connecting starts to connect a client to a broker that the test plays.
func connecting(t *testing.T, c *Client) (*peer, chan error) {
	t.Helper()
	mine, theirs := streams(t)
	result := make(chan error, 1)
	go func() { result <- c.ConnectConn(t.Context(), mine, frame.V2) }()
	return &peer{t: t, conn: theirs}, result
}

func hello() *system.DotsMsgHello {
	return &system.DotsMsgHello{ServerName: value.Some("broker"), AuthChallenge: value.Some[uint64](0)}
}

func accept(id uint32) *system.DotsMsgConnectResponse {
	return &system.DotsMsgConnectResponse{
		ClientID: value.Some(id), Accepted: value.Some(true), Preload: value.Some(true),
	}
}

// finish plays the rest of a handshake.
func (p *peer) finish(result chan error) {
	p.t.Helper()
	var m system.DotsMsgConnect
	if p.read(&m); !m.PreloadClientFinished.Value() || m.Valid() != system.DotsMsgConnectPreloadClientFinished {
		p.t.Errorf("%+v", m)
	}
	p.send(&system.DotsMsgConnectResponse{PreloadFinished: value.Some(true)})
	err := <-result
	assert.NilError(p.t, err)
	var self system.DotsClient
	if p.read(&self); self.ID.Value() != 2 || !self.Running.Value() || self.Valid().Len() != 2 {
		p.t.Errorf("%+v", self)
	}
}

// TestWaitsForHello: a client says nothing before the broker does, and remembers its id.
func TestWaitsForHello(t *testing.T) {
	c := New(Options{Name: "me", Secret: "s"})
	p, result := connecting(t, c)
	err := c.Publish(t.Context(), &demo.DemoSingle{})
	assert.Check(t, errors.Is(err, ErrNotConnected), "publishing before the handshake: %v", err)
	// What is said answers the challenge, which the client does not know before.
	h := hello()
	h.AuthChallenge.Set(7)
	h.AuthenticationRequired.Set(true)
	p.send(h)
	var m system.DotsMsgConnect
	p.read(&m)
	assert.Check(t, m.ClientName.Value() == "me" && m.PreloadCache.Value() && m.Valid().Len() == 4 &&
		m.AuthChallengeResponse.Value() == auth.Response("me", "s", 7, m.Cnonce.Value()), "%+v", m)
	p.send(accept(2))
	p.finish(result)
	assert.Check(t, c.ID() == 2 && c.ServerName() == "broker", "id %d, server %q", c.ID(), c.ServerName())
	err = c.ConnectConn(t.Context(), p.conn, frame.V2)
	assert.Check(t, errors.Is(err, ErrUsed), "connecting again: %v", err)
	<-c.Done()
}

// TestHandshakeErrors has brokers that do what they must not, or refuse the client.
func TestHandshakeErrors(t *testing.T) {
	ping := &demo.DemoPing{N: value.Some[uint32](1)}
	failure := &system.DotsMsgError{ErrorCode: value.Some[int32](7), ErrorText: value.Some("no\x00!")}
	nobody := &system.DotsMsgConnectResponse{Accepted: value.Some(true)}
	goodbye := &system.DotsMsgError{ErrorCode: value.Some[int32](0)}
	refusal := &system.DotsMsgConnectResponse{Accepted: value.Some(false), ClientID: value.Some[uint32](2)}
	for name, c := range map[string]struct {
		send []Instance
		want error
	}{
		"data before hello":      {[]Instance{ping}, ErrProtocol},
		"response before hello":  {[]Instance{accept(2)}, ErrProtocol},
		"two hellos":             {[]Instance{hello(), hello()}, ErrProtocol},
		"data before response":   {[]Instance{hello(), ping}, ErrProtocol},
		"refused":                {[]Instance{hello(), refusal}, ErrRefused},
		"no id":                  {[]Instance{hello(), nobody}, ErrProtocol},
		"id of the broker":       {[]Instance{hello(), accept(1)}, ErrProtocol},
		"not finished":           {[]Instance{hello(), accept(2), accept(2)}, ErrProtocol},
		"hello when accepted":    {[]Instance{hello(), accept(2), hello()}, ErrProtocol},
		"goodbye":                {[]Instance{hello(), goodbye}, ErrGoodbye},
		"goodbye before a hello": {[]Instance{&system.DotsMsgError{}}, ErrGoodbye},
		"error":                  {[]Instance{failure}, &BrokerError{}},
	} {
		t.Run(name, func(t *testing.T) {
			client := New(Options{})
			_, err := Subscribe(client, func(*Event[*demo.DemoPing]) { t.Error("data before the client was accepted") })
			must(t, err)
			p, result := connecting(t, client)
			for _, x := range c.send {
				p.send(x)
			}
			err = <-result
			if reported := (*BrokerError)(nil); errors.As(c.want, &reported) {
				if !errors.As(err, &reported) || reported.Code != 7 || !strings.Contains(err.Error(), `"no\x00!"`) {
					t.Errorf("%v", err)
				}
			} else if !errors.Is(err, c.want) {
				t.Errorf("%v instead of %v", err, c.want)
			}
		})
	}
}

// TestConnectEnds has brokers that close, or say nothing until the context ends.
func TestConnectEnds(t *testing.T) {
	c := New(Options{})
	p, result := connecting(t, c)
	_ = p.conn.Close()
	err := <-result
	assert.Check(t, errors.Is(err, io.ErrUnexpectedEOF), "a broker that closes: %v", err)
	mine, _ := streams(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = New(Options{}).ConnectConn(ctx, mine, frame.V2)
	assert.Check(t, errors.Is(err, context.DeadlineExceeded), "a silent broker: %v", err)
	assert.Check(t, New(Options{}).Connect(t.Context(), "uds:///nonexistent") != nil, "no broker, no error")
}

// TestDescriptors: enums and nested structs are described before their users, once; data may arrive
// at any time after the broker has accepted the client.
func TestDescriptors(t *testing.T) {
	c := New(Options{})
	n := 0
	_, err := Subscribe(c, func(*Event[*demo.DemoPing]) { n++ })
	must(t, err)
	must(t, c.Describe(demoAll().Descriptor(), gadget(0).Descriptor()))
	p, result := connecting(t, c)
	p.send(hello())
	p.read(&system.DotsMsgConnect{})
	p.send(accept(2))
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	p.send(&system.DotsClient{ID: value.Some[uint32](9)})
	var e system.EnumDescriptorData
	p.read(&e)
	names := []string{e.Name.Value()}
	for range 4 {
		var s system.StructDescriptorData
		p.read(&s)
		names = append(names, s.Name.Value())
	}
	equal(t, names, "DemoColor", "DemoPart", "DemoAll", "DemoGadget", "DemoPing")
	p.read(&system.DotsMember{})
	p.finish(result)
	assert.Check(t, n == 1, "%d events before the end of the preload", n)
	testenv.Poll(t, time.Minute, "the frames of both sides", func() bool {
		got := c.Counters()
		return got.Unsubscribed == 1 && got.ReceivedFrames == 5 && got.SentFrames == 9
	})
	must(t, c.Publish(t.Context(), gadget(1)))
	p.read(&demo.DemoGadget{})
	p.send(&system.DotsMsgError{ErrorCode: value.Some[int32](0)})
	<-c.Done()
	assert.Check(t, errors.Is(c.Err(), ErrGoodbye), c.Err())
	err = c.Publish(t.Context(), gadget(1))
	assert.Check(t, errors.Is(err, ErrGoodbye), "publishing after the end: %v", err)
	must(t, c.Close())
}

// ready returns a client with a connection, and the broker that the test plays.
func readyClient(t *testing.T, c *Client) *peer {
	t.Helper()
	p, result := connecting(t, c)
	p.send(hello())
	p.read(&system.DotsMsgConnect{})
	p.send(accept(2))
	p.finish(result)
	return p
}

// TestPublish: attributes are there always, and have the key; what may not be published is not.
func TestPublish(t *testing.T) {
	c := New(Options{})
	p := readyClient(t, c)
	ctx := t.Context()
	must(t, c.Describe(gadget(0).Descriptor()))
	p.read(&system.EnumDescriptorData{})
	p.read(&system.StructDescriptorData{})
	p.read(&system.StructDescriptorData{})
	x := gadget(5)
	x.Name.Set("five")
	var got demo.DemoGadget
	for _, c := range []struct {
		err        error
		attributes value.PropertySet
		valid      value.PropertySet
	}{
		{c.Publish(ctx, x), 0x6, 0x6},
		{c.PublishProperties(ctx, x, 0), 0x2, 0x2},
		{c.PublishProperties(ctx, x, demo.DemoGadgetLevel), 0x42, 0x2},
		{c.PublishProperties(ctx, x, ^value.PropertySet(0)), 0x7e, 0x6},
		{c.Remove(ctx, x), 0x2, 0x2},
	} {
		must(t, c.err)
		h := p.read(&got)
		if h.Set != frame.TypeName|frame.SentTime|frame.Attributes|frame.RemoveObj ||
			h.Attributes != c.attributes || got.Valid() != c.valid {
			t.Errorf("%+v, %+v", h, got)
		}
		age := time.Since(h.SentTime.Time())
		assert.Check(t, age >= 0 && age <= time.Minute, "sent %v ago", age)
	}
	for want, err := range map[error]error{
		ErrNoKey:     c.Publish(ctx, &demo.DemoGadget{Name: value.Some("x")}),
		ErrSubstruct: c.Publish(ctx, &demo.DemoPart{}),
		ErrUncached:  c.Remove(ctx, &demo.DemoPing{}),
	} {
		assert.Check(t, errors.Is(err, want), "%v instead of %v", err, want)
	}
	_, err := Subscribe[*demo.DemoPart](c, nil)
	assert.Check(t, errors.Is(err, ErrSubstruct), "subscribing to a part: %v", err)
	_, err = c.SubscribeType("Nonsense", nil)
	assert.Check(t, errors.Is(err, ErrUnknownType), "subscribing to an unknown type: %v", err)
	_, err = SubscribeFiltered[*demo.DemoPing](c, &system.DotsFilter{}, nil)
	assert.Check(t, errors.Is(err, ErrUnsupported), "subscribing with a filter: %v", err)
}

// TestOwn: a client's own objects are those with its id as sender; without a sender it is the
// broker. What the broker says about it does not count.
func TestOwn(t *testing.T) {
	c := New(Options{NoPreload: true})
	conn := accepted(t, c)
	o := newObserver()
	_, err := Subscribe(c, func(e *Event[*demo.DemoThing]) {
		o.add(fmt.Sprint(e.Own, " ", e.Header.Sender, " ", e.Header.Attributes, " ", e.Header.SentTime > 0))
	})
	must(t, err)
	p := &peer{t: t, conn: conn}
	x := &demo.DemoThing{ID: value.Some[uint32](1)}
	lie := frame.IsFromMyself
	p.sendHeader(x, frame.Header{Set: lie, IsFromMyself: true})
	p.sendHeader(x, frame.Header{Sender: 2, Set: frame.Sender | lie})
	p.sendHeader(x, frame.Header{Sender: 3, Set: frame.Sender | lie, IsFromMyself: true})
	equal(t, o.wait(t, 3), "false 1 2 true", "true 2 2 true", "false 3 2 true")
}

// TestContainer: what transmissions do to a container, and the events.
func TestContainer(t *testing.T) {
	c := New(Options{NoPreload: true})
	p := &peer{t: t, conn: accepted(t, c)}
	o := newObserver()
	var s *Subscription[demo.DemoGadget, demo.DemoGadgetKey]
	s, err := Subscribe(c, func(e *Event[*demo.DemoGadget]) {
		o.add(fmt.Sprint(e.Operation, " ", e.Transmitted.Valid(), " ", e.Updated.Valid(), " ", e.Clone.CreatedFrom,
			" ", e.Clone.LastUpdateFrom, " ", float64(e.Clone.Created), " ", float64(e.Clone.Modified)))
	})
	must(t, err)
	x := gadget(1)
	x.Name.Set("one")
	x.Part.Set(demo.DemoPart{Flag: value.Some(true), Label: value.Some("p")})
	from := func(sender uint32, attributes value.PropertySet, remove bool) frame.Header {
		return frame.Header{
			Sender: sender, SentTime: value.Timepoint(sender), Attributes: attributes, RemoveObj: remove,
			Set: frame.Sender | frame.SentTime | frame.Attributes | frame.RemoveObj,
		}
	}
	p.sendHeader(x, from(5, 0x12, false)) // the name is not transmitted
	x.Part.Set(demo.DemoPart{Flag: value.Some(false)})
	x.Level.Set(3)
	p.sendHeader(x, from(6, 0x50, false)) // the key is not in the attributes, but it is the key
	x.Level.Unset()
	p.sendHeader(x, from(7, 0x46, false)) // no level any more
	equal(t, o.wait(t, 3), "create 18 18 5 5 5 5", "update 82 82 5 6 5 6", "update 6 22 5 7 5 7")
	got, clone, ok := s.GetClone(demo.DemoGadgetKey{ID: 1})
	part := got.Part.Value()
	assert.Check(t, ok && !part.Label.IsSet() && !part.Flag.Or(true) && clone.LocalUpdate > clone.Modified,
		"%+v, %+v: structs are replaced as a whole", got, clone)
	p.sendHeader(gadget(2), from(8, 2, true)) // unknown: no event
	x.Level.Set(9)
	p.sendHeader(x, from(8, 0x42, true)) // final values of what is removed
	equal(t, o.wait(t, 4)[3:], "remove 66 86 5 8 5 8")
	if _, ok := s.Get(demo.DemoGadgetKey{ID: 1}); ok || s.Len() != 0 {
		t.Error("not removed")
	}
}
