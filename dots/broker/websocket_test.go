package broker

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/internal/recordings"
	"correlator/dots/value"
)

func dialWebSocket(t *testing.T, addr net.Addr) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+addr.String(),
		&websocket.DialOptions{Subprotocols: []string{subprotocol}})
	assert.NilError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	if conn.Subprotocol() != subprotocol {
		t.Fatalf("subprotocol %q", conn.Subprotocol())
	}
	return conn
}

// message is a parsed message.
type message [2]map[string]any

func parseMessage(t *testing.T, data []byte) (m message) {
	t.Helper()
	assert.NilError(t, json.Unmarshal(data, &m), "%s", data)
	delete(m[0], "sentTime")
	delete(m[0], "serverSentTime")
	return m
}

func nextMessage(t *testing.T, conn *websocket.Conn) message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kind, data, err := conn.Read(ctx)
	assert.Assert(t, err == nil && kind == websocket.MessageText, "%v %s %v", kind, data, err)
	return parseMessage(t, data)
}

func TestRecordingWebSocket(t *testing.T) {
	t.Parallel()
	b := newBroker(t, Options{})
	conn := dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0"))
	for _, f := range recordings.Load(t, "41").Frames {
		if f.From == recordings.Client {
			assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, f.Data))
			continue
		}
		want := parseMessage(t, f.Data)
		if want[0]["typeName"] == "DotsMsgHello" { // announces filtered subscriptions
			want[0]["attributes"] = 22.0
			want[1]["capabilities"] = map[string]any{"filteredSubscriptions": true}
		}
		got := nextMessage(t, conn)
		assert.Assert(t, reflect.DeepEqual(got, want), "line %d:\nreceived %v\nwant     %v", f.Line, got, want)
	}
	eventually(t, "goodbye", func() bool { return b.Counters().Closed[Goodbye] == 1 })
}

func TestWebSocketReplayAndShutdown(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenAt(t, b, "ws://127.0.0.1:0")
	for id := range uint32(3) {
		assert.NilError(t, b.Publish(&demo.DemoThing{ID: value.Some(3 - id)}))
	}
	conn := dialWebSocket(t, addr)
	nextMessage(t, conn)
	for _, text := range []string{
		`[{"typeName":"DotsMsgConnect","attributes":6},{"clientName":"x","preloadCache":false,"unknown":[1]}]`,
		`[{"typeName":"DotsMember"},{"groupName":"DemoThing","event":1,"client":null}]`,
	} {
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(text)))
	}
	nextMessage(t, conn)
	m := nextMessage(t, conn)
	assert.Check(t, m[0]["typeName"] == "StructDescriptorData", "received %v, want the description", m)
	for i := range 3 {
		m := nextMessage(t, conn)
		assert.Check(t, m[0]["fromCache"] == float64(2-i) && m[1]["id"] == float64(i+1), "received %v", m)
	}
	nextMessage(t, conn)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- b.Shutdown(ctx)
	}()
	m = nextMessage(t, conn)
	assert.Check(t, m[0]["typeName"] == "DotsMsgError" && m[1]["errorCode"] == 0.0, "received %v, want a goodbye", m)
	_, _, err := conn.Read(t.Context())
	assert.Check(t, websocket.CloseStatus(err) == websocket.StatusNormalClosure, "%v, want a normal closure", err)
	err = <-done
	assert.Check(t, err)
}

func TestWebSocketRefusesMessages(t *testing.T) {
	for _, text := range []string{
		``, `1`, `[]`, `[{}]`, `[{},{}]`, `[{"typeName":"DotsMsgConnect"},{}]`, `[{"typeName":"X"},{},{}]`,
		`[{"typeName":"DotsMsgConnect"},{"clientName":1}]`, `[{"typeName":"DotsEcho"},{}]`,
		`[{"typeName":"DotsMsgConnect"},{"clientName":"x","preloadCache":true}] 1`, strings.Repeat("[", 20000),
	} {
		b := newBroker(t, Options{})
		conn := dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0"))
		nextMessage(t, conn)
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(text)))
		_, data, err := conn.Read(t.Context())
		assert.Check(t, err != nil, "%.80s: received %s", text, data)
	}
}

// What a peer in C++ publishes with numbers that JSON does not have reaches others as it is, and
// browsers as far as they can read it, which is counted.
func TestWebSocketNumbers(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenAt(t, b, "ws://127.0.0.1:0")
	peer := dialWebSocket(t, addr)
	browser, _, err := websocket.Dial(t.Context(), "ws://"+addr.String(), &websocket.DialOptions{
		Subprotocols: []string{subprotocol}, HTTPHeader: http.Header{"Origin": {"http://" + addr.String()}}})
	assert.NilError(t, err)
	t.Cleanup(func() { browser.CloseNow() })
	write := func(conn *websocket.Conn, text string) {
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte(text)))
	}
	read := func(conn *websocket.Conn, name string) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			_, data, err := conn.Read(ctx)
			assert.NilError(t, err)
			if _, instance, _ := strings.Cut(string(data), "},"); strings.Contains(string(data), `"`+name+`"`) {
				return strings.TrimSuffix(instance, "]")
			}
		}
	}
	for _, conn := range []*websocket.Conn{peer, browser} {
		write(conn, `[{"typeName":"DotsMsgConnect","attributes":6},{"clientName":"x","preloadCache":false}]`)
		read(conn, "DotsMsgConnectResponse")
	}
	assert.NilError(t, b.Publish(&demo.DemoAll{ID: value.Some("first")})) // so that its type is known
	for _, conn := range []*websocket.Conn{peer, browser} {
		write(conn, `[{"typeName":"DotsMember"},{"groupName":"DemoAll","event":1}]`)
		read(conn, "DotsCacheInfo")
	}
	write(peer, `[{"typeName":"DemoAll","attributes":6146},{"id":"a","f32":-inf,"f64":nan}]`)
	got, shown := read(peer, "DemoAll"), read(browser, "DemoAll")
	assert.Check(t, got == `{"id":"a","f32":-1e999,"f64":nan}` && shown == `{"id":"a","f32":-1e999,"f64":null}`,
		"%s, %s", got, shown)
	n := b.Counters().UnsetNumbers
	assert.Check(t, n == 1, "%d numbers are unset", n)
}

func TestWebSocketPageAndOrigin(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) })
	b := newBroker(t, Options{Page: page})
	addr := listenAt(t, b, "ws://127.0.0.1:0")
	response, err := http.Get("http://" + addr.String() + "/")
	assert.NilError(t, err)
	response.Body.Close()
	assert.Check(t, response.StatusCode == http.StatusOK && response.ContentLength == 4, "page: %v", response)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	header := http.Header{"Origin": {"http://elsewhere.example"}}
	_, response, err = websocket.Dial(ctx, "ws://"+addr.String(),
		&websocket.DialOptions{Subprotocols: []string{subprotocol}, HTTPHeader: header})
	assert.Check(t, err != nil && response != nil && response.StatusCode == http.StatusForbidden,
		"other origin: %v %v", response, err)
	conn, _, err := websocket.Dial(ctx, "ws://"+addr.String(), nil)
	assert.NilError(t, err)
	_, _, err = conn.Read(ctx)
	assert.Check(t, websocket.CloseStatus(err) == websocket.StatusPolicyViolation, "no subprotocol: %v", err)
	n := b.Counters().RefusedUpgrades
	assert.Check(t, n == 2, "%d refused upgrades", n)
}

func TestWebSocketHandshakeTimeout(t *testing.T) {
	t.Parallel()
	b := newBroker(t, Options{Limits: Limits{Handshake: time.Second}})
	addr := listenAt(t, b, "ws://127.0.0.1:0").String()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	eventually(t, "a Hello, before which the time may be over, too", func() bool {
		conn, _, err := websocket.Dial(ctx, "ws://"+addr, &websocket.DialOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			return false
		}
		defer conn.CloseNow()
		if _, _, err = conn.Read(ctx); err != nil {
			return false
		}
		_, _, err = conn.Read(ctx)
		assert.Check(t, err != nil && ctx.Err() == nil, "received more than a Hello, or no end")
		return true
	})
	eventually(t, "counted", func() bool { return b.Counters().Closed[HandshakeTimeout] > 0 })
}

func TestRecordingFilter(t *testing.T) {
	b := newBroker(t, Options{Name: "dotsd"})
	addr := listenUnix(t, b, frame.V2)
	b.mu.Lock()
	b.lastID = 4
	b.mu.Unlock()
	publisher := connect(t, addr, frame.V2)
	publisher.describe((&demo.DemoThing{}).Descriptor())
	publisher.send(thing(60))
	publisher.send(thing(200))
	publisher.barrier()
	p := play(t, b, addr, "40")
	p.expect("DotsMsgHello")
	p.write(p.r.Frames[1].Data)
	p.expect("DotsMsgConnectResponse")
	p.write(p.r.Frames[3].Data)
	p.expect("StructDescriptorData") // so that the guest can decode what follows
	const id = 1 << 1
	r := p.want("DemoThing", id, 5, false, "a101183c")
	assert.Check(t, r.SubscriptionID == 7 && r.Set&frame.FromCache != 0 && r.FromCache == 0, "replayed %+v", r.Header)
	p.want("DotsCacheInfo", 1<<1|1<<3, 0, false, "a2016944656d6f5468696e6703f5")
	publisher.send(thing(50))
	publisher.send(thing(201))
	if r := p.want("DemoThing", id, 5, false, "a1011832"); r.SubscriptionID != 7 {
		t.Errorf("received %+v", r.Header)
	}
	publisher.sendHeader(&demo.DemoThing{ID: value.Some[uint32](50)},
		frame.Header{RemoveObj: true, Set: frame.RemoveObj})
	if r := p.want("DemoThing", id, 5, true, "a1011832"); r.SubscriptionID != 7 {
		t.Errorf("received %+v", r.Header)
	}
	p.write(p.r.Frames[len(p.r.Frames)-1].Data)
	p.barrier()
	publisher.send(thing(51))
	publisher.barrier()
	p.barrier()
	n := b.Members("DemoThing")
	assert.Check(t, n == 0, "%d members", n)
}

// TestWebSocketForeignHost checks that a page whose name was made to mean this host gets nothing.
func TestWebSocketForeignHost(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) })
	b := newBroker(t, Options{Page: page})
	addr := listenAt(t, b, "ws://127.0.0.1:0").String()
	refused := uint64(0)
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "LocalHost:8000": http.StatusOK, "127.0.0.1": http.StatusOK,
		"127.1.2.3:99": http.StatusOK, "[::1]": http.StatusOK, "[::1]:80": http.StatusOK, addr: http.StatusOK,
		"[::ffff:127.0.0.1]:80": http.StatusOK,
		"rebound.example":       http.StatusForbidden, "rebound.example:8000": http.StatusForbidden,
		"localhost.example": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
		"[fe80::1]:80": http.StatusForbidden, "0.0.0.0": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
		assert.NilError(t, err)
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		assert.NilError(t, err)
		response.Body.Close()
		assert.Check(t, response.StatusCode == want, "page for %s: %s", host, response.Status)
		conn, response, err := websocket.Dial(t.Context(), "ws://"+addr, &websocket.DialOptions{
			Host: host, Subprotocols: []string{subprotocol}, HTTPHeader: http.Header{"Origin": {"http://" + host}}})
		assert.Check(t, (err == nil) == (want == http.StatusOK), "WebSocket for %s: %v", host, err)
		if err == nil {
			conn.CloseNow()
			continue
		}
		refused += 2
		assert.Check(t, response.StatusCode == want, "WebSocket for %s: %s", host, response.Status)
	}
	c := b.Counters()
	assert.Check(t, c.ForeignHosts == refused && c.RefusedUpgrades == 0,
		"%d requests were refused, and %d counted; %d refused upgrades", refused, c.ForeignHosts, c.RefusedUpgrades)
}

// deadlines notes the latest deadline of a connection, as seen when it is set. Those before it began end what is under
// way.
type deadlines struct {
	net.Conn
	began  time.Time
	latest atomic.Int64
}

func (d *deadlines) SetDeadline(t time.Time) error {
	until, latest := int64(time.Until(t)), d.latest.Load()
	if t.After(d.began) && (latest == 0 || until > latest) {
		d.latest.Store(until)
	}
	return d.Conn.SetDeadline(t)
}

// TestShutdownOfSilentWebSocket checks that a peer that never answers is not waited for as long as the
// WebSocket library does, which is 5 s.
func TestShutdownOfSilentWebSocket(t *testing.T) {
	t.Parallel()
	b := New(Options{})
	nextMessage(t, dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0")))
	b.mu.Lock()
	var d *deadlines
	for _, g := range b.guests {
		ws := g.transport.(*webSocket)
		d = &deadlines{Conn: ws.below, began: time.Now()}
		ws.below = d
	}
	b.mu.Unlock()
	assert.Check(t, b.Shutdown(t.Context()))
	latest := time.Duration(d.latest.Load())
	assert.Check(t, latest != 0 && latest <= lingerTime, "a deadline in %v", latest)
}
