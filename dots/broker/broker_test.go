package broker

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

func TestSeveralEndpoints(t *testing.T) {
	b := newBroker(t, Options{})
	guests := []*peer{
		connect(t, listenAt(t, b, "tcp://127.0.0.1:0"), frame.V2),
		connect(t, listenAt(t, b, "tcp-v1://127.0.0.1:0"), frame.V1),
		connect(t, listenUnix(t, b, frame.V2), frame.V2),
		connect(t, listenUnix(t, b, frame.V1), frame.V1),
	}
	s := (&demo.DemoThing{}).Descriptor()
	for _, g := range guests {
		g.describe(s)
		g.join(s.Name)
		g.expect("DotsCacheInfo")
	}
	guests[1].send(&demo.DemoThing{ID: value.Some[uint32](1), Name: value.Some("a")})
	for _, g := range guests {
		g.want("DemoThing", 1<<1|1<<2, guests[1].id, false, "a20101026161")
	}
}

// TestNormalises checks what is made of headers and instances that would hurt subscribers.
func TestNormalises(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	p := connect(t, addr, frame.V2)
	p.describe((&demo.DemoThing{}).Descriptor())
	p.join("DemoThing")
	p.expect("DotsCacheInfo")
	const id, name = 1 << 1, 1 << 2
	tests := []struct {
		what       string
		h          frame.Header
		instance   string
		attributes value.PropertySet
		want       string
	}{
		{"no attributes", frame.Header{}, "\xa2\x01\x01\x02\x61a", id | name, "a20101026161"},
		{"attributes without the key", frame.Header{Attributes: name, Set: frame.Attributes}, "\xa2\x01\x01\x02\x61b",
			id | name, "a20101026162"},
		{"more than the attributes", frame.Header{Attributes: id, Set: frame.Attributes}, "\xa2\x01\x01\x02\x61c", id, "a10101"},
		{"unset", frame.Header{Attributes: id | name, Set: frame.Attributes}, "\xa1\x01\x01", id | name, "a10101"},
		{"unknown property", frame.Header{}, "\xa3\x01\x01\x02\x61d\x0c\x83\x01\x02\x03", id | name, "a20101026164"},
		{"unknown attribute", frame.Header{Attributes: id | 1<<12, Set: frame.Attributes}, "\xa1\x01\x01", id, "a10101"},
		{"another order, long integers", frame.Header{},
			"\xa2\x02\x61e\x18\x01\x19\x00\x01", id | name, "a20101026165"},
		{"twice", frame.Header{}, "\xa3\x01\x01\x02\x61x\x02\x61f", id | name, "a20101026166"},
		{"sender, fromCache, isFromMyself", frame.Header{Sender: 99, FromCache: 3, IsFromMyself: true,
			Set: frame.Sender | frame.FromCache | frame.IsFromMyself}, "\xa1\x01\x01", id, "a10101"},
	}
	for _, tt := range tests {
		before := value.TimepointOf(time.Now())
		p.raw("DemoThing", false, tt.h, []byte(tt.instance))
		r := p.want("DemoThing", tt.attributes, p.id, false, tt.want)
		assert.Check(t, r.Set&frame.FromCache == 0 && !r.IsFromMyself && r.Set == forwarded && r.SentTime >= before &&
			r.ServerSentTime >= before,
			"%s: %+v", tt.what, r.Header)
	}
	late := connect(t, addr, frame.V2)
	late.join("DemoThing")
	late.expect("StructDescriptorData")
	late.want("DemoThing", id|name, p.id, false, "a20101026166")
}

// TestDescribesBeforeInstances checks that a guest gets the descriptions that it needs, before live
// instances and before replayed ones, each once, dependencies first.
func TestDescribesBeforeInstances(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	publisher, live := connect(t, addr, frame.V2), connect(t, addr, frame.V2)
	live.join("DemoGadget") // which is not known yet
	live.join("DemoPing")
	live.barrier()
	gadget := &demo.DemoGadget{ID: value.Some[uint32](1), Color: value.Some(demo.DemoColorGreen)}
	publisher.describe(gadget.Descriptor())
	publisher.describe((&demo.DemoPing{}).Descriptor())
	publisher.send(gadget)
	publisher.send(gadget)
	publisher.send(&demo.DemoPing{N: value.Some[uint32](1)})
	for _, name := range []string{"EnumDescriptorData", "StructDescriptorData", "StructDescriptorData", "DemoGadget",
		"DemoGadget", "StructDescriptorData", "DemoPing"} {
		live.expect(name)
	}
	late := connect(t, addr, frame.V2)
	late.join("DemoGadget")
	late.join("DemoGadget")
	for _, name := range []string{"EnumDescriptorData", "StructDescriptorData", "StructDescriptorData", "DemoGadget",
		"DotsCacheInfo", "DemoGadget", "DotsCacheInfo"} {
		late.expect(name)
	}
	late.send(&system.DotsDescriptorRequest{Whitelist: value.Some([]string{"DemoGadget", "DemoPing"})})
	late.expect("StructDescriptorData")
	late.want("DotsCacheInfo", 1<<4, 0, false, "a104f5")
	publisher.join("DemoGadget") // it has sent the description
	publisher.expect("DemoGadget")
}

func TestTypeConflict(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	p, watcher := connect(t, addr, frame.V2), connect(t, addr, frame.V2)
	watcher.join("StructDescriptorData")
	watcher.barrier()
	p.describe((&demo.DemoThing{}).Descriptor())
	watcher.expect("StructDescriptorData") // automatically
	watcher.expect("StructDescriptorData") // forwarded
	other, err := schema.NewStruct("DemoThing", schema.Flags{}, []schema.Property{
		{Name: "only", Tag: 3, Type: schema.Builtin(schema.Bool), Key: true}}, "")
	assert.NilError(t, err)
	p.describe(other)
	watcher.expect("StructDescriptorData")
	p.send(thing(1)) // as the first description says
	p.barrier()
	c := b.Counters()
	assert.Check(t, c.TypeConflicts == 1 && c.Types == 1 && c.Objects >= 1, "%+v", c)
}

// TestErrors checks what ends a connection, and what is counted.
func TestErrors(t *testing.T) {
	s := (&demo.DemoThing{}).Descriptor()
	thing := func(p *peer, h frame.Header, instance string) {
		p.describe(s)
		p.raw("DemoThing", false, h, []byte(instance))
	}
	tests := []struct {
		what   string
		do     func(p *peer)
		reason Reason
	}{
		{"unknown type", func(p *peer) { p.raw("X", false, frame.Header{}, []byte("\xa0")) }, UnknownType},
		{"name of an enum", func(p *peer) { p.raw("DotsMt", false, frame.Header{}, []byte("\xa0")) }, UnknownType},
		{"missing key", func(p *peer) { thing(p, frame.Header{}, "\xa1\x02\x61a") }, MissingKey},
		{"bad value", func(p *peer) { thing(p, frame.Header{}, "\xa1\x01\x20") }, BadInstance},
		{"null", func(p *peer) { thing(p, frame.Header{}, "\xa2\x01\x01\x02\xf6") }, BadInstance},
		{"cut instance", func(p *peer) { thing(p, frame.Header{}, "\xa2\x01\x01\x02") }, BadInstance},
		{"bytes behind", func(p *peer) { thing(p, frame.Header{}, "\xa1\x01\x01\x00") }, BadFrame},
		{"no UTF-8", func(p *peer) { thing(p, frame.Header{}, "\xa2\x01\x01\x02\x61\xff") }, BadInstance},
		{"no frame", func(p *peer) { p.write([]byte("GET / HTTP/1.1\r\n\r\n")) }, BadFrame},
		{"too large", func(p *peer) { p.write([]byte{0x1a, 0xff, 0xff, 0xff, 0xff}) }, BadFrame},
		{"event of no member", func(p *peer) { p.send(&system.DotsMember{GroupName: value.Some("X")}) }, BadInstance},
		{"clear nothing", func(p *peer) { p.send(&system.DotsClearCache{}) }, BadInstance},
		{"hello", func(p *peer) { p.send(&system.DotsMsgHello{}) }, HandshakeViolation},
		{"response", func(p *peer) { p.send(&system.DotsMsgConnectResponse{}) }, HandshakeViolation},
		{"no properties", func(p *peer) {
			p.send(&system.StructDescriptorData{Name: value.Some("X"),
				Properties: value.Some([]system.StructPropertyData{})})
		}, BadDescriptor},
		{"remove of an uncached object", func(p *peer) {
			p.describe((&demo.DemoPing{}).Descriptor())
			p.raw("DemoPing", false, frame.Header{RemoveObj: true, Set: frame.RemoveObj}, []byte("\xa0"))
		}, RemoveUncached},
	}
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	for _, tt := range tests {
		before := b.Counters().Closed[tt.reason]
		p := connect(t, addr, frame.V2)
		tt.do(p)
		assert.Check(t, p.wantError(1) != "", "%s: no text", tt.what)
		p.conn.Close()
		eventually(t, tt.what, func() bool { return b.Counters().Closed[tt.reason] == before+1 })
	}
}
