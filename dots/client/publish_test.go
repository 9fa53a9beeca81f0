package client

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
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
	assert.Assert(t, errors.Is(err, context.DeadlineExceeded), err)
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
