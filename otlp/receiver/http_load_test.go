package receiver

import (
	"bytes"
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

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"

	"correlator/internal/host/connlimit"
	"correlator/otlp"
)

// Connections of HTTP/1.1 whose requests do not end give up slots and memory to others, as those of
// gRPC do.
func TestHTTPSlowSenders(t *testing.T) {
	for _, length := range []int{DefaultMaxRequestBytes, -1} {
		synctest.Test(t, func(t *testing.T) {
			b := openBubble(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			slow := httpClients(t, b.listener.DialContext)["HTTP/1.1"]
			var ended sync.WaitGroup
			var late, refused atomic.Int64
			for range maxInWork {
				ended.Go(func() {
					body := newTrickle(0, 1)
					url := "http://receiver" + otlp.Traces.Path()
					q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
					if err != nil {
						t.Error(err)
						return
					}
					q.ContentLength = int64(length)
					q.Header.Set("Content-Type", protobufType)
					if a, err := slow.RoundTrip(q); err == nil {
						a.Body.Close()
						switch after, _ := strconv.Atoi(a.Header.Get("Retry-After")); {
						case a.StatusCode == 503 && after > 0:
							refused.Add(1)
						case a.StatusCode == 503: // at the deadline
							late.Add(1)
						default:
							t.Error(a.Status)
						}
					}
					body.Close()
				})
			}
			synctest.Wait()
			n := b.inWork()
			assert.Assert(t, n == maxInWork, "%d requests are in work", n)
			start := time.Now()
			body, _ := sound(t, otlp.Metrics)
			if _, err := export(b.dial(), otlp.Metrics, body); err != nil || time.Since(start) > 2*connlimit.Grace {
				t.Errorf("a request of another: %v, after %v", err, time.Since(start))
			}
			time.Sleep(callTimeout + slotTimeout)
			synctest.Wait()
			if n := b.opened(); n != 0 || !b.memoryFree(memoryLimit(DefaultMaxRequestBytes)) {
				t.Errorf("%d calls hold something after their deadline", n)
			}
			cancel()
			ended.Wait()
			s := b.counters.snapshot()[otlp.Traces]
			again, tooLate := uint64(refused.Load()), uint64(late.Load())
			if s.refused[Slow] == 0 || s.refused[Slow]+s.refused[Overload] != again || s.received != again ||
				s.requests[codes.Unavailable] != again || s.requests[codes.DeadlineExceeded] != tooLate ||
				again+tooLate != maxInWork {
				t.Errorf("%d requests shall come again, %d have ended: counters are %s", again, tooLate,
					counts(t, b.Receiver, otlp.Traces))
			}
		})
	}
}

// A connection that was interrupted, or timed out, is not used again with a deadline in the past.
func TestHTTPDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		c := httpClients(t, b.listener.DialContext)["HTTP/1.1"]
		body, _ := sound(t, otlp.Traces)
		for range 3 {
			a, _ := answer(t, c, otlp.Traces.Path(), httpHeaders(), bytes.NewReader(body))
			assert.Check(t, a.StatusCode == 200, a.Status)
			time.Sleep(callTimeout + slotTimeout + time.Second) // both deadlines are over
			n := b.Status().Connections
			assert.Check(t, n == 1, "%d connections", n)
		}
		time.Sleep(idleTimeout)
		synctest.Wait()
		n := b.Status().Connections
		assert.Check(t, n == 0, "%d connections are idle", n)
	})
}

// A refused request whose body does not come is answered in bounded time, and does not keep its
// connection.
func TestHTTPRefusedWithoutBody(t *testing.T) {
	for head, code := range map[string]int{
		"POST /v1/logs":  404,
		"PUT /v1/traces": 405,
		"POST /v1/traces Origin: http://127.0.0.1":             403,
		"POST /v1/traces Content-Type: application/grpc+proto": 415,
		"POST /v1/traces Content-Type: text/plain":             415,
		"POST /v1/traces Grpc-Timeout: nonsense":               400,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := openBubble(t)
			c, err := b.listener.Dial()
			assert.NilError(t, err)
			defer c.Close()
			words := append(strings.SplitN(head, " ", 3), "X: y")
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: receiver\r\n%s\r\nContent-Length: 1000\r\n\r\n",
				words[0], words[1], words[2])
			var first [len("HTTP/1.1 404")]byte
			c.SetReadDeadline(time.Now().Add(callTimeout + time.Second))
			if _, err := io.ReadFull(c, first[:]); err != nil || string(first[9:]) != strconv.Itoa(code) {
				t.Errorf("%s: %s, %v", head, first, err)
			}
			io.Copy(io.Discard, c)
			synctest.Wait()
			n := b.Status().Connections
			assert.Check(t, n == 0, "%s: %d connections", head, n)
		})
	}
}

// Clients that announce no length and send as much as possible take the memory that the package
// documents.
func TestHTTPAbuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		bound := measure(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := httpClients(t, b.listener.DialContext)["HTTP/1.1"]
		var calls sync.WaitGroup
		for range maxConnections - 1 {
			calls.Go(func() {
				body := newTrickle(0, DefaultMaxRequestBytes-prefixSize)
				defer context.AfterFunc(ctx, func() { body.Close() })()
				if a, err := post(ctx, t, c, otlp.Traces.Path(), httpHeaders(), body); err == nil {
					a.Body.Close()
				}
			})
		}
		synctest.Wait()
		assert.Check(t, b.inWork() == maxInWork && !b.memoryFree(1), "%d requests are in work", b.inWork())
		const most = maxInWork*(window+1) + 2*(DefaultMaxRequestBytes+1) + maxConnections*(23<<10+2*bubbleBuffer)
		bound(most + 8<<20) // the clients' share, about
		cancel()
		calls.Wait()
		c.CloseIdleConnections()
		synctest.Wait()
		b.wantNothingTaken()
	})
}
