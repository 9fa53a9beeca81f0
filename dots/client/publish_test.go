package client

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

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
		h, _ := p.frame()
		assert.Assert(t, strings.HasSuffix(string(h.TypeName), "DescriptorData"), "%s", h.TypeName)
	}
	color, part, vector := gadget(1), gadget(1), demoAll()
	color.Color.Set(3)
	part.Part.Set(demo.DemoPart{Label: value.Some("\xff")})
	vector.Vs.Set([]string{"a", "\xff"})
	for _, x := range []Instance{
		color, part, vector, &odd, Dynamic{decodeDynamic(t, &odd)}, &demo.DemoSingle{Text: value.Some("\xc0\x80")},
	} {
		err := c.Publish(t.Context(), x)
		assert.Check(t, errors.Is(err, ErrInvalid), "%+v: %v", x, err)
	}
	err := c.Remove(t.Context(), &odd)
	assert.Check(t, errors.Is(err, ErrInvalid), "removing: %v", err)
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

// gate is a writer that waits until it is opened.
type gate struct {
	io.Writer
	waits, open chan struct{}
}

func (g gate) Write(data []byte) (int, error) {
	select {
	case g.waits <- struct{}{}:
	case <-g.open:
	}
	<-g.open
	return g.Writer.Write(data)
}

// block has nothing written until the gate is opened, at the latest by the end of the test, and fills the
// buffer until publications wait. It returns how many are in it.
func (c *Client) block(t *testing.T, x Instance) (open func(), published int) {
	t.Helper()
	g := gate{c.out.w, make(chan struct{}), make(chan struct{})}
	open = sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(open)
	c.out.mu.Lock()
	c.out.w = g
	c.out.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // who has to wait does not
	fill := func() {
		for c.Publish(ctx, x) == nil {
			published++
		}
	}
	fill()
	<-g.waits // what is being written is no longer in the buffer
	fill()
	return open, published
}

// TestBackPressure: a publisher waits for a broker that does not read, as long as its context lets
// it.
func TestBackPressure(t *testing.T) {
	c := New(Options{OutputBytes: 1 << 10})
	p := readyClient(t, c)
	x := &demo.DemoSingle{Text: value.Some(strings.Repeat("x", 1000))}
	open, published := c.block(t, x)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Publish(ctx, x) }()
	testenv.Poll(t, time.Minute, "a publisher that waits", func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return c.out.waiters != nil
	})
	assert.Check(t, len(result) == 0)
	cancel()
	err := <-result
	assert.Check(t, errors.Is(err, context.Canceled), err)
	go func() { result <- c.Publish(t.Context(), x) }()
	open()
	p.read(&system.StructDescriptorData{})
	for range published + 1 {
		p.read(&demo.DemoSingle{})
	}
	must(t, <-result)
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
