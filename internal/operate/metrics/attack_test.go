package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// flood keeps a port busy until the test ends, from the same address as everybody else's: 31
// connections send requests without end and never read a response, and connect opens connections in
// a loop.
func flood(t *testing.T, address string, connect func(net.Conn)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	t.Cleanup(func() { cancel(); attackers.Wait() })
	loop := func(use func(net.Conn)) {
		attackers.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				use(conn)
				stop()
			}
		})
	}
	requests := strings.Repeat("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 1000)
	for range 31 {
		loop(func(conn net.Conn) {
			defer conn.Close()
			for {
				if _, err := io.WriteString(conn, requests); err != nil {
					return
				}
			}
		})
	}
	loop(connect)
}

// keepOpen returns a function that sends something and keeps connections open, twice as many as the
// server does.
func keepOpen(t *testing.T, send string) func(net.Conn) {
	var open []net.Conn
	t.Cleanup(func() {
		for _, conn := range open {
			conn.Close()
		}
	})
	return func(conn net.Conn) {
		io.WriteString(conn, send)
		if open = append(open, conn); len(open) > 2*maxConnections {
			open[0].Close()
			open = open[1:]
		}
	}
}

// Probes are answered while another user of this host does everything to keep the port busy.
func TestProbesDuringFlood(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) func(net.Conn){
		"closed at once":     func(*testing.T) func(net.Conn) { return func(conn net.Conn) { conn.Close() } },
		"kept open":          func(t *testing.T) func(net.Conn) { return keepOpen(t, "GET") },
		"kept open silently": func(t *testing.T) func(net.Conn) { return keepOpen(t, "") },
		"kept open with half a request": func(t *testing.T) func(net.Conn) {
			return keepOpen(t, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", maxHeaderBytes/2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, address, _ := serveOn(t, NewGatherer(testBuild), &fakeAgent{})
			flood(t, address, connect(t))
			testenv.Poll(t, deadline, "the flood", func() bool { return server.conns.Counts().Open >= 31 })
			client := http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
			for i := range 10 {
				for _, path := range []string{"/healthz", "/readyz"} {
					began := time.Now()
					response, err := client.Get("http://" + address + path)
					if err != nil {
						t.Errorf("%s, time %d: %v", path, i, err)
						continue
					}
					response.Body.Close()
					assert.Check(t, response.StatusCode == http.StatusOK, "%s, time %d: %s", path, i, response.Status)
					t.Logf("%s took %v", path, time.Since(began))
				}
			}
		})
	}
}
