package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// httpServer is a receiver of OTLP/HTTP that answers as it likes, over HTTP/1.1.
type httpServer struct {
	mu     sync.Mutex
	answer func(http.ResponseWriter, *http.Request)
	got    []*http.Request
	bodies []string
	at     []time.Time
}

func (s *httpServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	s.mu.Lock()
	s.got, s.bodies, s.at = append(s.got, q), append(s.bodies, string(body)), append(s.at, time.Now())
	answer := s.answer
	s.mu.Unlock()
	answer(w, q)
}

func (s *httpServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// serveHTTP returns a receiver and a destination named a for it.
func serveHTTP(t testing.TB, answer func(http.ResponseWriter, *http.Request)) (*httpServer, Destination) {
	t.Helper()
	s := &httpServer{answer: answer}
	listener := bufconn.Listen(1 << 16)
	server := &http.Server{Handler: s}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	d := NewDestination("http://receiver/otlp/")
	d.Name, d.Protocol = "a", HTTPProtobuf
	d.dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	return s, d
}

// respondWith answers with a status code, a content type and a body.
func respondWith(code int, contentType, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

func TestHTTPRequest(t *testing.T) {
	for _, compression := range []Compression{Gzip, None} {
		inBubble(t, string(compression), func(t *testing.T) {
			s, d := serveHTTP(t, respondWith(200, protobufType, ""))
			d.Compression, d.Headers = compression, Headers{"api-key": "s3cret-s3cret"}
			l := lab1(t, d)
			for signal := range NumSignals {
				l.send(signal, "\x0a\x00", 3)
				l.wantCounts("a", signal, "accepted_items=3 sent_items=3 attempts{OK}=1")
			}
			var paths []string
			for i, q := range s.got {
				paths = append(paths, q.Method+" "+q.URL.Path)
				body := s.bodies[i]
				if compression == Gzip {
					z, err := gzip.NewReader(strings.NewReader(body))
					assert.NilError(t, err)
					raw, _ := io.ReadAll(z)
					body = string(raw)
				}
				encoding := map[Compression]string{Gzip: "gzip"}[compression]
				if body != "\x0a\x00" || q.ContentLength != int64(len(s.bodies[i])) || q.Host != "receiver" ||
					q.Header.Get("Content-Encoding") != encoding || q.Header.Get("Content-Type") != protobufType ||
					q.Header.Get("Api-Key") != "s3cret-s3cret" || q.Header.Get("Accept-Encoding") != "" ||
					(q.Header.Get(ProfilesVersionKey) == "1") != strings.HasSuffix(q.URL.Path, "/profiles") ||
					q.UserAgent() != "correlator/1.2.3 OTel-OTLP-Exporter-Go/1.2.3" {
					t.Errorf("request %q to %s with %v", body, q.Host, q.Header)
				}
			}
			want := []string{
				"POST /otlp/v1/traces", "POST /otlp/v1/metrics", "POST /otlp/v1development/profiles",
			}
			assert.Check(t, slices.Equal(paths, want), "%q", paths)
		})
	}
}

// What each response means: what is counted and reported, and whether the batch is sent again.
func TestHTTPResponses(t *testing.T) {
	text, err := proto.Marshal(&status.Status{Code: 14, Message: "busy \x1b with s3cret-s3cret"})
	assert.NilError(t, err)
	const ok, queued = "sent_items=3 attempts{OK}=1", " queue_batches=1 queue_items=3"
	strange := "dropped_items{refused,UNKNOWN}=3 attempts{UNKNOWN}=1 bad_response=1"
	refused := func(code string) string { return fmt.Sprintf("dropped_items{refused,%s}=3 attempts{%s}=1", code, code) }
	for _, c := range []struct {
		name       string
		answer     func(http.ResponseWriter, *http.Request)
		want, text string
	}{
		{"success", respondWith(200, protobufType, ""), ok, ""},
		{"empty partial success", respondWith(200, protobufType, "\x0a\x00"), ok, ""},
		{"no content", respondWith(204, "", ""), ok, ""},
		{"partial success", respondWith(200, protobufType, string(partialResponse(2, "no"))),
			"sent_items=1 dropped_items{rejected}=2 attempts{OK}=1", "2 of 3 items rejected: no"},
		{"rejected without a word", respondWith(200, protobufType, string(partialResponse(2, ""))),
			"sent_items=1 dropped_items{rejected}=2 attempts{OK}=1",
			`2 of 3 items rejected: HTTP 200 OK: "\n\x04\b\x02\x12\x00"`},
		{"too many rejected", respondWith(200, protobufType, string(partialResponse(4, "no"))),
			"dropped_items{rejected}=3 attempts{OK}=1 bad_response=1", "3 of 3 items rejected: no"},
		{"no type", respondWith(200, "", "\x0a\x00"), ok, ""},
		{"nothing in JSON", respondWith(200, jsonType, ""), ok + " bad_response=1", ""},
		{"nothing of another type", respondWith(200, "text/html", ""), strange, `no response of OTLP: HTTP 200 OK: ""`},
		{"accepted", respondWith(202, "", ""), ok, ""},
		{"garbage", respondWith(200, protobufType, "\xff"), strange, `no response of OTLP: HTTP 200 OK: "\xff"`},
		{"a page as protobuf", respondWith(200, protobufType, "<html>"), strange,
			`no response of OTLP: HTTP 200 OK: "<html>"`},
		{"a sign-in page",
			respondWith(200, "text/html; charset=utf-8", "<p>\x1b s3cret-s3cret ä"+strings.Repeat("x", 300)), strange,
			`no response of OTLP: HTTP 200 OK: "<p>\x1b REDACTED \u00e4` + strings.Repeat("x", 184) + `"`},
		{"a text", respondWith(202, "text/plain", "OK"), strange, `no response of OTLP: HTTP 202 Accepted: "OK"`},
		{"JSON", respondWith(200, jsonType, "{}"), ok + " bad_response=1", ""},
		{"JSON of success", respondWith(200, jsonType, `{"partialSuccess":{"errorMessage":"","rejectedDataPoints":"0"}}`),
			ok + " bad_response=1", ""},
		{"JSON that rejects", respondWith(200, jsonType, `{"partialSuccess":{"rejectedDataPoints":"2"}}`),
			"sent_items=1 dropped_items{rejected}=2 attempts{OK}=1 bad_response=1",
			`2 of 3 items rejected: HTTP 200 OK: "{\"partialSuccess\":{\"rejectedDataPoints\":\"2\"}}"`},
		{"JSON with numbers", respondWith(200, jsonType, `{"partial_success":{"rejected_data_points":3}}`),
			"dropped_items{rejected}=3 attempts{OK}=1 bad_response=1",
			`3 of 3 items rejected: HTTP 200 OK: "{\"partial_success\":{\"rejected_data_points\":3}}"`},
		{"a Status", respondWith(200, protobufType, "\x08\x10\x12\x04auth"), strange,
			`no response of OTLP: HTTP 200 OK: "\b\x10\x12\x04auth"`},
		{"fewer than none", respondWith(200, protobufType, "\n\v\b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), strange,
			`no response of OTLP: HTTP 200 OK: "\n\v\b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"`},
		{"JSON of another signal", respondWith(200, jsonType, `{"partialSuccess":{"rejectedSpans":"2"}}`), strange,
			`no response of OTLP: HTTP 200 OK: "{\"partialSuccess\":{\"rejectedSpans\":\"2\"}}"`},
		{"JSON with later fields", respondWith(200, jsonType,
			`{"later":1,"partialSuccess":{"later":[2],"rejectedDataPoints":"0"}}`), ok + " bad_response=1", ""},
		{"JSON with null", respondWith(200, jsonType, `{"partialSuccess":null}`), ok + " bad_response=1", ""},
		{"JSON of another service", respondWith(200, jsonType, `{"status":"ok"}`), strange,
			`no response of OTLP: HTTP 200 OK: "{\"status\":\"ok\"}"`},
		{"no object of JSON", respondWith(200, jsonType, `[]`), strange, `no response of OTLP: HTTP 200 OK: "[]"`},
		{"endless", respondWith(200, protobufType, strings.Repeat("\x12\x00", maxResponse/2+1)),
			refused("RESOURCE_EXHAUSTED") + " bad_response=1", "the response is larger than 4194304 bytes"},
		{"400", respondWith(400, protobufType, string(text)), refused("INVALID_ARGUMENT"),
			"HTTP 400 Bad Request: busy ? with REDACTED"},
		{"400 with garbage", respondWith(400, protobufType, "\xff"), refused("INVALID_ARGUMENT") + " bad_response=1",
			"HTTP 400 Bad Request"},
		{"401", respondWith(401, "text/plain; charset=utf-8", "who\nare you?\n"), refused("UNAUTHENTICATED"),
			"HTTP 401 Unauthorized: who?are you?"},
		{"403", respondWith(403, "text/html", "<p>"), refused("PERMISSION_DENIED"), "HTTP 403 Forbidden"},
		{"404", respondWith(404, "", ""), "dropped_items{unsupported}=3 attempts{UNIMPLEMENTED}=1",
			"HTTP 404 Not Found"},
		{"413", respondWith(413, "", ""), refused("RESOURCE_EXHAUSTED"), "HTTP 413 Request Entity Too Large"},
		{"418", respondWith(418, "", ""), refused("UNKNOWN"), "HTTP 418 I'm a teapot"},
		{"500", respondWith(500, "", ""), refused("INTERNAL"), "HTTP 500 Internal Server Error"},
		{"429", respondWith(429, "", ""), "attempts{UNAVAILABLE}=1" + queued, "HTTP 429 Too Many Requests"},
		{"502", respondWith(502, "", ""), "attempts{UNAVAILABLE}=1" + queued, "HTTP 502 Bad Gateway"},
		{"503", respondWith(503, protobufType, string(text)), "attempts{UNAVAILABLE}=1" + queued,
			"HTTP 503 Service Unavailable: busy ? with REDACTED"},
		{"504", respondWith(504, "", ""), "attempts{UNAVAILABLE}=1" + queued, "HTTP 504 Gateway Timeout"},
		{"cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"attempts{UNAVAILABLE}=1" + queued, "EOF"},
		{"cut in the midst", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			w.WriteHeader(200)
		}, "attempts{UNAVAILABLE}=1" + queued, "reading the response: unexpected EOF"},
		{"endless headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*maxHTTPHeaders))
		}, "attempts{UNAVAILABLE}=1" + queued, "server response headers exceeded 65536 bytes; aborted"},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			_, d := serveHTTP(t, c.answer)
			d.Headers = Headers{"authorization": "Bearer s3cret-s3cret"}
			d.RetryResourceExhausted = true // has no say here
			l := lab1(t, d)
			l.send(Metrics, "x", 3)
			l.wantCounts("a", Metrics, "accepted_items=3 "+c.want)
			_, message, _ := strings.Cut(l.Status()[0].LastError.String(), ": ")
			if !strings.HasSuffix(message, c.text) || (message == "") != (c.text == "") {
				t.Errorf("last error %q, want %q", l.Status()[0].LastError, c.text)
			}
		})
	}
}

// Data and credentials go to the configured receiver only.
func TestHTTPRedirect(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		inBubble(t, fmt.Sprint(code), func(t *testing.T) {
			s, d := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://elsewhere/v1/metrics")
				w.WriteHeader(code)
			})
			l := lab1(t, d)
			l.send(Metrics, "x", 1)
			l.after(time.Minute)
			l.wantCounts("a", Metrics, "accepted_items=1 dropped_items{refused,UNKNOWN}=1 attempts{UNKNOWN}=1")
			got := l.Status()[0].LastError.String()
			if s.requests() != 1 || !strings.Contains(got, "redirects are not followed") {
				t.Errorf("%d requests, %q", s.requests(), got)
			}
		})
	}
}

// A receiver says when to come back, in seconds or by its own clock; without that it is the backoff.
func TestHTTPRetryAfter(t *testing.T) {
	const date = "Mon, 23 Nov 2026 12:00:00 GMT"
	for _, c := range []struct {
		after string
		code  int
		want  time.Duration
		count string
	}{
		{"7", 503, 7 * time.Second, "throttled=1 throttled_seconds=7"},
		{"7", 429, 7 * time.Second, "throttled=1 throttled_seconds=7"},
		{"Mon, 23 Nov 2026 12:00:09 GMT", 503, 9 * time.Second, "throttled=1 throttled_seconds=9"},
		{"Mon, 23 Nov 2026 11:00:00 GMT", 503, time.Second / 2, ""},
		{"0", 503, time.Second / 2, ""},
		{"", 503, time.Second / 2, ""},
		{"soon", 503, time.Second / 2, "bad_response=1"},
		{"-1", 503, time.Second / 2, "bad_response=1"},
		{"99999999999999999999", 503, maxDelay, "throttled=1 throttled_seconds=600 bad_response=1"},
	} {
		inBubble(t, fmt.Sprint(c.code, c.after), func(t *testing.T) {
			first := true
			s, d := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
				if !first {
					return
				}
				first = false
				w.Header()["Date"] = []string{date}
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.code)
			})
			d.MaxAge = 0
			l := lab1(t, d)
			l.send(Metrics, "x", 1)
			l.after(maxDelay + time.Second)
			assert.Check(t, len(s.at) == 2 && s.at[1].Sub(s.at[0]) == c.want,
				"requests at %v, want the second after %v", s.at, c.want)
			want := strings.TrimSpace("accepted_items=1 sent_items=1 attempts{OK}=1 attempts{UNAVAILABLE}=1 retries=1 " + c.count)
			l.wantCounts("a", Metrics, want)
		})
	}
}

// A receiver that takes requests and does not answer: the batch may arrive twice, which is counted.
func TestHTTPTimeout(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		_, d := serveHTTP(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.after(DefaultTimeout)
		l.wantCounts("a", Metrics, "accepted_items=1 attempts{DEADLINE_EXCEEDED}=1 queue_batches=1 queue_items=1")
		l.after(time.Second)
		l.wantCounts("a", Metrics, "accepted_items=1 attempts{DEADLINE_EXCEEDED}=1 retries=1 "+
			"maybe_duplicated_batches=1 in_flight=1 in_flight_items=1")
	})
}

// As many requests at a time as configured, and a connection for each, which is used again.
func TestHTTPConcurrency(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var mu sync.Mutex
		now, most, dials := 0, 0, 0
		_, d := serveHTTP(t, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
		})
		d.Concurrency = 3
		dial := d.dial
		d.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			dials++
			mu.Unlock()
			return dial(ctx, addr)
		}
		l := lab1(t, d)
		for range 9 {
			l.send(Metrics, "x", 1)
		}
		l.after(time.Minute)
		l.wantCounts("a", Metrics, "accepted_items=9 sent_items=9 attempts{OK}=9")
		if most != 3 || dials != 3 {
			t.Errorf("%d at a time by %d connections", most, dials)
		}
	})
}

// Over real sockets, with the certificates of the destination: HTTP/2 where TLS negotiates it.
func TestHTTPEndpoints(t *testing.T) {
	a := testenv.NewAuthority(t)
	a.Issue("server")
	a.Issue("client")
	listen := func(network, address string, mutual *bool, code int) (*httpServer, string) {
		l, err := net.Listen(network, address)
		assert.NilError(t, err)
		s := &httpServer{answer: respondWith(code, protobufType, "")}
		server := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
		t.Cleanup(func() { server.Close() })
		if mutual == nil {
			go server.Serve(l)
			return s, l.Addr().String()
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{a.Pair("server")}}
		if *mutual {
			server.TLSConfig.ClientCAs, server.TLSConfig.ClientAuth = a.Pool(), tls.RequireAndVerifyClientCert
		}
		go server.ServeTLS(l, "", "")
		return s, l.Addr().String()
	}
	socket := filepath.Join(t.TempDir(), "otlp.sock")
	yes, no := true, false
	local, _ := listen("unix", socket, nil, 200)
	plain, plainAddr := listen("tcp", "127.0.0.1:0", nil, 200)
	secure, secureAddr := listen("tcp", "127.0.0.1:0", &no, 200)
	mutual, mutualAddr := listen("tcp", "127.0.0.1:0", &yes, 200)
	_, lostAddr := listen("tcp", "127.0.0.1:0", nil, 404)
	ca := func(d *Destination) { d.Certificate = a.File("authority.pem") }
	for _, c := range []struct {
		name     string
		endpoint string
		set      func(*Destination)
		server   *httpServer // nil: nothing arrives
		proto    string
		err      string
	}{
		{"unix", "unix:" + socket, func(*Destination) {}, local, "HTTP/1.1", ""},
		{"http", "http://" + plainAddr, ca, plain, "HTTP/1.1", ""},
		{"exact", "http://" + plainAddr + "/in/", func(d *Destination) { d.ExactURL = true }, plain, "HTTP/1.1", ""},
		{"https", "https://" + secureAddr, ca, secure, "HTTP/2.0", ""},
		{"mutual", "https://" + mutualAddr, func(d *Destination) {
			ca(d)
			d.ClientCertificate, d.ClientKey = a.File("client.pem"), a.File("client.key")
		}, mutual, "HTTP/2.0", ""},
		{"no client certificate", "https://" + mutualAddr, ca, nil, "",
			"does the receiver require a client certificate?"},
		{"unknown authority", "https://" + secureAddr, func(*Destination) {}, nil, "", "certificate"},
		{"TLS to plain text", "https://" + plainAddr, ca, nil, "", "does not look like a TLS handshake"},
		{"nobody", "unix:" + socket + ".not", func(*Destination) {}, nil, "", "no such file"},
		{"unknown path", "http://" + lostAddr, func(*Destination) {}, nil, "", "HTTP 404 Not Found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewDestination(c.endpoint)
			d.Name, d.Protocol, d.Timeout, d.Signals = "a", HTTPProtobuf, time.Minute, []Signal{Metrics}
			c.set(&d)
			err := TryConnect(t.Context(), d, "1")
			if c.server == nil {
				assert.Assert(t, err != nil && strings.Contains(err.Error(), c.err), "TryConnect: %v", err)
				return
			}
			assert.NilError(t, err, "TryConnect")
			x, err := Open(Options{Destinations: []Destination{d}})
			assert.NilError(t, err)
			defer x.Shutdown(t.Context())
			x.Enqueue(NewBatch(Metrics, []byte("x"), 2, time.Now()))
			testenv.Poll(t, time.Minute, "an answer", func() bool { return x.Status()[0].Sent == 2 })
			path := map[bool]string{false: "/v1/metrics", true: "/in/"}[d.ExactURL]
			last := c.server.got[len(c.server.got)-1]
			if last.Proto != c.proto || last.URL.Path != path ||
				!bytes.HasPrefix([]byte(c.server.bodies[0]), gzipMagic) {
				t.Errorf("%s %s, body of TryConnect %x", last.Proto, last.URL.Path, c.server.bodies[0])
			}
		})
	}
}
