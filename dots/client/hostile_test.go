package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"
	"unsafe"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
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
	if rest, err := io.ReadAll(p.conn); err != nil || len(rest) != 0 {
		t.Errorf("after the goodbye: %x, %v", rest, err)
	}
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	_ = p.conn.(*net.UnixConn).Close()
	must(t, <-closing)
	if n != 1 || !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("%d events, %v", n, c.Err())
	}
	must(t, c.Close())
	must(t, New(Options{}).Close())
}

// TestCloseTimeout has a broker that does not close.
func TestCloseTimeout(t *testing.T) {
	c := New(Options{CloseTimeout: 10 * time.Millisecond})
	readyClient(t, c)
	if err := c.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
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
		if err := c.Close(); !errors.Is(err, ErrHandler) {
			t.Errorf("Close: %v", err)
		}
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
	if err := connecting.ConnectConn(ctx, mine, frame.V2); !errors.Is(err, ErrHandler) || !errors.Is(err, ctx.Err()) {
		t.Errorf("Connect: %v", err)
	}
	close(blocked)
	<-c.Done()
	<-connecting.Done()
	must(t, c.Close())
}

// pong answers a question of the client, which must be the next that it sends.
func (p *peer) pong() {
	p.t.Helper()
	var echo system.DotsEcho
	p.read(&echo)
	echo.Request.Set(false)
	p.send(&echo)
}

// replay sends things as a broker does that has them cached.
func (p *peer) replay(ids ...uint32) {
	p.t.Helper()
	for i, id := range ids {
		p.sendHeader(&demo.DemoThing{ID: value.Some(id)}, frame.Header{
			Sender: 1, FromCache: uint32(len(ids) - 1 - i), Set: frame.Sender | frame.FromCache,
		})
	}
	p.send(&system.DotsCacheInfo{TypeName: value.Some("DemoThing"), EndTransmission: value.Some(true)})
}

// TestClosedBeforeReplay: the replay of a subscription that was closed meanwhile is not taken for
// that of the next one.
func TestClosedBeforeReplay(t *testing.T) {
	for _, other := range []bool{false, true} { // another subscription, so that the group is not left
		c := New(Options{})
		p := &peer{t: t, conn: accepted(t, c)}
		subscribe := func() *Subscription[demo.DemoThing, demo.DemoThingKey] {
			s, err := Subscribe[*demo.DemoThing](c, nil)
			must(t, err)
			return s
		}
		if other {
			subscribe()
			p.replay()
		}
		first := subscribe()
		must(t, first.Close())
		second := subscribe()
		p.replay(1, 2)
		p.replay(2, 3)
		must(t, second.Wait(t.Context()))
		_, stale := second.Get(demo.DemoThingKey{ID: 1})
		if stale || second.Len() != 2 || first.Len() != 0 {
			t.Errorf("%d objects, the stale one %v; %d in the closed one", second.Len(), stale, first.Len())
		}
		if n := len(c.routes.Load().byName["DemoThing"].subs); other && n != 2 || !other && n != 1 {
			t.Errorf("%d subscriptions are kept", n)
		}
	}
}

// TestClosedWithoutReplay: a broker that replays nothing, as it knows the type as uncached, leaves
// no closed subscription behind.
func TestClosedWithoutReplay(t *testing.T) {
	c := New(Options{})
	p := &peer{t: t, conn: accepted(t, c)}
	s, err := Subscribe[*demo.DemoThing](c, nil)
	must(t, err)
	must(t, s.Close())
	p.read(&system.DotsMsgConnect{})
	p.read(&system.DotsClient{})
	p.read(&system.StructDescriptorData{})
	p.read(&system.DotsMember{})
	p.read(&system.DotsMember{})
	p.pong()
	must(t, s.Wait(t.Context()))
	if r := c.routes.Load().byName["DemoThing"]; r != nil {
		t.Errorf("%d subscriptions are kept", len(r.subs))
	}
}

// TestSubscribeDuringPreload: what a handler subscribes to while the broker fills older containers
// is not filled when those are.
func TestSubscribeDuringPreload(t *testing.T) {
	c := New(Options{})
	late := make(chan *Subscription[demo.DemoThing, demo.DemoThingKey], 1)
	_, err := Subscribe(c, func(*Event[*demo.DemoPing]) {
		s, err := Subscribe[*demo.DemoThing](c, nil)
		must(t, err)
		late <- s
	})
	must(t, err)
	p, result := connecting(t, c)
	p.send(hello())
	p.send(accept(2))
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	p.send(&system.DotsMsgConnectResponse{PreloadFinished: value.Some(true)})
	must(t, <-result)
	s := <-late
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || s.isFilled() {
		t.Errorf("filled before the replay: %v", err)
	}
	p.replay(1)
	must(t, s.Wait(t.Context()))
	if s.Len() != 1 {
		t.Errorf("%d objects", s.Len())
	}
}

// TestNoPreloadAtBroker: a broker that does not fill containers while a client connects fills them
// later.
func TestNoPreloadAtBroker(t *testing.T) {
	c := New(Options{})
	s, err := Subscribe[*demo.DemoThing](c, nil)
	must(t, err)
	p, result := connecting(t, c)
	p.send(hello())
	response := accept(2)
	response.Preload.Set(false)
	p.send(response)
	must(t, <-result)
	if s.isFilled() {
		t.Error("filled before the replay")
	}
	p.replay(1)
	must(t, s.Wait(t.Context()))
	if s.Len() != 1 {
		t.Errorf("%d objects", s.Len())
	}
}

// TestProtocolTypesAreNotDescribed: every guest knows them.
func TestProtocolTypesAreNotDescribed(t *testing.T) {
	c := New(Options{})
	p := readyClient(t, c)
	user, err := schema.NewStruct("User", schema.Flags{}, []schema.Property{
		{Name: "mt", Tag: 1, Type: schema.OfEnum(system.DotsMt(0).Descriptor())},
		{Name: "statistics", Tag: 2, Type: schema.OfStruct((*system.DotsStatistics)(nil).Descriptor())},
	}, "")
	must(t, err)
	must(t, c.Describe(user))
	var s system.StructDescriptorData
	if p.read(&s); s.Name.Value() != "User" {
		t.Errorf("%s is described", s.Name.Value())
	}
}

// TestSecrets: that of the options counts, then that of the endpoint.
func TestSecrets(t *testing.T) {
	for _, test := range []struct{ option, uri, want string }{
		{"option", "tcp://:endpoint@127.0.0.1:1", "option"}, {"", "tcp://:endpoint@127.0.0.1:1", "endpoint"},
	} {
		c := New(Options{Secret: test.option})
		if err := c.Connect(t.Context(), test.uri); err == nil {
			t.Fatal("connected")
		}
		if c.options.Secret != test.want {
			t.Errorf("%q instead of %q", c.options.Secret, test.want)
		}
	}
}

// TestPublishInvalid: what brokers do not accept is not sent, and does not cost the connection.
func TestPublishInvalid(t *testing.T) {
	c := New(Options{})
	p := readyClient(t, c)
	must(t, c.Publish(t.Context(), &demo.DemoSingle{Text: value.Some("first")}))
	p.read(&system.StructDescriptorData{})
	p.read(&demo.DemoSingle{})
	nan := demo.OddPart{D: value.Some(value.Duration(math.NaN()))}
	odd := demo.OddKeys{
		Color: value.Some(demo.OddEnumIsIn), ID: value.Some(value.UUID{}), Text: value.Some(""), Part: value.Some(nan),
	}
	must(t, c.Describe(gadget(0).Descriptor(), odd.Descriptor(), demoAll().Descriptor()))
	for range 7 {
		if h, _ := p.frame(); !strings.HasSuffix(string(h.TypeName), "DescriptorData") {
			t.Fatalf("%s", h.TypeName)
		}
	}
	color, part, vector := gadget(1), gadget(1), demoAll()
	color.Color.Set(3)
	part.Part.Set(demo.DemoPart{Label: value.Some("\xff")})
	vector.Vs.Set([]string{"a", "\xff"})
	for _, x := range []Instance{
		color, part, vector, &odd, Dynamic{decodeDynamic(t, &odd)}, &demo.DemoSingle{Text: value.Some("\xc0\x80")},
	} {
		if err := c.Publish(t.Context(), x); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if err := c.Remove(t.Context(), &odd); !errors.Is(err, ErrInvalid) {
		t.Errorf("removing: %v", err)
	}
	sent := c.Counters().SentFrames
	must(t, c.Publish(t.Context(), &demo.DemoSingle{Text: value.Some("last")}))
	var got demo.DemoSingle
	if p.read(&got); got.Text.Value() != "last" || c.Counters().SentFrames != sent+1 {
		t.Errorf("%+v", got)
	}
}

func decodeDynamic(t *testing.T, x Instance) *dynamic.Object {
	t.Helper()
	o, _, err := dynamic.Decode(x.Descriptor(), x.AppendInstance(nil, x.Valid()))
	must(t, err)
	return o
}

// TestKeyNaN: objects whose key equals nothing do not fill a container.
func TestKeyNaN(t *testing.T) {
	c := New(Options{})
	p := &peer{t: t, conn: accepted(t, c)}
	o := newObserver()
	s, err := Subscribe(c, func(*Event[*demo.OddKeys]) { o.add("odd") })
	must(t, err)
	odd := demo.OddKeys{Color: value.Some(demo.OddEnumIsIn), ID: value.Some(value.UUID{}), Text: value.Some("")}
	for _, d := range []float64{math.NaN(), math.NaN(), 1} {
		odd.Part.Set(demo.OddPart{D: value.Some(value.Duration(d))})
		p.send(&odd)
	}
	o.wait(t, 1)
	if s.Len() != 1 || c.Counters().KeysRefused != 2 {
		t.Errorf("%d objects, %+v", s.Len(), c.Counters())
	}
}

// TestHostileBroker has brokers that exceed bounds, or send what is no DOTS.
func TestHostileBroker(t *testing.T) {
	name := strings.Repeat("n", 100)
	thing := func(id uint32) []byte {
		return encode(t, &demo.DemoThing{ID: value.Some(id), Name: value.Some(name)}, frame.Header{})
	}
	h := frame.Header{TypeName: []byte("DemoThing"), Attributes: 2, Set: frame.TypeName | frame.Attributes}
	raw := func(instance string) []byte {
		data, err := frame.Append(nil, frame.V2, &h, false, 0, []byte(instance))
		must(t, err)
		return data
	}
	failure := &system.DotsMsgError{ErrorCode: value.Some[int32](-1)}
	for what, c := range map[string]struct {
		data []byte
		want error
	}{
		"large frame":        {[]byte{0x1a, 0, 1, 0, 0}, frame.ErrTooLarge},
		"no frame":           {[]byte("HTTP/1.1 200 OK"), ErrProtocol},
		"objects":            {bytes.Join([][]byte{thing(1), thing(2), thing(3), thing(4)}, nil), ErrTooLarge},
		"bytes":              {bytes.Join([][]byte{thing(1), thing(2), thing(3)}, nil), ErrTooLarge},
		"no key":             {raw("\xa0"), ErrNoKey},
		"excess":             {raw("\xa1\x01\x01\x00"), ErrProtocol},
		"cut":                {raw("\xa2\x01\x01"), ErrProtocol},
		"other type":         {raw("\xa1\x01\x61x"), ErrProtocol},
		"error without data": {encode(t, failure, frame.Header{}), &BrokerError{}},
	} {
		for _, dynamic := range []bool{false, true} {
			t.Run(fmt.Sprint(what, dynamic), func(t *testing.T) {
				client := New(Options{Objects: 3, ObjectBytes: 300, FrameBytes: 65535})
				p := &peer{t: t, conn: accepted(t, client)}
				var err error
				if dynamic {
					_, err = client.registry.AddStruct((*demo.DemoThing)(nil).Descriptor())
					must(t, err)
					_, err = client.SubscribeType("DemoThing", nil)
				} else {
					_, err = Subscribe[*demo.DemoThing](client, nil)
				}
				must(t, err)
				_, err = p.conn.Write(c.data)
				must(t, err)
				<-client.Done()
				err = client.Err()
				if reported := (*BrokerError)(nil); errors.As(c.want, &reported) {
					if !errors.As(err, &reported) {
						t.Error(err)
					}
				} else if !errors.Is(err, c.want) {
					t.Errorf("%v instead of %v", err, c.want)
				}
			})
		}
	}
}

// TestSmallObjectsFill: objects that are short when encoded count with the memory that they take.
func TestSmallObjectsFill(t *testing.T) {
	const bytes = 100_000
	c := New(Options{ObjectBytes: bytes})
	p := &peer{t: t, conn: accepted(t, c)}
	s, err := Subscribe[*demo.DemoAll](c, nil)
	must(t, err)
	var data []byte
	most := bytes / int(unsafe.Sizeof(demo.DemoAll{}))
	for id := range most {
		data = append(data, encode(t, &demo.DemoAll{ID: value.Some(fmt.Sprint(id))}, frame.Header{})...)
	}
	if _, err := p.conn.Write(data); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if !errors.Is(c.Err(), ErrTooLarge) || s.Len() >= most {
		t.Errorf("%d objects: %v", s.Len(), c.Err())
	}
}

// TestPingsEnd: pings wait for room as publishers do, and leave nothing when their context ends.
func TestPingsEnd(t *testing.T) {
	c := New(Options{OutputBytes: 1 << 10})
	readyClient(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) || len(c.pings) != 0 {
		t.Errorf("%v, %d are kept", err, len(c.pings))
	}
	for blocked := 0; blocked < 2; { // until a write waits, and the buffer behind it is full
		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := c.Publish(ctx, &demo.DemoSingle{Text: value.Some(strings.Repeat("x", 1000))}); err != nil {
			blocked++
		}
	}
	before := c.pinged
	if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) || c.pinged != before {
		t.Errorf("%v, %d sent", err, c.pinged-before)
	}
}

// TestUpdatesDoNotFill: updates of one object do not add up to a full container.
func TestUpdatesDoNotFill(t *testing.T) {
	c := New(Options{ObjectBytes: 1000})
	p := &peer{t: t, conn: accepted(t, c)}
	o := newObserver()
	s, err := Subscribe(c, func(*Event[*demo.DemoThing]) { o.add("") })
	must(t, err)
	x := &demo.DemoThing{ID: value.Some[uint32](1), Name: value.Some(strings.Repeat("n", 100))}
	for range 100 {
		p.send(x)
	}
	o.wait(t, 100)
	if s.Len() != 1 || c.Err() != nil {
		t.Errorf("%d objects, %v", s.Len(), c.Err())
	}
}

// TestDescriptionsOfBroker: types that a broker describes are known then, and not described back;
// those that are wrong, or another type of a known name, are counted.
func TestDescriptionsOfBroker(t *testing.T) {
	c := New(Options{})
	p := readyClient(t, c)
	other, err := schema.NewStruct("DemoThing", schema.Flags{}, []schema.Property{
		{Name: "x", Tag: 1, Type: schema.Builtin(schema.String)},
	}, "")
	must(t, err)
	bad := system.DescribeStruct(other)
	bad.Name.Set("Bad")
	bad.Properties.Value()[0].Type.Set("NoType")
	p.send(system.DescribeStruct((*demo.DemoThing)(nil).Descriptor()))
	p.send(system.DescribeStruct(other))
	p.send(bad)
	p.send(&system.DotsEcho{Request: value.Some(true)})
	pinged := make(chan error, 1)
	go func() { pinged <- c.Ping(t.Context()) }()
	var echo system.DotsEcho
	p.read(&echo)
	echo.Request.Set(false)
	p.send(&echo)
	must(t, <-pinged)
	must(t, c.Publish(t.Context(), &demo.DemoThing{ID: value.Some[uint32](1)}))
	p.read(&demo.DemoThing{})
	if got := c.Counters(); got.TypeConflicts != 1 || got.TypesRefused != 1 || c.Types().Struct("Bad") != nil {
		t.Errorf("%+v", got)
	}
}

// TestBackPressure: a publisher waits for a broker that does not read, as long as its context lets
// it.
func TestBackPressure(t *testing.T) {
	c := New(Options{OutputBytes: 1 << 10})
	p := readyClient(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	x := &demo.DemoSingle{Text: value.Some(strings.Repeat("x", 1000))}
	published := 0
	var err error
	for ; err == nil; published++ {
		err = c.Publish(ctx, x)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	p.read(&system.StructDescriptorData{})
	for range published - 1 {
		p.read(&demo.DemoSingle{})
	}
	must(t, c.Publish(t.Context(), x))
	p.read(&demo.DemoSingle{})
}

// TestPublishInHandler: what handlers publish is written without waiting for anything else, also
// while a handler takes long.
func TestPublishInHandler(t *testing.T) {
	c := New(Options{})
	p := readyClient(t, c)
	blocked := make(chan struct{})
	_, err := Subscribe(c, func(e *Event[*demo.DemoPing]) {
		must(t, c.Publish(t.Context(), &demo.DemoEvent{N: e.Updated.N}))
		if e.Updated.N.Value() == 3 {
			<-blocked
		}
	})
	must(t, err)
	p.read(&system.StructDescriptorData{})
	p.read(&system.DotsMember{})
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	p.read(&system.StructDescriptorData{})
	for n := range uint32(3) {
		if n > 0 {
			p.send(&demo.DemoPing{N: value.Some(n + 1)})
		}
		var e demo.DemoEvent
		if p.read(&e); e.N.Value() != n+1 {
			t.Errorf("%+v", e)
		}
	}
	close(blocked)
}
