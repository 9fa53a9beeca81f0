package otlp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// proxy is a destination that speaks HTTP/2, and answers as it likes.
func proxy(t *testing.T, answer func(http.ResponseWriter)) Destination {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			answer(w)
		}),
		Protocols: &protocols,
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	d := NewDestination("unix:/proxy")
	d.Name = "a"
	d.dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	return d
}

// A proxy that speaks HTTP and not gRPC: grpc-go makes a code of the status.
func TestProxyStatus(t *testing.T) {
	for _, c := range []struct {
		status  int
		code    string
		retried bool
	}{
		{429, "UNAVAILABLE", true}, {502, "UNAVAILABLE", true}, {503, "UNAVAILABLE", true}, {504, "UNAVAILABLE", true},
		{400, "INTERNAL", false}, {401, "UNAUTHENTICATED", false}, {403, "PERMISSION_DENIED", false},
		{404, "UNIMPLEMENTED", false}, {418, "UNKNOWN", false}, {500, "UNKNOWN", false},
	} {
		inBubble(t, fmt.Sprint(c.status), func(t *testing.T) {
			l := lab1(t, proxy(t, func(w http.ResponseWriter) { w.WriteHeader(c.status) }))
			l.send(Metrics, "x", 1)
			dropped := "refused," + c.code
			switch {
			case c.retried:
				l.wantCounts("a", Metrics, "accepted_items=1 attempts{UNAVAILABLE}=1 queue_batches=1 queue_items=1")
				return
			case c.status == 404:
				dropped = "unsupported"
			}
			l.wantCounts("a", Metrics, fmt.Sprintf("accepted_items=1 dropped_items{%s}=1 attempts{%s}=1", dropped,
				c.code))
		})
	}
}

// A stream that is reset, before the answer or in the midst of it, is retried and may be a
// duplicate. grpc-go makes INTERNAL of it, which from a receiver would be final.
func TestStreamReset(t *testing.T) {
	for _, headed := range []bool{false, true} {
		inBubble(t, fmt.Sprint(headed), func(t *testing.T) {
			first := true
			l := lab1(t, proxy(t, func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/grpc")
				if first && headed {
					w.(http.Flusher).Flush()
				}
				if first {
					first = false
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Grpc-Status", "0")
			}))
			l.send(Metrics, "x", 1)
			l.after(time.Minute)
			if got := l.counts("a", Metrics); !strings.Contains(got, "attempts{UNAVAILABLE}=1 ") ||
				!strings.Contains(got, "maybe_duplicated_batches=1") {
				t.Errorf("counters %s", got)
			}
		})
	}
}

// Trailers alone are an answer: what they refuse was not taken.
func TestTrailersOnly(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		l := lab1(t, proxy(t, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "13")
			w.Header().Set("Grpc-Message", "stream terminated by RST_STREAM somewhere else")
		}))
		l.send(Metrics, "x", 1)
		l.after(time.Minute)
		l.wantCounts("a", Metrics, "accepted_items=1 dropped_items{refused,INTERNAL}=1 attempts{INTERNAL}=1")
	})
}

// incompressible is a byte of headers that Huffman coding would make longer: it is sent as it is, which takes no time.
const incompressible = "~"

// More headers than may be read, of a receiver that does not care what may be. In pieces, they are
// its answer and final. In one, the connection ends, with every request on it: they are sent again,
// at the pace of any outage.
func TestEndlessStatus(t *testing.T) {
	for _, c := range []struct {
		pieces int
		want   string
	}{
		{5, "accepted_items=1 dropped_items{refused,INTERNAL}=1 attempts{INTERNAL}=1"},
		{1, "accepted_items=1 attempts{UNAVAILABLE}=2 retries=1 maybe_duplicated_batches=1 queue_batches=1 queue_items=1"},
	} {
		inBubble(t, fmt.Sprint(c.pieces), func(t *testing.T) {
			l := lab1(t, proxy(t, func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/grpc")
				w.Header().Set("Grpc-Status", "14")
				for i := range c.pieces {
					piece := strings.Repeat(incompressible, maxHeaders/c.pieces+1)
					w.Header().Set(fmt.Sprint("Grpc-Message-", i), piece)
				}
			}))
			l.send(Metrics, "x", 1)
			l.after(time.Second)
			l.wantCounts("a", Metrics, c.want)
		})
	}
}
