package receiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"gotest.tools/v3/assert"

	"correlator/otlp"
)

// zip compresses.
func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	return out.Bytes()
}

// zipped sends a request as gzip: one that is gzip already is sent as it is.
var zipped = grpc.UseCompressor("gzip")

// Every invalid request gets the documented status and is counted, and the next request is
// accepted.
func TestBadInput(t *testing.T) {
	const (
		limit       = DefaultMaxRequestBytes
		garbage     = "broken encoding"
		undecodable = "items=1, refused_items undecodable=1, requests INVALID_ARGUMENT=1"
		tooLarge    = "items=1, refused_items too_large=1, requests RESOURCE_EXHAUSTED=1"
		unzippable  = "items=1, refused_items undecodable=1, requests INTERNAL=1"
		empty       = "requests OK=1"
	)
	good, items := sound(t, otlp.Traces)
	for _, c := range []struct {
		name    string
		body    []byte
		zipped  bool
		code    codes.Code
		field   string // of the BadRequest
		message string // a part of it
		counts  string
	}{
		{"truncated", good[:len(good)-3], false, codes.InvalidArgument, "request", garbage, undecodable},
		{"truncated inside", bytes.Replace(good, []byte("\x03GET"), []byte("\x04GET"), 1), false, codes.InvalidArgument,
			"resource_spans[0].scope_spans[0].spans[0].attributes[0].value", garbage, undecodable},
		{"garbage", []byte("GET / HTTP/1.1\r\n"), false, codes.InvalidArgument, "request", garbage, undecodable},
		{"end of a group", []byte{0x0c}, false, codes.InvalidArgument, "request", garbage, undecodable},
		{"field 0", []byte{0x02, 0}, false, codes.InvalidArgument, "request", garbage, undecodable},
		{"field 2^29", append(protowire.AppendVarint(nil, 1<<32), 0), false, codes.InvalidArgument, "request",
			"impossible", undecodable},
		{"groups in groups", bytes.Repeat([]byte{0x7b}, 20_000), false, codes.InvalidArgument, "request", garbage,
			undecodable},
		{"too large", make([]byte, limit+1), false, codes.ResourceExhausted, "", "larger than 4194304 bytes", tooLarge},
		{"gzip bomb", zip(t, make([]byte, 3*limit)), true, codes.ResourceExhausted, "", "larger than 4194304 bytes",
			tooLarge},
		{"gzip one too large", zip(t, make([]byte, limit+1)), true, codes.ResourceExhausted, "",
			"larger than 4194304 bytes", tooLarge},
		{"gzip in gzip", zip(t, zip(t, good)), true, codes.InvalidArgument, "request", garbage, undecodable},
		{"broken gzip", []byte("\x1f\x8bnonsense that is none"), true, codes.Internal, "", "decompressing", unzippable},
		{"half of a gzip", zip(t, good)[:60], true, codes.Internal, "", "decompressing", unzippable},
		{"nothing", nil, false, codes.OK, "", "", empty},
		{"10^6 empty resources", bytes.Repeat([]byte{0x0a, 0}, 1_000_000), false, codes.OK, "", "", empty},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openLab(t, Config{})
			var options []grpc.CallOption
			if c.zipped {
				options = append(options, zipped)
			}
			_, err := export(l.conn, otlp.Traces, c.body, options...)
			s := status.Convert(err)
			wantStatus(t, s, c.code, false)
			if violation(s) != c.field || !strings.Contains(s.Message(), c.message) {
				t.Errorf("field %q, message %q, want %q, %q", violation(s), s.Message(), c.field, c.message)
			}
			l.wantCounts(otlp.Traces, c.counts)
			n := len(l.taken())
			assert.Check(t, n <= 0, "%d batches were passed on", n)
			l.send(otlp.Traces, good)
			if b := l.only(t); b.Items() != items || !bytes.Equal(b.Request(), good) {
				t.Error("the next request was not passed on as it is")
			}
		})
	}
}

// raw sends one HTTP request with a gRPC message as its body, and returns the status code and the
// message of the response.
func (l *lab) raw(path string, headers map[string]string, body []byte) (code, message string) {
	l.Helper()
	transport := client(l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := post(ctx, l, transport, path, headers, bytes.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		l.Fatal(err)
	}
	get := func(key string) string { return answer.Header.Get(key) + answer.Trailer.Get(key) }
	return get("Grpc-Status"), get("Grpc-Message")
}

// Errors of gRPC's framing: unknown encodings, services and methods, a wrong number of messages.
func TestRaw(t *testing.T) {
	good, _ := sound(t, otlp.Metrics)
	message := append([]byte{0, 0, 0, byte(len(good) >> 8), byte(len(good))}, good...)
	compressed := append([]byte{1}, message[1:]...)
	for _, c := range []struct {
		name, path string
		headers    map[string]string
		body       []byte
		code       string
	}{
		{"as it should be", otlp.Metrics.Method(), nil, message, "0"},
		{"unknown encoding", otlp.Metrics.Method(), map[string]string{"Grpc-Encoding": "snappy"}, compressed, "12"},
		{"neither compressed nor not", otlp.Metrics.Method(), nil, append([]byte{2}, message[1:]...), "13"},
		{"compressed as identity", otlp.Metrics.Method(), map[string]string{"Grpc-Encoding": "identity"}, compressed,
			"13"},
		{"compressed, no encoding", otlp.Metrics.Method(), nil, compressed, "13"},
		{"logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export", nil, message, "12"},
		{"another method", strings.Replace(otlp.Metrics.Method(), "/Export", "/Import", 1), nil, message, "12"},
		{"no message", otlp.Metrics.Method(), nil, nil, "13"},
		{"half a message", otlp.Metrics.Method(), nil, message[:len(message)-1], "13"},
		{"two messages", otlp.Metrics.Method(), nil, append(bytes.Clone(message), message...), "13"},
		{"a timeout", otlp.Metrics.Method(), map[string]string{"Grpc-Timeout": "2S"}, message, "0"},
		{"no timeout", otlp.Metrics.Method(), map[string]string{"Grpc-Timeout": "2"}, message, "13"},
		{"timeout has passed", otlp.Metrics.Method(), map[string]string{"Grpc-Timeout": "0S"}, message, "4"},
		{"JSON", otlp.Metrics.Method(), map[string]string{"Content-Type": "application/grpc+json"}, message, ""},
		{"HTTP", otlp.Metrics.Method(), map[string]string{"Content-Type": "application/x-protobuf"}, good, ""},
		{"4 GB announced", otlp.Metrics.Method(), nil, []byte{0, 0xff, 0xff, 0xff, 0xff, 1}, "8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openLab(t, Config{})
			code, text := l.raw(c.path, c.headers, c.body)
			assert.Check(t, code == c.code, "answered with %s: %s, want %s", code, text, c.code)
			if c.name == "logs" || c.name == "another method" {
				l.wantStrays("path=1")
			}
			want := 0
			if c.code == "0" {
				want = 1
			}
			n := len(l.taken())
			assert.Check(t, n == want, "%d batches were passed on, want %d", n, want)
			l.send(otlp.Metrics, good)
			assert.Check(t, len(l.taken()) == 1, "the next request was not taken")
		})
	}
}
