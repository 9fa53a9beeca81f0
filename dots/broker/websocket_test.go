package broker

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	delete(m[0], "sentTime")
	delete(m[0], "serverSentTime")
	return m
}

func nextMessage(t *testing.T, conn *websocket.Conn) message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kind, data, err := conn.Read(ctx)
	if err != nil || kind != websocket.MessageText {
		t.Fatalf("%v %s %v", kind, data, err)
	}
	return parseMessage(t, data)
}

func TestRecordingWebSocket(t *testing.T) {
	b := newBroker(t, Options{})
	conn := dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0"))
	for _, f := range recordings.Load(t, "41").Frames {
		if f.From == recordings.Client {
			if err := conn.Write(t.Context(), websocket.MessageText, f.Data); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want := parseMessage(t, f.Data)
		if want[0]["typeName"] == "DotsMsgHello" { // announces filtered subscriptions
			want[0]["attributes"] = 22.0
			want[1]["capabilities"] = map[string]any{"filteredSubscriptions": true}
		}
		if got := nextMessage(t, conn); !reflect.DeepEqual(got, want) {
			t.Fatalf("line %d:\nreceived %v\nwant     %v", f.Line, got, want)
		}
	}
	eventually(t, "goodbye", func() bool { return b.Counters().Closed[Goodbye] == 1 })
}

func TestWebSocketReplayAndShutdown(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenAt(t, b, "ws://127.0.0.1:0")
	for id := range uint32(3) {
		if err := b.Publish(&demo.DemoThing{ID: value.Some(3 - id)}); err != nil {
			t.Fatal(err)
		}
	}
	conn := dialWebSocket(t, addr)
	nextMessage(t, conn)
	for _, text := range []string{
		`[{"typeName":"DotsMsgConnect","attributes":6},{"clientName":"x","preloadCache":false,"unknown":[1]}]`,
		`[{"typeName":"DotsMember"},{"groupName":"DemoThing","event":1,"client":null}]`,
	} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	nextMessage(t, conn)
	if m := nextMessage(t, conn); m[0]["typeName"] != "StructDescriptorData" {
		t.Errorf("received %v, want the description", m)
	}
	for i := range 3 {
		m := nextMessage(t, conn)
		if m[0]["fromCache"] != float64(2-i) || m[1]["id"] != float64(i+1) {
			t.Errorf("received %v", m)
		}
	}
	nextMessage(t, conn)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- b.Shutdown(ctx)
	}()
	if m := nextMessage(t, conn); m[0]["typeName"] != "DotsMsgError" || m[1]["errorCode"] != 0.0 {
		t.Errorf("received %v, want a goodbye", m)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v, want a normal closure", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
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
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := conn.Read(t.Context()); err == nil {
			t.Errorf("%.80s: received %s", text, data)
		}
	}
}

func TestWebSocketPageAndOrigin(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) })
	b := newBroker(t, Options{Page: page})
	addr := listenAt(t, b, "ws://127.0.0.1:0")
	response, err := http.Get("http://" + addr.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength != 4 {
		t.Errorf("page: %v", response)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	header := http.Header{"Origin": {"http://elsewhere.example"}}
	_, response, err = websocket.Dial(ctx, "ws://"+addr.String(),
		&websocket.DialOptions{Subprotocols: []string{subprotocol}, HTTPHeader: header})
	if err == nil || response == nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("other origin: %v %v", response, err)
	}
	conn, _, err := websocket.Dial(ctx, "ws://"+addr.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("no subprotocol: %v", err)
	}
	if n := b.Counters().RefusedUpgrades; n != 2 {
		t.Errorf("%d refused upgrades", n)
	}
}

func TestWebSocketHandshakeTimeout(t *testing.T) {
	b := newBroker(t, Options{Limits: Limits{Handshake: time.Second}}) // until the Hello, too
	conn := dialWebSocket(t, listenAt(t, b, "ws://127.0.0.1:0"))
	nextMessage(t, conn)
	if _, _, err := conn.Read(t.Context()); err == nil {
		t.Error("received more than a Hello")
	}
	eventually(t, "counted", func() bool { return b.Counters().Closed[HandshakeTimeout] == 1 })
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
	if r.SubscriptionID != 7 || r.Set&frame.FromCache == 0 || r.FromCache != 0 {
		t.Errorf("replayed %+v", r.Header)
	}
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
	if n := b.Members("DemoThing"); n != 0 {
		t.Errorf("%d members", n)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("page for %s: %s", host, response.Status)
		}
		conn, response, err := websocket.Dial(t.Context(), "ws://"+addr, &websocket.DialOptions{
			Host: host, Subprotocols: []string{subprotocol}, HTTPHeader: http.Header{"Origin": {"http://" + host}}})
		if (err == nil) != (want == http.StatusOK) {
			t.Errorf("WebSocket for %s: %v", host, err)
		}
		if err == nil {
			conn.CloseNow()
			continue
		}
		refused += 2
		if response.StatusCode != want {
			t.Errorf("WebSocket for %s: %s", host, response.Status)
		}
	}
	if c := b.Counters(); c.ForeignHosts != refused || c.RefusedUpgrades != 0 {
		t.Errorf("%d requests were refused, and %d counted; %d refused upgrades", refused, c.ForeignHosts,
			c.RefusedUpgrades)
	}
}

// TestShutdownOfSilentWebSocket checks that a peer that never answers is not waited for as long as
// the WebSocket library does, which is 5 s, whether or not the connection was about to be closed
// before.
func TestShutdownOfSilentWebSocket(t *testing.T) {
	b := New(Options{})
	addr := listenAt(t, b, "ws://127.0.0.1:0")
	silent, wrong := dialWebSocket(t, addr), dialWebSocket(t, addr)
	nextMessage(t, silent)
	if err := wrong.Write(t.Context(), websocket.MessageText, []byte("wrong")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "left", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, g := range b.guests {
			if g.left {
				return true
			}
		}
		return len(b.guests) < 2
	})
	begin := time.Now()
	if err := b.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}
