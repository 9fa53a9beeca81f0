package receiver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/otlp"
)

// httpClients are a client for each version of HTTP.
func httpClients(t testing.TB, dial func(ctx context.Context) (net.Conn, error)) map[string]*http.Transport {
	t.Helper()
	one := client(t, dial)
	one.Protocols = nil
	return map[string]*http.Transport{"HTTP/1.1": one, "HTTP/2": client(t, dial)}
}

func (l *lab) dialSocket(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
}

// httpHeaders are those of a request with protobuf, and more of them.
func httpHeaders(more ...string) map[string]string {
	h := map[string]string{"Content-Type": protobufType, "Te": ""}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// answer sends a request, and returns the response with its body.
func answer(
	t testing.TB, c *http.Transport, path string, headers map[string]string, body io.Reader,
) (*http.Response, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := post(ctx, t, c, path, headers, body)
	assert.NilError(t, err)
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	assert.NilError(t, err)
	if a.Header.Get("Content-Type") != protobufType {
		t.Errorf("response of type %q", a.Header.Get("Content-Type"))
	}
	return a, got
}

// unsized hides the length of a body.
type unsized struct{ io.Reader }

// Valid requests are passed on byte by byte: by both versions of HTTP, compressed or not, of known
// and unknown length, small and large.
func TestHTTPPassOn(t *testing.T) {
	for version := range httpClients(t, nil) {
		for _, size := range []int{0, window - 500, 3 * window} {
			t.Run(fmt.Sprint(version, size), func(t *testing.T) {
				l := openLab(t, Config{})
				c := httpClients(t, l.dialSocket)[version]
				for signal := range otlp.NumSignals {
					body, items := sound(t, signal)
					if size > 0 && signal == otlp.Traces {
						body, items = encode(t, traceRequest(largeSpan(size))), 1
					}
					n := 0
					for _, r := range []io.Reader{bytes.NewReader(body), unsized{bytes.NewReader(body)},
						bytes.NewReader(zip(t, body)), unsized{bytes.NewReader(zip(t, body))}} {
						headers := httpHeaders()
						if n++; n > 2 {
							headers = httpHeaders("Content-Encoding", "gzip")
						}
						a, got := answer(t, c, signal.Path(), headers, r)
						assert.Assert(t, a.StatusCode == 200 && len(got) == 0, "%v: %s, %x", signal, a.Status, got)
						b := l.only(t)
						if b.Signal() != signal || b.Items() != items || !bytes.Equal(b.Request(), body) ||
							cap(b.Request()) > len(body)*9/8 {
							t.Errorf("%v: %d items of %v in %d bytes", signal, b.Items(), b.Signal(), cap(b.Request()))
						}
					}
					l.wantCounts(signal, fmt.Sprintf("items=%d, requests OK=4", 4*items))
				}
				n := l.Status().Connections
				assert.Check(t, n == 1, "%d connections", n)
			})
		}
	}
}

// The response to a request of which a part is invalid is that of gRPC.
func TestHTTPPartialSuccess(t *testing.T) {
	l := openLab(t, Config{})
	c := httpClients(t, l.dialSocket)["HTTP/1.1"]
	body := encode(t, traceRequest(aSpan("a"), badSpan()))
	a, got := answer(t, c, otlp.Traces.Path(), httpHeaders(), bytes.NewReader(body))
	rejected, message, err := readAnswer(got)
	assert.Check(t, a.StatusCode == 200 && rejected == 1 && message != "" && err == nil,
		"%s, %d rejected: %s, %v", a.Status, rejected, message, err)
	l.wantCounts(otlp.Traces, "items=2, rejected_items bad_id=1, requests OK=1")
}

// Profiles are taken in the version that is known, which is that of requests without one, and passed on as that.
func TestProfilesVersion(t *testing.T) {
	body, _ := sound(t, otlp.Profiles)
	for _, c := range []struct {
		signal   otlp.Signal
		versions string
		code     int
	}{
		{otlp.Profiles, "1", 200}, {otlp.Profiles, "", 400}, {otlp.Profiles, "2", 400}, {otlp.Profiles, "01", 400},
		{otlp.Profiles, "1, 1", 400}, {otlp.Profiles, "x", 400}, {otlp.Traces, "2", 200},
	} {
		for version := range httpClients(t, nil) {
			l := openLab(t, Config{})
			client := httpClients(t, l.dialSocket)[version]
			if c.signal == otlp.Traces {
				body, _ = sound(t, otlp.Traces)
			}
			headers := httpHeaders(otlp.ProfilesVersionKey, c.versions)
			a, got := answer(t, client, c.signal.Path(), headers, bytes.NewReader(body))
			assert.Check(t, a.StatusCode == c.code, "%s with %q: %s, %x", c.signal, c.versions, a.Status, got)
			if c.code != 200 {
				l.wantCounts(otlp.Profiles, "items=1, refused_items undecodable=1, requests INVALID_ARGUMENT=1")
			}
		}
	}
}

// Every invalid request gets the documented status code and a Status, is counted, and the next
// request is accepted.
func TestHTTPBadInput(t *testing.T) {
	const (
		limit  = 100_000
		format = "items=1, refused_items format=1, requests UNIMPLEMENTED=1"
		large  = "items=1, refused_items too_large=1, requests RESOURCE_EXHAUSTED=1"
	)
	good, items := sound(t, otlp.Traces)
	for _, c := range []struct {
		name    string
		path    string
		headers map[string]string
		body    io.Reader
		code    int
		counts  string // or the reason for which it is of no signal
	}{
		{"garbage", "", httpHeaders(), bytes.NewReader([]byte{0xff}), 400,
			"items=1, refused_items undecodable=1, requests INVALID_ARGUMENT=1"},
		{"broken gzip", "", httpHeaders("Content-Encoding", "gzip"), bytes.NewReader(good), 400,
			"items=1, refused_items undecodable=1, requests INTERNAL=1"},
		{"too large", "", httpHeaders(), bytes.NewReader(make([]byte, limit+1)), 413, large},
		{"too large of unknown length", "", httpHeaders(), unsized{bytes.NewReader(make([]byte, limit+1))}, 413, large},
		{"gzip bomb", "", httpHeaders("Content-Encoding", "gzip"), bytes.NewReader(zip(t, make([]byte, 50*limit))), 413,
			large},
		{"JSON", "", map[string]string{"Content-Type": "application/json"}, bytes.NewReader([]byte("{}")), 415, format},
		{"a form", "", map[string]string{"Content-Type": "text/plain"}, bytes.NewReader(good), 415, format},
		{"no type", "", map[string]string{"Content-Type": ""}, bytes.NewReader(good), 415, format},
		{"zstd", "", httpHeaders("Content-Encoding", "zstd"), bytes.NewReader(good), 415, format},
		{"gzip twice", "", httpHeaders("Content-Encoding", "gzip, gzip"), bytes.NewReader(zip(t, zip(t, good))), 415,
			format},
		{"many headers", "", httpHeaders("X", strings.Repeat("x", maxHeaders)), bytes.NewReader(good), 431, large},
		{"a page", "", httpHeaders("Origin", "http://127.0.0.1:4318"), bytes.NewReader(good), 403, "browser"},
		{"logs", "/v1/logs", httpHeaders(), bytes.NewReader(good), 404, "path"},
		{"below", "/v1/traces/", httpHeaders(), bytes.NewReader(good), 404, "path"},
		{"a gRPC method", otlp.Traces.Method(), httpHeaders(), bytes.NewReader(good), 404, "path"},
		{"gRPC with JSON", otlp.Traces.Method(), map[string]string{"Content-Type": "application/grpc+json"},
			bytes.NewReader(good), 415, "grpc"},
	} {
		for version := range httpClients(t, nil) {
			t.Run(c.name+" "+version, func(t *testing.T) {
				l := openLab(t, Config{MaxRequestBytes: limit})
				client := httpClients(t, l.dialSocket)[version]
				if s, ok := c.body.(io.Seeker); ok {
					s.Seek(0, io.SeekStart)
				} else {
					c.body = unsized{bytes.NewReader(make([]byte, limit+1))}
				}
				path := c.path
				if path == "" {
					path = otlp.Traces.Path()
				}
				a, got := answer(t, client, path, c.headers, c.body)
				var s status.Status
				err := proto.Unmarshal(got, &s)
				assert.Check(t, a.StatusCode == c.code && err == nil && s.Message != "", "%s, %x", a.Status, got)
				after := a.Header.Get("Retry-After")
				assert.Check(t, after == "", "Retry-After: %s", after)
				if strings.Contains(c.counts, "=") {
					l.wantCounts(otlp.Traces, c.counts)
					l.wantStrays("")
				} else {
					l.wantCounts(otlp.Traces, "")
					l.wantStrays(c.counts + "=1")
				}
				a, _ = answer(t, client, otlp.Traces.Path(), httpHeaders(), bytes.NewReader(good))
				if a.StatusCode != 200 || l.only(t).Items() != items {
					t.Errorf("the next request: %s", a.Status)
				}
			})
		}
	}
}

// Methods other than POST, a preflight of a browser among them, get no headers of CORS.
func TestHTTPMethods(t *testing.T) {
	l := openLab(t, Config{})
	c := httpClients(t, l.dialSocket)["HTTP/1.1"]
	methods := []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
	defer func() { l.wantStrays(fmt.Sprintf("method=%d", len(methods))) }()
	for _, method := range methods {
		q, err := http.NewRequestWithContext(t.Context(), method, "http://receiver"+otlp.Traces.Path(), http.NoBody)
		assert.NilError(t, err)
		a, err := c.RoundTrip(q)
		assert.NilError(t, err)
		a.Body.Close()
		if a.StatusCode != 405 || a.Header.Get("Allow") != "POST" || a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s, %v", method, a.Status, a.Header)
		}
	}
}

// wantStrays compares the counts of requests that are of no signal.
func (l *lab) wantStrays(want string) {
	l.Helper()
	var all []string
	for why, n := range l.counters.strayCounts() {
		if n > 0 {
			all = append(all, fmt.Sprintf("%v=%d", Stray(why), n))
		}
	}
	if got := strings.Join(all, ", "); got != want {
		l.Errorf("requests of no signal: %s, want %s", got, want)
	}
}

// A body whose chunks are broken is invalid, as is all else that the sender must not send again; one
// that ends before its end was given up.
func TestHTTPBrokenChunks(t *testing.T) {
	for body, want := range map[string]string{
		"zz\r\n":                         "400 items=1, refused_items undecodable=1, requests INVALID_ARGUMENT=1",
		"1\r\nabc\r\n0\r\n\r\n":          "400 items=1, refused_items undecodable=1, requests INVALID_ARGUMENT=1",
		strings.Repeat("f", 20) + "\r\n": "400 items=1, refused_items undecodable=1, requests INVALID_ARGUMENT=1",
		"5\r\nabc":                       "503 requests CANCELLED=1",
	} {
		l := openLab(t, Config{})
		c, err := net.Dial("unix", l.Addr().String())
		assert.NilError(t, err)
		fmt.Fprintf(c, "POST /v1/traces HTTP/1.1\r\nHost: receiver\r\nContent-Type: %s\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n%s", protobufType, body)
		c.(*net.UnixConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(patience))
		answer, err := io.ReadAll(c)
		c.Close()
		if code, text, _ := strings.Cut(want, " "); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+code) {
			t.Errorf("%q: %s, %v", body, answer, err)
		} else {
			l.wantCounts(otlp.Traces, text)
		}
	}
}

// Only what may be sent again is answered with 503, and with a time.
func TestHTTPRefused(t *testing.T) {
	body := encode(t, traceRequest(aSpan("a")))
	for _, c := range []struct {
		err         error
		code        int
		least, most int // of Retry-After; 0: none
	}{
		{&otlp.OverloadError{RetryAfter: 6500 * time.Millisecond}, 503, 7, 7},
		{&otlp.OverloadError{}, 503, 1, 1},
		{otlp.ErrTooLarge, 413, 0, 0},
		{otlp.ErrUnsupported, 404, 0, 0},
		{otlp.ErrClosed, 503, 4, 6},
	} {
		l := openLab(t, Config{})
		l.store.err = c.err
		a, _ := answer(t, httpClients(t, l.dialSocket)["HTTP/1.1"], otlp.Traces.Path(), httpHeaders(),
			bytes.NewReader(body))
		after, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		if a.StatusCode != c.code || after < c.least || after > c.most {
			t.Errorf("%v: %s, Retry-After %q", c.err, a.Status, a.Header.Get("Retry-After"))
		}
	}
	l := openLabWith(t, Config{}, panicking{}, &store{})
	a, _ := answer(t, httpClients(t, l.dialSocket)["HTTP/1.1"], otlp.Traces.Path(), httpHeaders(),
		bytes.NewReader(body))
	assert.Check(t, a.StatusCode == 500, "a panic: %s", a.Status)
	l.wantCounts(otlp.Traces, "items=1, refused_items panic=1, requests INTERNAL=1")
}

// The status codes that clients send again, and no others, are for errors that pass.
func TestHTTPStatus(t *testing.T) {
	for code := codes.Code(1); code < numCodes; code++ {
		got := httpStatus(grpcstatus.Error(code, ""))
		passes := code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
		again := got == 429 || got >= 502
		assert.Check(t, again == passes && got >= 400, "%v: %d", code, got)
	}
}
