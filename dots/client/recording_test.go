package client

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/internal/recordings"
	"correlator/dots/system"
	"correlator/dots/value"
)

// streams returns the two ends of a stream that the kernel buffers, as TCP does.
func streams(t testing.TB) (client, broker *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	assert.NilError(t, err)
	defer l.Close() //nolint:errcheck // a test
	client, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	assert.NilError(t, err)
	broker, err = l.AcceptUnix()
	assert.NilError(t, err)
	deadline := time.Now().Add(time.Minute)
	_ = broker.SetDeadline(deadline)
	t.Cleanup(func() { _ = client.Close(); _ = broker.Close() })
	return client, broker
}

// program is what a recorded client did.
type program struct {
	number   string
	options  Options
	prepare  func(t *testing.T, c *Client) // before connecting
	run      func(t *testing.T, c *Client) // when connected; it ends with Close unless closes is false
	frames   int                           // how many are the same; 0: all
	connect  error                         // error of Connect
	err      error                         // of the connection
	observed *observer
}

// observer collects what handlers are told.
type observer struct {
	mu     sync.Mutex
	events []string
	more   chan struct{}
}

func newObserver() *observer { return &observer{more: make(chan struct{}, 1)} }

func (o *observer) add(text string) {
	o.mu.Lock()
	o.events = append(o.events, text)
	o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// wait waits until a number of events have been observed.
func (o *observer) wait(t *testing.T, n int) []string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		o.mu.Lock()
		events := append([]string(nil), o.events...)
		o.mu.Unlock()
		if len(events) >= n {
			return events
		}
		select {
		case <-o.more:
		case <-deadline:
			t.Fatalf("%d events instead of %d: %q", len(events), n, events)
		}
	}
}

// replay plays the broker's side of a recording to a client.
func replay(t *testing.T, p program) {
	rec := recordings.Load(t, p.number)
	mine, theirs := streams(t)
	c := New(p.options)
	c.cnonce = func() string { return cnonce(t, &rec) }
	if p.prepare != nil {
		p.prepare(t, c)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := c.ConnectConn(t.Context(), mine, rec.Format)
		assert.Check(t, errors.Is(err, p.connect), "connecting: %v instead of %v", err, p.connect)
		if p.connect != nil {
			return
		}
		if p.run != nil {
			p.run(t, c)
		}
	}()
	frames := rec.Frames
	if p.frames != 0 {
		frames = frames[:p.frames]
	}
	for i, f := range frames {
		if f.From == recordings.Broker {
			_, err := theirs.Write(f.Data)
			assert.NilError(t, err)
			continue
		}
		got := make([]byte, len(f.Data))
		n, err := io.ReadFull(theirs, got)
		if got = got[:n]; err != nil || !bytes.Equal(untimed(t, rec.Format, got), untimed(t, rec.Format, f.Data)) {
			t.Fatalf("frame %d: %v\nsent     %x\nrecorded %x", i+1, err, got, f.Data)
		}
	}
	if p.err == nil || p.connect != nil {
		rest, err := io.ReadAll(theirs)
		assert.Check(t, err == nil && len(rest) == 0, "after the recording: %x, %v", rest, err)
	}
	_ = theirs.Close()
	<-done
	<-c.Done()
	want := p.err
	if want == nil {
		want = ErrClosed
	}
	var reported *BrokerError
	if err := c.Err(); errors.As(err, &reported) {
		want = cmp.Or(error(brokerError(reported.Code)), want)
		assert.Check(t, p.err == want, err)
	} else if !errors.Is(err, want) {
		t.Errorf("the connection ended with %v instead of %v", err, want)
	}
}

// cnonce returns the nonce of the recorded client, so that the answer to the challenge is the same.
func cnonce(t *testing.T, rec *recordings.Recording) string {
	var h frame.Header
	instance, _, err := frame.Next(rec.Format, rec.Frames[1].Data, 1<<20, &h)
	var m system.DotsMsgConnect
	if err == nil {
		err = decodeMessage(&m, instance)
	}
	must(t, err)
	return m.Cnonce.Value()
}

// brokerError matches a BrokerError by its code.
type brokerError int32

func (brokerError) Error() string { return "error of the broker" }

// untimed returns a frame with a sentTime of zero.
func untimed(t *testing.T, f frame.Format, data []byte) []byte {
	var h frame.Header
	if _, n, err := frame.Next(f, data, len(data), &h); err != nil || n != len(data) {
		return data // compared as it is
	}
	if h.Set&frame.SentTime == 0 {
		return data
	}
	pattern := append(cbor.AppendText([]byte{1}, h.TypeName), 2, 0xfb)
	at := bytes.LastIndex(data, pattern)
	assert.Assert(t, at >= 0, "no time in %s", hex.EncodeToString(data))
	data = bytes.Clone(data)
	clear(data[at+len(pattern) : at+len(pattern)+8])
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	assert.Check(t, err)
}

// roundtrip subscribes to RoundtripData, and publishes 20 objects, each when the previous one came
// back.
func roundtrip(p program) program {
	o := newObserver()
	p.options.Name = "roundtrip"
	p.prepare = func(t *testing.T, c *Client) {
		_, err := Subscribe(c, func(e *Event[*demo.RoundtripData]) {
			assert.Check(t, e.Own && e.Operation == Create && e.Updated.SomeString.Value() == "foobar", "%+v", e)
			o.add("")
		})
		must(t, err)
	}
	p.run = func(t *testing.T, c *Client) {
		x := demo.RoundtripData{SomeString: value.Some("foobar"), SomeFloat: value.Some(float32(3.1415))}
		for i := range uint32(20) {
			x.ID.Set(i)
			must(t, c.Publish(t.Context(), &x))
			o.wait(t, int(i)+1)
		}
		must(t, c.Close())
	}
	return p
}

func gadget(id uint32) *demo.DemoGadget { return &demo.DemoGadget{ID: value.Some(id)} }

func describeGadget(t *testing.T, c *Client) { must(t, c.Describe(gadget(0).Descriptor())) }

// publishGadgets is what the publisher of recordings 04 and 38 does.
func publishGadgets(t *testing.T, c *Client) {
	ctx := t.Context()
	one := gadget(1)
	one.Name.Set("alpha")
	one.Color.Set(demo.DemoColorGreen)
	one.Part.Set(demo.DemoPart{Flag: value.Some(true), Label: value.Some("p1")})
	one.Numbers.Set([]int32{1, -2, 300})
	one.Level.Set(1.5)
	must(t, c.Publish(ctx, one))
	two := gadget(2)
	two.Name.Set("beta")
	must(t, c.Publish(ctx, two))
	one.Level.Set(2.5)
	must(t, c.PublishProperties(ctx, one, demo.DemoGadgetLevel))
	one.Color.Set(demo.DemoColorBlue)
	one.Part.Set(demo.DemoPart{Flag: value.Some(false)})
	one.Name.Unset()
	must(t, c.PublishProperties(ctx, one, demo.DemoGadgetName|demo.DemoGadgetColor|demo.DemoGadgetPart))
	must(t, c.Remove(ctx, two))
	must(t, c.Remove(ctx, gadget(77)))
	must(t, c.Close())
}

// subscribeGadgets is what the subscribers of DemoGadget do.
func subscribeGadgets(p program, events int) program {
	p.observed = newObserver()
	p.prepare = func(t *testing.T, c *Client) {
		_, err := Subscribe(c, func(e *Event[*demo.DemoGadget]) { p.observed.add(e.Operation.String()) })
		must(t, err)
	}
	if p.run == nil {
		p.run = func(t *testing.T, c *Client) {
			p.observed.wait(t, events)
			must(t, c.Close())
		}
	}
	return p
}

// TestRecordings plays the side of recorded brokers to this client, whose program is that of the
// recorded client, and compares what it sends, byte for byte except times.
func TestRecordings(t *testing.T) {
	for _, p := range recorded() {
		t.Run(p.number, func(t *testing.T) { t.Parallel(); replay(t, p) })
	}
}

// recorded returns the programs of recorded clients.
func recorded() []program {
	return []program{
		roundtrip(program{number: "01"}),
		roundtrip(program{number: "02"}),
		roundtrip(program{number: "03"}),
		{number: "04", options: Options{Name: "publisher"}, prepare: describeGadget, run: publishGadgets},
		subscribeGadgets(program{number: "05", options: Options{Name: "subscriber"}}, 5),
		{number: "06", options: Options{Name: "second-publisher"}, run: latePublisher},
		subscribeGadgets(program{number: "07", options: Options{Name: "late-subscriber"}}, 4),
		allTypes(program{number: "08", options: Options{Name: "all-types"}}),
		discoverAll(program{number: "09", options: Options{Name: "object-trace"}}),
		watch(program{number: "10", options: Options{Name: "watcher"}}),
		{number: "11", options: Options{Name: "session-publisher"}, run: func(t *testing.T, c *Client) {
			publishSessions(t, c)
			must(t, c.Close())
		}},
		// The recorded client was killed. The end of the stream is what the broker complains about; it is
		// played here, and may complain, which ends the connection, before the end of the stream.
		{number: "12", options: Options{Name: "killed-publisher"}, run: func(t *testing.T, c *Client) {
			publishSessions(t, c)
			must(t, c.out.flush(t.Context()))
			if err := c.conn.(*net.UnixConn).CloseWrite(); !errors.Is(err, net.ErrClosed) {
				must(t, err)
			}
			<-c.Done()
		}, err: brokerError(1)},
		watchSessions(program{number: "13", options: Options{Name: "session-watcher"}}),
		subscribeGadgets(program{number: "14", options: Options{Name: "subscriber"}, err: ErrGoodbye,
			run: func(_ *testing.T, c *Client) { <-c.Done() }}, 0),
		roundtrip(program{number: "16", options: Options{Secret: "s3cret"}}),
		// The recorded client overlooks that it is refused, and goes on after the third frame.
		{number: "17", options: Options{Name: "roundtrip", Secret: "wrong"}, frames: 3,
			connect: ErrRefused, err: ErrRefused},
		{number: "18", options: Options{Name: "roundtrip"}, connect: ErrSecretNeeded, err: ErrSecretNeeded},
		{number: "38", options: Options{Name: "publisher"}, prepare: describeGadget, run: publishGadgets},
		subscribeGadgets(program{number: "39", options: Options{Name: "subscriber"}}, 5),
	}
}
