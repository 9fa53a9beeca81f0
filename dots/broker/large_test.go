package broker

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// largeType returns a type with a key, structs that small encodings stand for, a text, and floats that
// guests may send shorter.
func largeType(t *testing.T) *schema.Struct {
	t.Helper()
	inner := schema.MustStruct("Inner", schema.Flags{SubstructOnly: true},
		schema.Property{Tag: 1, Name: strings.Repeat("n", 200), Type: schema.Builtin(schema.Uint8)})
	return schema.MustStruct("Large", schema.Flags{Cached: true},
		schema.Property{Tag: 1, Name: "id", Key: true, Type: schema.Builtin(schema.String)},
		schema.Property{Tag: 2, Name: "parts", Type: schema.MustVector(schema.OfStruct(inner))},
		schema.Property{Tag: 3, Name: "text", Type: schema.Builtin(schema.String)},
		schema.Property{Tag: 4, Name: "floats", Type: schema.MustVector(schema.Builtin(schema.Float64))})
}

// vector returns an encoded vector of the property with a tag.
func vector(tag byte, n int, element string) []byte {
	return append(cbor.AppendArray([]byte{tag}, n), strings.Repeat(element, n)...)
}

// largeObject returns an instance of a Large.
func largeObject(id string, properties ...[]byte) []byte {
	instance := cbor.AppendString(append(cbor.AppendMap(nil, 1+len(properties)), 1), id)
	return append(instance, bytes.Join(properties, nil)...)
}

// TestLargeInstanceIsCheckedWithoutLock checks that others are served while a large instance is
// checked, and that memory for its canonical form is released.
func TestLargeInstanceIsCheckedWithoutLock(t *testing.T) {
	b, p, _ := limited(t, Options{})
	other := connect(t, p.conn.RemoteAddr(), frame.V2)
	p.describe(largeType(t))
	p.barrier()
	other.join("Large")
	other.expect("DotsCacheInfo")
	b.canonicalizing.Lock()
	unlock := sync.OnceFunc(b.canonicalizing.Unlock)
	defer unlock() // even if the test fails
	go p.raw("Large", false, frame.Header{}, largeObject("a", vector(2, largeInstance, "\xa1\x01\x18\x00")))
	eventually(t, "checking", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("broker.(*Broker).checkLarge("))
	})
	other.barrier()
	unlock()
	other.expect("StructDescriptorData")
	other.expect("StructDescriptorData")
	want := largeObject("a", vector(2, largeInstance, "\xa1\x01\x00"))
	r := other.expect("Large")
	assert.Check(t, bytes.Equal(r.instance, want), "received %d bytes, want %d", len(r.instance), len(want))
	p.barrier()
	eventually(t, "released", func() bool { return b.memory.Load() < largeInstance })
}

func TestLargeInstancesRefused(t *testing.T) {
	for name, instance := range map[string][]byte{
		"key":   largeObject(strings.Repeat("k", maxKey)),
		"grown": largeObject("a", vector(4, 300<<10, "\xf9\x3c\x00")),
	} {
		b, p, r := limited(t, Options{Limits: Limits{Frame: 1 << 20}})
		p.describe(largeType(t))
		p.raw("Large", false, frame.Header{}, instance)
		p.wantError(1)
		p.conn.Close()
		r.want(t, BadInstance)
		if n := b.Counters().Objects; n > 3 { // records of guests
			t.Errorf("%s: %d objects", name, n)
		}
	}
}

// TestLayoutsOfLargeObjects checks that large cached instances are not scanned again, however small
// the updates are.
func TestLayoutsOfLargeObjects(t *testing.T) {
	b := newBroker(t, Options{})
	s := largeType(t)
	assert.NilError(t, b.RegisterType(s))
	g, _ := connectSink(t, b)
	parts, text := vector(2, largeInstance/2, "\xa1\x01\x00"), cbor.AppendString([]byte{3}, "text")
	for _, step := range []struct {
		name       string
		attributes value.PropertySet
		instance   []byte
		want       []byte
	}{
		{"small", 1<<1 | 1<<3, largeObject("a", text), largeObject("a", text)},
		{"grows", 1<<1 | 1<<2, largeObject("a", parts), largeObject("a", parts, text)},
		{"updated", 1<<1 | 1<<3, largeObject("a", cbor.AppendString([]byte{3}, "longer")),
			largeObject("a", parts, cbor.AppendString([]byte{3}, "longer"))},
		{"selected", 1<<1 | 1<<3, largeObject("a", vector(2, largeInstance, "\xa1\x01\x00"), text),
			largeObject("a", parts, text)},
		{"shrinks", 1<<1 | 1<<2, largeObject("a"), largeObject("a", text)},
	} {
		h := frame.Header{TypeName: []byte("Large"), Attributes: step.attributes,
			Set: frame.TypeName | frame.Attributes}
		data, err := frame.Append(nil, frame.V2, &h, false, 0, step.instance)
		assert.NilError(t, err)
		handleAll(t, g, data)
		var v *version
		for _, o := range b.topics["Large"].container.objects {
			v = o.now
		}
		assert.Check(t, bytes.Equal(v.data, step.want),
			"%s: %d bytes are cached, want %d", step.name, len(v.data), len(step.want))
		var want dynamic.Layout
		_, err = dynamic.Scan(s, v.data, &want)
		assert.NilError(t, err)
		assert.Check(t, (v.layout != nil) == (len(v.data) > largeInstance),
			"%s: layout %v for %d bytes", step.name, v.layout, len(v.data))
		if l := v.layout; l != nil {
			for tag := range uint32(32) {
				same := l.Set.Has(tag) && l.Start[tag] == want.Start[tag] && l.End[tag] == want.End[tag]
				assert.Check(t, !want.Set.Has(tag) || same, "%s: property %d is said to be elsewhere", step.name, tag)
			}
		}
	}
}

// TestBuffersOfBatches checks that the buffers which one large transmission needed are not kept.
func TestBuffersOfBatches(t *testing.T) {
	b := newBroker(t, Options{})
	s := largeType(t)
	assert.NilError(t, b.RegisterType(s))
	g, _ := connectSink(t, b)
	handleAll(t, g, frameOf(t, plainJoin("Large")))
	for _, attributes := range []value.PropertySet{1<<1 | 1<<2, 1<<1 | 1<<3} { // the second is merged
		h := frame.Header{TypeName: []byte("Large"), Attributes: attributes, Set: frame.TypeName | frame.Attributes}
		data, err := frame.Append(nil, frame.V2, &h, false, 0, largeObject("a", vector(2, maxBuffer, "\xa1\x01\x00")))
		assert.NilError(t, err)
		handleAll(t, g, data)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, buf := range [][]byte{b.batch.instance, b.batch.selected, b.batch.merged, b.batch.own, b.batch.frames[0]} {
		assert.Check(t, cap(buf) <= maxBuffer, "buffer %d keeps %d bytes", i, cap(buf))
	}
	g.drain()
}

// TestLongMessages checks that an instance of which much more JSON would be made is queued as it was
// sent, counted instead of being converted without an end, and that its WebSocket is served on.
func TestLongMessages(t *testing.T) {
	b, p, _ := limited(t, Options{Limits: Limits{Frame: 1 << 20, Queue: 1 << 20, Memory: 16 << 20}})
	conn := dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0"))
	conn.SetReadLimit(4 << 20)
	nextMessage(t, conn)
	p.describe(largeType(t))
	p.barrier()
	for _, text := range []string{
		`[{"typeName":"DotsMsgConnect"},{"clientName":"x","preloadCache":false}]`,
		`[{"typeName":"DotsMember"},{"groupName":"Large","event":1}]`,
	} {
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(text)))
	}
	nextMessage(t, conn)
	nextMessage(t, conn) // DotsCacheInfo
	sent := b.Counters().SentBytes
	part := []byte("\xa1\x01\x00")
	p.raw("Large", false, frame.Header{}, largeObject("a", vector(2, 200<<10, string(part))))
	characters := cbor.AppendString([]byte{3}, strings.Repeat("\x01", 300<<10))
	p.raw("Large", false, frame.Header{}, largeObject("a", characters))
	p.raw("Large", false, frame.Header{}, largeObject("b", vector(2, 4<<10, string(part))))
	for range 2 {
		m := nextMessage(t, conn)
		assert.Assert(t, m[0]["typeName"] == "StructDescriptorData", "received %v", m[0])
	}
	m := nextMessage(t, conn)
	assert.Check(t, m[1]["id"] == "b" && len(m[1]["parts"].([]any)) == 4<<10, "received %v", m[0])
	c := b.Counters()
	assert.Check(t, c.Unencodable == 2 && len(c.Closed) == 0 && c.SentBytes-sent <= 2<<20, "%+v", c)
	eventually(t, "released", func() bool { return b.memory.Load() < chunkSize })
}
