package broker

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

// recorder records what happens.
type recorder struct{ closed chan Reason }

func (recorder) Connected(uint32, string, string)                       {}
func (r recorder) Closed(_ uint32, _, _ string, reason Reason, _ error) { r.closed <- reason }
func (recorder) TypeConflict(uint32, string)                            {}
func (recorder) Members(string, int)                                    {}
func (recorder) AcceptFailed(string, error)                             {}
func (r recorder) want(t *testing.T, reason Reason) {
	t.Helper()
	select {
	case got := <-r.closed:
		assert.Check(t, got == reason, "closed: %v, want %v", got, reason)
	case <-time.After(patience):
		t.Fatalf("not closed, want %v", reason)
	}
}

// limited returns a broker with limits, and one of its guests.
func limited(t *testing.T, o Options) (*Broker, *peer, recorder) {
	t.Helper()
	r := recorder{make(chan Reason, 100)}
	o.Events = r
	b := newBroker(t, o)
	return b, connect(t, listenUnix(t, b, frame.V2), frame.V2), r
}

func TestHandshakeTimeout(t *testing.T) {
	r := recorder{make(chan Reason, 1)}
	b := newBroker(t, Options{Events: r, Limits: Limits{Handshake: time.Millisecond}})
	p := dial(t, listenUnix(t, b, frame.V2), frame.V2)
	p.expect("DotsMsgHello")
	p.end()
	p.conn.Close()
	r.want(t, HandshakeTimeout)
}

// TestNoTimeoutAfterHandshake checks that the deadline of a handshake ends when the guest is accepted.
func TestNoTimeoutAfterHandshake(t *testing.T) {
	b := newBroker(t, Options{})
	h := &hurried{}
	g := &guest{transport: h}
	assert.Assert(t, b.accept(g))
	t.Cleanup(func() { disconnect(b, g) })
	handleAll(t, g, frameOf(t, &system.DotsMsgConnect{ClientName: value.Some("x"), PreloadCache: value.Some(false)}))
	assert.DeepEqual(t, h.calls, []string{"begin", "accepted"})

	p := dial(t, listenUnix(t, b, frame.V2), frame.V2)
	s, err := newStream(p.conn)
	assert.NilError(t, err)
	s.begin(-time.Second)
	_, err = p.conn.Read(make([]byte, 1))
	assert.Check(t, errors.Is(err, os.ErrDeadlineExceeded), err)
	s.accepted(nil)
	_, err = p.conn.Read(make([]byte, 1)) // of the Hello
	assert.Check(t, err)
}

func TestTooManyGuests(t *testing.T) {
	r := recorder{make(chan Reason, 3)}
	b := newBroker(t, Options{Events: r, Limits: Limits{Guests: 1}})
	addr := listenUnix(t, b, frame.V2)
	connect(t, addr, frame.V2)
	refusedForOthers(t, dial(t, addr, frame.V2))
	r.want(t, TooManyGuests)
}

// refusedForOthers introduces a guest, and checks that it is told that there are too many.
func refusedForOthers(t *testing.T, p *peer) {
	t.Helper()
	p.expect("DotsMsgHello")
	p.send(&system.DotsMsgConnect{ClientName: value.Some("late"), PreloadCache: value.Some(false)})
	p.wantError(1)
	p.conn.Close()
}

func TestTooManyTypes(t *testing.T) {
	_, p, r := limited(t, Options{Limits: Limits{Types: 1}})
	p.describe((&demo.DemoThing{}).Descriptor())
	p.describe((&demo.DemoThing{}).Descriptor())
	p.describe((&demo.DemoPing{}).Descriptor())
	p.wantError(1)
	p.conn.Close()
	r.want(t, TooManyTypes)
}

func TestTooManyGroups(t *testing.T) {
	b, p, r := limited(t, Options{Limits: Limits{Groups: 2}})
	b.mu.Lock()
	before := len(b.topics)
	b.mu.Unlock()
	for range 3 { // a group that is left makes room
		p.join("a")
		p.member("a", system.DotsMemberEventLeave)
	}
	p.join("a")
	p.join("b")
	p.join("b")
	p.barrier()
	p.join("c")
	p.wantError(1)
	p.conn.Close()
	r.want(t, TooManyGroups)
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Check(t, len(b.topics) == before, "%d topics, %d before", len(b.topics), before)
}

func TestLongNameOfGroup(t *testing.T) {
	_, p, r := limited(t, Options{})
	p.join(string(make([]byte, maxName+1)))
	p.wantError(1)
	p.conn.Close()
	r.want(t, BadInstance)
}

func TestCacheFull(t *testing.T) {
	b, p, r := limited(t, Options{Limits: Limits{Cache: 4096}})
	p.describe((&demo.DemoThing{}).Descriptor())
	for id := range uint32(100) {
		p.send(thing(id % 2)) // updates take no more
	}
	p.barrier()
	var all []byte // in one write: some of it is behind what is refused
	for id := range uint32(10) {
		long := &demo.DemoThing{ID: value.Some(id), Name: value.Some(string(make([]byte, 600)))}
		for _, x := range []*demo.DemoThing{thing(id), long} {
			h := frame.Header{Attributes: x.Valid(), Set: frame.Attributes}
			all = append(all, p.encode("DemoThing", false, h, x.AppendInstance(nil, x.Valid()))...)
		}
	}
	p.write(all)
	p.wantError(1)
	p.conn.Close()
	r.want(t, CacheFull)
	c := b.Counters()
	assert.Check(t, c.CacheBytes <= 4096 && c.UndecodedBytes != 0, "%+v", c)
}

// TestSlowConsumer checks that a guest that does not read is disconnected, that others are not
// affected, and that what it lost is counted.
func TestSlowConsumer(t *testing.T) {
	b, slow, r := limited(t, Options{Limits: Limits{Queue: 1 << 20}})
	slow.describe(event)
	slow.join(event.Name)
	slow.barrier()
	p := connect(t, slow.conn.RemoteAddr(), frame.V2)
	data := encoded(t, 1000, false)
	p.describe(event)
	for closed := false; !closed; {
		p.write(data)
		p.barrier()
		closed = b.Members(event.Name) == 0
	}
	r.want(t, SlowConsumer)
	c := b.Counters()
	assert.Check(t, c.DiscardedBytes >= 1<<20, "%+v", c)
}

func TestMemoryFull(t *testing.T) {
	_, slow, r := limited(t, Options{Limits: Limits{Memory: 2 << 20}})
	slow.describe(event)
	slow.join(event.Name)
	slow.barrier()
	p := connect(t, slow.conn.RemoteAddr(), frame.V2)
	p.describe(event)
	data := encoded(t, 1000, false)
	for len(r.closed) == 0 {
		p.write(data)
		p.barrier()
	}
	r.want(t, MemoryFull)
}

// TestLargeFrame checks frames that are larger than the buffers, and that memory is used only for
// what has arrived.
func TestLargeFrame(t *testing.T) {
	b, p, _ := limited(t, Options{})
	p.describe((&demo.DemoThing{}).Descriptor())
	p.join("DemoThing")
	p.expect("DotsCacheInfo")
	large := &demo.DemoThing{ID: value.Some[uint32](1), Name: value.Some(string(make([]byte, 3<<20)))}
	go p.send(large)
	r := p.expect("DemoThing")
	assert.Check(t, len(r.instance) >= 3<<20, "%d bytes", len(r.instance))
	p.barrier()
	const others = 1000 // bytes for the group and the type
	eventually(t, "released", func() bool { return b.memory.Load() < others })
	p.write([]byte{0x1a, 3, 0, 0, 0, 0xa3})
	eventually(t, "kept", func() bool { return b.memory.Load() > others })
	n := b.memory.Load()
	assert.Check(t, n <= readSize+others, "%d bytes are used for a frame that has not arrived", n)
}

func TestReplayLargerThanQueue(t *testing.T) {
	const objects = 20000
	b, p, _ := limited(t, Options{Limits: Limits{Queue: 64 << 10}})
	p.describe((&demo.DemoThing{}).Descriptor())
	p.write(encoded(t, objects, true))
	p.barrier()
	late := connect(t, p.conn.RemoteAddr(), frame.V2)
	for range 3 * maxReplays { // more than may be queued
		late.join("DemoThing")
	}
	late.expect("StructDescriptorData")
	for range 2 {
		for id := range uint32(objects) {
			var x demo.DemoThing
			r := late.expect("DemoThing")
			for r.Set&frame.FromCache == 0 { // the change below, before or after a replay
				r = late.expect("DemoThing")
			}
			decodeInto(t, r.instance, x.DecodeInstance)
			assert.Assert(t, x.ID.Value() == id && r.FromCache == objects-1-id && r.Sender == p.id,
				"object %d: %+v %+v", id, r.Header, x)
			if id == 100 { // while it is replayed, the objects change
				p.send(&demo.DemoThing{ID: value.Some[uint32](objects - 1), Name: value.Some("new")})
				p.barrier()
			}
		}
		late.expect("DotsCacheInfo")
	}
	n := b.Counters().Closed[SlowConsumer]
	assert.Check(t, n == 0, "%d slow consumers", n)
}

func TestShutdownEndsHandshakes(t *testing.T) {
	b := New(Options{})
	p := dial(t, listenUnix(t, b, frame.V2), frame.V2)
	p.expect("DotsMsgHello")
	done := make(chan error, 1)
	go func() { done <- b.Shutdown(context.Background()) }()
	p.end()
	p.conn.Close()
	err := <-done
	assert.Check(t, err)
	err = b.Publish(thing(1))
	assert.Check(t, errors.Is(err, ErrClosed), err)
	_, err = b.ListenURI("tcp://127.0.0.1:0")
	assert.Check(t, errors.Is(err, ErrClosed), err)
}

// stuck is a connection that does not end until it is aborted.
type stuck struct {
	nowhere
	aborted context.Context
	cancel  context.CancelFunc
}

func (s stuck) read(*guest) error { <-s.aborted.Done(); return io.EOF }
func (s stuck) abort()            { s.cancel() }

func TestShutdownDoesNotWaitForever(t *testing.T) {
	b := New(Options{})
	s := stuck{}
	s.aborted, s.cancel = context.WithCancel(context.Background())
	assert.Assert(t, b.begin())
	go func() {
		defer b.running.Done()
		b.run(&guest{transport: s})
	}()
	eventually(t, "accepted", func() bool { return b.Counters().Guests == 1 })
	err := b.Shutdown(testenv.Ended())
	assert.Check(t, errors.Is(err, context.Canceled) && s.aborted.Err() != nil, err)

	// A connection that is aborted has ended at once.
	p := dial(t, listenUnix(t, newBroker(t, Options{}), frame.V2), frame.V2)
	aborted, err := newStream(p.conn)
	assert.NilError(t, err)
	aborted.abort()
	_, err = p.conn.Write([]byte{0})
	assert.Check(t, errors.Is(err, unix.EPIPE), err)
	_, err = io.Copy(io.Discard, p.conn)
	assert.Check(t, err)
}

// hurried is a connection to which a broker that shuts down says goodbye as soon as it can: when it
// has been accepted, and the Hello is written.
type hurried struct {
	sink
	goodbye func()
	calls   []string
}

func (h *hurried) begin(time.Duration) { h.calls = append(h.calls, "begin") }
func (h *hurried) accepted(*guest)     { h.calls = append(h.calls, "accepted") }
func (h *hurried) stopReading(*guest)  { h.calls = append(h.calls, "stop") }
func (h *hurried) read(*guest) error   { return io.EOF }
func (h *hurried) linger()             {}
func (h *hurried) close()              {}
func (h *hurried) tryWrite(l *chunkList, w bool) (int, bool, error) {
	if len(h.calls) < 2 && h.goodbye != nil {
		h.goodbye()
	}
	return h.sink.tryWrite(l, w)
}

// TestShutdownWhileAccepting checks that the deadline by which Shutdown ends a handshake is not
// replaced by that of the handshake itself.
func TestShutdownWhileAccepting(t *testing.T) {
	b := newBroker(t, Options{})
	h := &hurried{}
	g := &guest{transport: h}
	h.goodbye = func() {
		b.lock()
		b.sayGoodbye(g)
		b.unlock(nil)
	}
	b.run(g)
	assert.Check(t, slices.Equal(h.calls, []string{"begin", "stop"}), "called %q", h.calls)
}
