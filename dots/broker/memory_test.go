package broker

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// TestFrameAsLongAsQueue checks that a guest that has taken everything gets a frame that is longer
// than its queue may be.
func TestFrameAsLongAsQueue(t *testing.T) {
	b, p, _ := limited(t, Options{Limits: Limits{Frame: 8 << 20, Queue: 1 << 20}})
	p.describe((&demo.DemoThing{}).Descriptor())
	p.join("DemoThing")
	p.expect("DotsCacheInfo")
	go p.send(&demo.DemoThing{ID: value.Some[uint32](1), Name: value.Some(strings.Repeat("a", 7<<20))})
	r := p.expect("DemoThing")
	assert.Check(t, len(r.instance) >= 7<<20, "%d bytes", len(r.instance))
	c := b.Counters().Closed
	assert.Check(t, len(c) == 0, "closed: %v", c)
}

// TestMergedObjectLongerThanFrame checks that updates of single properties do not make an object
// that cannot be replayed.
func TestMergedObjectLongerThanFrame(t *testing.T) {
	b, p, r := limited(t, Options{Limits: Limits{Frame: 2000}})
	s, err := schema.NewStruct("M", schema.Flags{Cached: true}, []schema.Property{
		{Tag: 1, Name: "a", Key: true, Type: schema.Builtin(schema.Uint32)},
		{Tag: 2, Name: "b", Type: schema.Builtin(schema.String)},
		{Tag: 3, Name: "c", Type: schema.Builtin(schema.String)}}, "")
	assert.NilError(t, err)
	p.describe(s)
	for tag := byte(2); tag < 4; tag++ {
		p.raw("M", false, frame.Header{}, cbor.AppendString([]byte{0xa2, 1, 0, tag}, strings.Repeat("a", 1200)))
	}
	p.wantError(1)
	p.conn.Close()
	r.want(t, BadInstance)
	n := b.Counters().CacheBytes
	assert.Check(t, n <= 3000, "%d bytes are cached", n)
}

// TestFramesBeforeAcceptance checks that who is not accepted cannot send much.
func TestFramesBeforeAcceptance(t *testing.T) {
	r := recorder{make(chan Reason, 1)}
	b := newBroker(t, Options{Events: r})
	p := dial(t, listenUnix(t, b, frame.V2), frame.V2)
	p.expect("DotsMsgHello")
	p.write([]byte{0x1a, 0, 2, 0, 0}) // 128 KiB follow
	p.end()
	p.conn.Close()
	r.want(t, BadFrame)
	conn := dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0"))
	nextMessage(t, conn)
	go conn.Write(t.Context(), websocket.MessageText, make([]byte, 128<<10))
	_, _, err := conn.Read(t.Context())
	assert.Check(t, websocket.CloseStatus(err) == websocket.StatusMessageTooBig, err)
	r.want(t, BadFrame)
}

// TestSmallMessageToMany checks that a message to many guests takes little memory.
func TestSmallMessageToMany(t *testing.T) {
	const guests, limit = 150, 2 << 20
	b := newBroker(t, Options{Limits: Limits{Memory: limit}})
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	p.describe(event)
	all := make([]*peer, guests)
	for i := range all {
		all[i] = connect(t, p.conn.RemoteAddr(), frame.V2)
		all[i].join(event.Name)
		all[i].barrier()
	}
	p.write(encoded(t, 1, false))
	p.barrier()
	for _, g := range all {
		g.expect("StructDescriptorData")
		g.expect(event.Name)
	}
	c := b.Counters().Closed
	assert.Check(t, len(c) == 0, "closed: %v", c)
}

// TestLargestUserOfMemory checks that the guest is disconnected that uses most, also when that is
// by replays or by versions of objects that only its replays still need.
func TestLargestUserOfMemory(t *testing.T) {
	const objects = 100
	b, p, r := limited(t, Options{Limits: Limits{Cache: 32 << 20, Memory: 24 << 20}})
	p.describe((&demo.DemoThing{}).Descriptor())
	p.describe(event)
	idle := connect(t, p.conn.RemoteAddr(), frame.V2)
	idle.join(event.Name)
	idle.barrier()
	p.write(encoded(t, 1000, false)) // for which idle is a little behind
	slow := connect(t, p.conn.RemoteAddr(), frame.V2)
	name := strings.Repeat("x", 60_000)
	for range maxReplays - 1 { // more than that, and it would not be read from any more
		for id := range uint32(objects) {
			p.send(&demo.DemoThing{ID: value.Some(id), Name: value.Some(name)})
		}
		p.barrier()
		if len(r.closed) > 0 {
			break
		}
		joined := b.Members("DemoThing")
		slow.join("DemoThing")
		eventually(t, "joined", func() bool { return b.Members("DemoThing") > joined || len(r.closed) > 0 })
		slow.member("DemoThing", system.DotsMemberEventLeave)
		eventually(t, "left", func() bool { return b.Members("DemoThing") == 0 })
	}
	r.want(t, MemoryFull)
	gone(t, b, slow.id)
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Check(t, b.guests[idle.id] != nil && b.guests[p.id] != nil, "another guest was disconnected")
	n := b.memory.Load()
	assert.Check(t, n <= 8<<20, "%d bytes are still counted", n)
}

// TestPinnedVersions checks what is counted of versions that replays have and the container has
// not.
func TestPinnedVersions(t *testing.T) {
	b := newBroker(t, Options{})
	c := newContainer()
	guests := []*guest{{b: b}, {b: b}}
	replays := []*replay{{g: guests[0]}, {g: guests[1]}}
	want := func(first, second int64) {
		t.Helper()
		x, y := guests[0].memory.Load(), guests[1].memory.Load()
		assert.Check(t, x == first && y == second, "%d and %d bytes, want %d and %d", x, y, first, second)
		n := b.memory.Load()
		assert.Check(t, n == first+second, "%d bytes in all, want %d", n, first+second)
	}
	pin := func(epoch uint32) {
		b.lock()
		defer b.unlock(nil)
		c.pin(&version{data: make([]byte, 100), epoch: epoch})
	}
	const size = versionOverhead + 100
	pin(0) // no snapshot was taken
	c.snapshot()
	pin(0) // by nobody who replays it
	c.follow(replays[0])
	pin(1)
	want(0, 0)
	pin(0)
	want(size, 0)
	c.snapshot()
	c.follow(replays[1])
	pin(0)
	pin(1)
	want(size, 2*size)
	c.unpin(replays[1])
	want(3*size, 0)
	c.unpin(replays[0])
	want(0, 0)
}

// TestTwoDrains checks that of two goroutines that wait for a third one to end writing, both go on.
func TestTwoDrains(t *testing.T) {
	g := &guest{b: newBroker(t, Options{}), transport: nowhere{}, writing: true}
	g.changed.L = &g.queueMu
	done := make(chan struct{})
	for range 2 {
		go func() {
			g.drain()
			done <- struct{}{}
		}()
	}
	eventually(t, "both wait", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("broker.(*guest).waitForWriter(")) == 2
	})
	g.queueMu.Lock()
	g.endWriting()
	g.queueMu.Unlock()
	for range 2 {
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("still waiting")
		}
	}
}

// TestShutdownOfPausedGuest checks that a guest from which nothing is read, as it asks for more
// than it takes, ends with the broker.
func TestShutdownOfPausedGuest(t *testing.T) {
	t.Parallel()
	b := New(Options{})
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	p.describe((&demo.DemoThing{}).Descriptor())
	p.write(encoded(t, 20_000, true))
	p.barrier()
	for range 2 * maxReplays {
		p.join("DemoThing")
	}
	eventually(t, "paused", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		g := b.guests[p.id]
		g.queueMu.Lock()
		defer g.queueMu.Unlock()
		return len(g.replays) >= maxReplays
	})
	assert.Check(t, b.Shutdown(context.Background()))
}

// messagesOnly is a connection that demands a message when it is to write one.
type messagesOnly struct {
	nowhere
	t *testing.T
}

func (m messagesOnly) tryWrite(list *chunkList, _ bool) (int, bool, error) {
	assert.Check(m.t, list.size != 0, "nothing is to be written")
	return list.consume(list.size), false, nil
}

// TestReplayOfNothing checks a replay of which nothing is selected.
func TestReplayOfNothing(t *testing.T) {
	b := newBroker(t, Options{})
	g := &guest{b: b, transport: messagesOnly{t: t}, writing: true}
	g.changed.L = &g.queueMu
	r := &replay{s: (&demo.DemoThing{}).Descriptor(), g: g, container: newContainer()}
	r.container.follow(r)
	g.replays = []*replay{r}
	g.writeOut(true)
	assert.Check(t, len(g.replays) == 0 && !g.writing, "%d replays", len(g.replays))
}
