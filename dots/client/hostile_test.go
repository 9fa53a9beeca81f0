package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// TestSecrets: that of the options counts, then that of the endpoint.
func TestSecrets(t *testing.T) {
	for _, test := range []struct{ option, uri, want string }{
		{"option", "tcp://:endpoint@127.0.0.1:1", "option"}, {"", "tcp://:endpoint@127.0.0.1:1", "endpoint"},
	} {
		c := New(Options{Secret: test.option})
		assert.Assert(t, c.Connect(t.Context(), test.uri) != nil, "connected")
		assert.Check(t, c.options.Secret == test.want, "%q instead of %q", c.options.Secret, test.want)
	}
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
	assert.Check(t, s.Len() == 1 && c.Counters().KeysRefused == 2, "%d objects, %+v", s.Len(), c.Counters())
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
					assert.Check(t, errors.As(err, &reported), err)
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
	_, err = p.conn.Write(data)
	assert.NilError(t, err)
	<-c.Done()
	assert.Check(t, errors.Is(c.Err(), ErrTooLarge) && s.Len() < most, "%d objects: %v", s.Len(), c.Err())
}

// TestPingsEnd: pings wait for room as publishers do, and leave nothing when their context ends.
func TestPingsEnd(t *testing.T) {
	c := New(Options{OutputBytes: 1 << 10})
	p := readyClient(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Ping(ctx) }()
	p.read(&system.DotsEcho{})
	cancel()
	err := <-result
	assert.Check(t, errors.Is(err, context.Canceled) && len(c.pings) == 0, "%v, %d are kept", err, len(c.pings))
	c.block(t, &demo.DemoSingle{Text: value.Some(strings.Repeat("x", 1000))})
	before := c.pinged
	err = c.Ping(ctx)
	assert.Check(t, errors.Is(err, context.Canceled) && c.pinged == before, "%v, %d sent", err, c.pinged-before)
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
	assert.Check(t, s.Len() == 1 && c.Err() == nil, "%d objects, %v", s.Len(), c.Err())
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
	got := c.Counters()
	assert.Check(t, got.TypeConflicts == 1 && got.TypesRefused == 1 && c.Types().Struct("Bad") == nil, "%+v", got)
}

// TestLongFrame: a frame that is longer than the buffer for reading arrives, and what is behind it.
func TestLongFrame(t *testing.T) {
	c := New(Options{})
	p := &peer{t: t, conn: accepted(t, c)}
	o := newObserver()
	_, err := Subscribe(c, func(e *Event[*demo.DemoThing]) { o.add(fmt.Sprint(len(e.Updated.Name.Value()))) })
	must(t, err)
	for id, n := range []int{1, 3 * readBytes, 2} {
		p.send(&demo.DemoThing{ID: value.Some(uint32(id)), Name: value.Some(strings.Repeat("n", n))})
	}
	equal(t, o.wait(t, 3), "1", fmt.Sprint(3*readBytes), "2")
}

// TestUnusualInstance: of a type that is known at run time only, instances are kept in canonical form, and
// without what is not transmitted.
func TestUnusualInstance(t *testing.T) {
	c := New(Options{})
	_, err := c.registry.AddStruct((*demo.DemoThing)(nil).Descriptor())
	must(t, err)
	p := &peer{t: t, conn: accepted(t, c)}
	o := newObserver()
	_, err = c.SubscribeType("DemoThing", func(e *Event[*Raw]) { o.add(fmt.Sprintf("%x", e.Transmitted.Instance)) })
	must(t, err)
	for _, attributes := range []value.PropertySet{6, 2} {
		h := frame.Header{TypeName: []byte("DemoThing"), Attributes: attributes, Set: frame.TypeName | frame.Attributes}
		data, err := frame.Append(nil, frame.V2, &h, false, 0, []byte("\xa2\x02\x61a\x18\x01\x19\x00\x01"))
		must(t, err)
		_, err = p.conn.Write(data)
		must(t, err)
	}
	equal(t, o.wait(t, 2), "a20101026161", "a10101")
}
