package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"

	"correlator/dots/internal/demo"
	"correlator/dots/internal/recordings"
	"correlator/dots/value"
)

// serve serves a WebSocket that a test plays.
func serve(t *testing.T, protocol string, play func(ctx context.Context, ws *websocket.Conn)) (uri string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		play(ctx, ws)
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http", "ws", 1)
}

var sentTime = regexp.MustCompile(`"sentTime":[0-9.e+]+`)

// TestWebSocketRecording plays the recorded broker of a WebSocket, and compares what the client
// sends: messages are the same text except times.
func TestWebSocketRecording(t *testing.T) {
	rec := recordings.Load(t, "41")
	uri := serve(t, "dots-json", func(ctx context.Context, ws *websocket.Conn) {
		for i, f := range rec.Frames {
			if f.From == recordings.Broker {
				must(t, ws.Write(ctx, websocket.MessageText, f.Data))
				continue
			}
			_, got, err := ws.Read(ctx)
			want := sentTime.ReplaceAllString(string(f.Data), "")
			if text := sentTime.ReplaceAllString(string(got), ""); err != nil || text != want {
				t.Errorf("message %d: %v\nsent     %s\nrecorded %s", i+1, err, text, want)
				return
			}
		}
	})
	c := New(Options{Name: "all-types"})
	p := allTypes(program{})
	p.prepare(t, c)
	assert.NilError(t, c.Connect(t.Context(), uri))
	p.run(t, c)
	err := c.Err()
	assert.Check(t, errors.Is(err, ErrClosed), err)
}

// TestWebSocketErrors has servers of something else.
func TestWebSocketErrors(t *testing.T) {
	uri := serve(t, "chat", func(context.Context, *websocket.Conn) {})
	err := New(Options{}).Connect(t.Context(), uri)
	assert.Check(t, errors.Is(err, ErrProtocol), "another subprotocol: %v", err)
	uri = serve(t, "dots-json", func(ctx context.Context, ws *websocket.Conn) {
		must(t, ws.Write(ctx, websocket.MessageText, []byte(`[{"typeName":"Unknown"},{}]`)))
		must(t, ws.Write(ctx, websocket.MessageText, []byte(`no JSON`)))
	})
	c := New(Options{})
	if err := c.Connect(t.Context(), uri); !errors.Is(err, ErrProtocol) || c.Counters().Unsubscribed != 1 {
		t.Errorf("no JSON: %v, %+v", err, c.Counters())
	}
	uri = serve(t, "dots-json", func(ctx context.Context, ws *websocket.Conn) {
		must(t, ws.Write(ctx, websocket.MessageBinary, []byte{1}))
	})
	err = New(Options{}).Connect(t.Context(), uri)
	assert.Check(t, errors.Is(err, ErrProtocol), "a binary message: %v", err)
}

// TestWebSocketRedirect: a broker cannot send a client to another server.
func TestWebSocketRedirect(t *testing.T) {
	uri := serve(t, "dots-json", func(context.Context, *websocket.Conn) { t.Error("redirected") })
	server := httptest.NewServer(http.RedirectHandler(strings.Replace(uri, "ws", "http", 1), http.StatusFound))
	t.Cleanup(server.Close)
	assert.Check(t, New(Options{}).Connect(t.Context(), strings.Replace(server.URL, "http", "ws", 1)) != nil,
		"no error")
}

// TestFilteredRecording plays what a Rust broker sent for a filtered subscription.
func TestFilteredRecording(t *testing.T) {
	rec := recordings.Load(t, "40")
	c := New(Options{NoPreload: true})
	c.filters = 6 // the recorded client's id was 7
	o := newObserver()
	s, err := SubscribeFiltered(c, belowHundred(), func(e *Event[*demo.DemoThing]) {
		o.add(e.Operation.String() + " " + e.Updated.Name.Or("?"))
	})
	must(t, err)
	p, result := connecting(t, c)
	for _, f := range rec.Frames {
		if f.From == recordings.Broker {
			_, err := p.conn.Write(f.Data)
			must(t, err)
		}
	}
	must(t, <-result)
	equal(t, o.wait(t, 3), "create ?", "create ?", "remove ?")
	must(t, s.Wait(t.Context()))
	if x, ok := s.Get(demo.DemoThingKey{ID: 60}); !ok || x.Valid() != 2 || s.Len() != 1 {
		t.Errorf("%+v, %d objects", x, s.Len())
	}
	must(t, c.Publish(t.Context(), &demo.DemoThing{ID: value.Some[uint32](1)}))
}
