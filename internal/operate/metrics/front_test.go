package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/connlimit"
)

// refused returns the counts of what a server refused, by reason.
func refused(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	counts := make(map[string]float64)
	for _, m := range gather(t, s)["correlator_http_refused_total"].GetMetric() {
		counts[m.Label[0].GetValue()] = m.GetCounter().GetValue()
	}
	return counts
}

// A connection has one request. Others that are sent with it are not served.
func TestOneRequestPerConnection(t *testing.T) {
	address, _ := serve(t, NewGatherer(testBuild), &fakeAgent{})
	for _, path := range []string{"/healthz", "/", "/metrics", "/nothing"} {
		conn := dial(t, address)
		fmt.Fprint(conn, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 3))
		text, err := io.ReadAll(conn)
		n := strings.Count(string(text), "HTTP/1.1 ")
		assert.Check(t, n == 1 && err == nil && strings.Contains(string(text), "\r\nConnection: close\r\n"),
			"%s: %d responses, %v", path, n, err)
	}
}

// A client that does not read its response is disconnected after a while, and one that does not
// send its request.
func TestSlowClients(t *testing.T) {
	for request, timeout := range map[string]time.Duration{
		"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":         writeTimeout,
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n": writeTimeout,
		"GET /healthz HTTP/1.1\r\nHost: x\r\n":             requestTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			listener, client := listenForOne()
			defer client.Close()
			ctx, cancel := context.WithCancel(t.Context())
			server, ended := newServer(listener), make(chan error)
			go func() { ended <- server.Serve(ctx, NewGatherer(testBuild), &fakeAgent{}) }()
			fmt.Fprint(client, request)
			synctest.Wait()
			time.Sleep(timeout - time.Millisecond)
			assert.Check(t, server.conns.Counts().Open == 1, "%q: it was disconnected too early", request)
			time.Sleep(time.Second)
			assert.Check(t, server.conns.Counts().Open == 0, "%q: it is still connected", request)
			counts := refused(t, server)
			assert.Check(t, counts["slow"] == 1, "%q: %v", request, counts)
			cancel()
			err := <-ended
			assert.Check(t, err)
		})
	}
}

// An address may make a burst of requests, and so many a second afterwards, whatever others do. Addresses
// beyond a number share what one may do.
func TestRates(t *testing.T) {
	server, now := newServer(nil), time.Now()
	allowed := func(p connlimit.Peer, requests int) (n int) {
		for range requests {
			if server.rates.Allow(p, 1, now) {
				n++
			}
		}
		return n
	}
	const interval = time.Second / requestsPerSecond
	for _, step := range []struct {
		peer  connlimit.Peer
		after time.Duration
		want  int
	}{
		{"a", 0, requestBurst}, {"b", 0, requestBurst}, {"a", interval / 2, 0}, {"a", interval / 2, 1},
		{"a", 3 * interval, 3}, {"a", time.Hour, requestBurst},
	} {
		now = now.Add(step.after)
		got := allowed(step.peer, 100)
		assert.Check(t, got == step.want, "%+v: %d were allowed", step, got)
	}
	sum := 0
	server = newServer(nil)
	for i := range 2 * maxRatedPeers {
		sum += allowed(connlimit.Peer(strconv.Itoa(i)), 1)
	}
	assert.Check(t, sum == maxRatedPeers+requestBurst, "%d requests of %d peers were allowed", sum, 2*maxRatedPeers)
}

// A client that is served is not taken for a slow one, nor for one that was refused.
func TestServedClients(t *testing.T) {
	for _, path := range []string{"/healthz", "/metrics"} {
		synctest.Test(t, func(t *testing.T) {
			listener, client := listenForOne()
			defer client.Close()
			ctx, cancel := context.WithCancel(t.Context())
			server, ended := newServer(listener), make(chan error)
			go func() { ended <- server.Serve(ctx, NewGatherer(testBuild), &fakeAgent{}) }()
			fmt.Fprint(client, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			text, err := io.ReadAll(client)
			assert.Check(t, err == nil && strings.HasPrefix(string(text), "HTTP/1.1 200 "), "%v, %s", err, text)
			time.Sleep(requestTimeout + writeTimeout)
			synctest.Wait()
			assert.Check(t, server.conns.Counts().Open == 0, "%s: it is still connected", path)
			for reason, n := range refused(t, server) {
				assert.Check(t, n == 0, "%s: %v because of %s", path, n, reason)
			}
			cancel()
			assert.Check(t, <-ended)
		})
	}
}

// A request beyond the rate is refused after a delay, and counted.
func TestRefusedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, client := listenForOne()
		defer client.Close()
		ctx, cancel := context.WithCancel(t.Context())
		server, ended, began := newServer(listener), make(chan error), time.Now()
		for range requestBurst {
			server.rates.Allow(connlimit.PeerOf(client), 1, began)
		}
		go func() { ended <- server.Serve(ctx, NewGatherer(testBuild), &fakeAgent{}) }()
		fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		text, err := io.ReadAll(client)
		assert.Check(t, err == nil && strings.HasPrefix(string(text), "HTTP/1.1 429 "), "%v, %s", err, text)
		assert.Check(t, time.Since(began) == refusalDelay, "after %v", time.Since(began))
		counts := refused(t, server)
		assert.Check(t, counts["rate"] == 1 && counts["slow"] == 0, counts)
		cancel()
		assert.Check(t, <-ended)
	})
}

// Requests of one address are limited, except for probes. Those that are refused are counted.
func TestTooManyRequests(t *testing.T) {
	server, address, _ := serveOn(t, NewGatherer(testBuild), &fakeAgent{})
	var served, tooMany atomic.Int32
	var clients sync.WaitGroup
	for i := range 3 * requestBurst {
		clients.Go(func() {
			ask, path := http.Get, "/"
			if i%3 == 0 { // which is no probe
				ask, path = http.Head, "/readyz"
			}
			response, err := ask("http://" + address + path)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			switch response.StatusCode {
			case http.StatusOK:
				served.Add(1)
			case http.StatusTooManyRequests:
				tooMany.Add(1)
			}
		})
	}
	for range 3 * requestBurst {
		status, _ := get(t, "http://"+address+"/readyz")
		assert.Check(t, status == http.StatusOK, "readyz: %d", status)
	}
	clients.Wait()
	s, r := served.Load(), tooMany.Load()
	assert.Check(t, s >= requestBurst && r != 0 && s+r == 3*requestBurst, "%d were served, %d refused", s, r)
	if n := refused(t, server)["rate"]; n != float64(tooMany.Load()) {
		t.Errorf("%v are counted as refused, %d were", n, tooMany.Load())
	}
}
