package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/lab/testenv"
)

// phpRequest is what shop.php prints: what it sent in a request.
type phpRequest struct {
	PID     int    `json:"pid"`
	TraceID string `json:"traceId"`
	Spans   []struct {
		Name         string  `json:"name"`
		SpanID       string  `json:"spanId"`
		ParentSpanID *string `json:"parentSpanId"`
	} `json:"spans"`
}

// spans are those of a request as a backend has them, without times.
func (r *phpRequest) spans() (spans []backend.Span) {
	for _, s := range r.Spans {
		span := backend.Span{Service: "shop", Name: s.Name, TraceID: r.TraceID, SpanID: fmt.Sprintf("%016s", s.SpanID),
			Process: strconv.Itoa(r.PID)}
		if s.ParentSpanID != nil {
			span.Parent = fmt.Sprintf("%016s", *s.ParentSpanID)
		}
		spans = append(spans, span)
	}
	return spans
}

// receivedSpans are the spans that a backend has, without times. Those whose time is none are left out.
func receivedSpans(b *backend.Backend) map[backend.Span]int {
	received := make(map[backend.Span]int)
	for s, n := range b.Spans() {
		if s.Start > 0 && s.Start <= s.End {
			s.Start, s.End = 0, 0
			received[s] += n
		}
	}
	return received
}

// expectSpans waits for the spans of requests, and for no others.
func expectSpans(t *testing.T, b *backend.Backend, requests ...phpRequest) {
	t.Helper()
	var want []backend.Span
	for _, r := range requests {
		assert.Assert(t, len(r.Spans) == 2, "PHP printed %+v", r)
		want = append(want, r.spans()...)
	}
	testenv.Poll(t, deadline, "all spans", func() bool { return len(b.Spans()) >= len(want) })
	received := receivedSpans(b)
	for _, s := range want {
		assert.Check(t, received[s] == 1, "%d times %+v", received[s], s)
	}
	assert.Check(t, len(received) == len(want), "received %+v", received)
}

// startForPHP starts an agent that PHP and a backend are connected to, in a directory that everybody may enter.
func startForPHP(t *testing.T, section string, flags ...string) (
	a *agentProcess, b *backend.Backend, dir, socket string,
) {
	t.Helper()
	dir = t.TempDir()
	// the parent of all of this test's
	assert.NilError(t, os.Chmod(filepath.Dir(dir), 0o755))
	socket = filepath.Join(dir, "opencensus")
	b = openBackend(t, filepath.Join(dir, "backend"))
	config := filepath.Join(dir, "config.yaml")
	testenv.WriteFile(t, config, "otlp: {destinations: [{endpoint: 'unix:"+filepath.Join(dir, "backend")+"'}]}\n"+
		"opencensus-socket: "+socket+"\nopencensus:\n  service-name: shop\n"+section)
	a = startAgent(t, nil, append([]string{"--config", config, "--metrics-address", "127.0.0.1:0"}, flags...)...)
	testenv.Poll(t, deadline, "the socket", func() bool {
		_, err := os.Lstat(socket)
		return err == nil
	})
	return a, b, dir, socket
}

const phpSources = "../../testdata/php"

func runPHP(t *testing.T, arguments ...string) (r phpRequest) {
	t.Helper()
	php := exec.Command(testenv.NeedTool(t, "php"), append([]string{phpSources + "/shop.php"}, arguments...)...)
	php.Stderr = os.Stderr
	out, err := php.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	assert.NilError(t, err, "PHP printed %q", out)
	return r
}

// Spans of PHP on the command line arrive, and views of all processes as one, also at /metrics. When the spans of
// requests began and ended is kept for explain.
func TestPHP(t *testing.T) {
	needSampler(t)
	a, b, _, socket := startForPHP(t, "  prometheus: true\n", "--keep", "10m", "--admin-socket",
		filepath.Join(t.TempDir(), "admin"))
	requests := []phpRequest{runPHP(t, socket), runPHP(t, socket, "fork"), runPHP(t, socket)}
	expectSpans(t, b, requests...)
	const cart, fork = `{route="/cart"}`, `{route="/fork"}`
	want := map[string]backend.Metric{
		"shop/requests" + cart: {Kind: "sum", Value: 3, IsCumulative: true},
		"shop/requests" + fork: {Kind: "sum", Value: 20, IsCumulative: true}, // parent and child
		"shop/latency" + cart:  {Kind: "histogram", Value: 37.5, Count: 3, IsCumulative: true},
		"shop/calls":           {Kind: "sum", Value: 3, IsCumulative: true},
		"shop/last":            {Kind: "gauge", Value: 12.5},
	}
	var got map[string]backend.Metric
	testenv.Poll(t, deadline, "the metrics of all requests", func() bool {
		got = b.Metrics()
		for name, m := range want {
			if got[name].Value != m.Value || got[name].Count != m.Count {
				return false
			}
		}
		return true
	})
	for name, m := range want {
		received := got[name]
		assert.Check(t, received.At != 0 && (received.Start == 0) == (m.Kind == "gauge"),
			"%s is of %d to %d", name, received.Start, received.At)
		received.Start, received.At = 0, 0
		m.ServiceName = "shop"
		assert.Check(t, received == m, "%s is %+v, want %+v", name, received, m)
	}
	scraped := a.scraped()
	for name, value := range map[string]float64{
		`opencensus_shop_requests_total{route="/cart"}`: 3,
		`opencensus_shop_requests_total{route="/fork"}`: 20,
		`opencensus_shop_calls_total`:                   3,
		`opencensus_shop_latency{route="/cart"}`:        3, // how many
		`correlator_opencensus_exported_spans_total`:    6,
		`correlator_keep_spans_total`:                   3, // those of the others are in them
	} {
		assert.Check(t, scraped[name] == value, "%s is %v at /metrics, want %v", name, scraped[name], value)
	}
	for name, value := range scraped {
		if strings.HasPrefix(name, "correlator_opencensus") && strings.Contains(name, "dropped") && value > 0 {
			t.Errorf("%s is %v", name, value)
		}
	}
	a.terminate()
	expectSpans(t, b, requests...)
}

// A worker of FPM, of another user in the socket's group, serves requests over one connection.
func TestFPM(t *testing.T) {
	needSampler(t)
	fpms, err := filepath.Glob("/usr/sbin/php-fpm[0-9]*") // there is one of each version of PHP
	if err != nil || len(fpms) == 0 {
		testenv.Missing(t, "needs php-fpm")
	}
	a, b, dir, socket := startForPHP(t, "  socket-group: www-data\n")
	for _, name := range []string{"shop.php", "opencensus.php"} {
		testenv.WriteFile(t, filepath.Join(dir, name), testenv.ReadFile(t, filepath.Join(phpSources, name)))
		assert.NilError(t, os.Chmod(filepath.Join(dir, name), 0o644))
	}
	pool := filepath.Join(dir, "fpm.conf")
	listen := filepath.Join(dir, "fpm")
	testenv.WriteFile(t, pool, "[global]\nerror_log = /dev/stderr\n[shop]\nuser = www-data\ngroup = www-data\n"+
		"listen = "+listen+"\npm = static\npm.max_children = 1\ncatch_workers_output = yes\n")
	cmd := exec.Command(fpms[0], "--nodaemonize", "--fpm-config", pool, "--allow-to-run-as-root")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // it ends its workers
		cmd.Wait()
		if t.Failed() {
			t.Logf("FPM says\n%s", &stderr)
		}
	})
	var requests []phpRequest
	for range 2 {
		var r phpRequest
		body := fastCGI(t, listen, map[string]string{
			"SCRIPT_FILENAME": filepath.Join(dir, "shop.php"), "REQUEST_METHOD": "GET", "OPENCENSUS_SOCKET": socket,
		})
		assert.NilError(t, json.Unmarshal(body, &r), "%s", body)
		requests = append(requests, r)
	}
	assert.Check(t, requests[0].PID == requests[1].PID, "workers %d and %d", requests[0].PID, requests[1].PID)
	expectSpans(t, b, requests...)
	testenv.Poll(t, deadline, "the metrics", func() bool { return b.Metrics()["shop/calls"].Value == 2 })
	n := a.scraped()["correlator_opencensus_connections_total"]
	assert.Check(t, n == 1, "%v connections", n)
}

// fastCGI asks a FastCGI server for a page, and returns what follows the header.
func fastCGI(t *testing.T, socket string, parameters map[string]string) []byte {
	t.Helper()
	var conn net.Conn
	testenv.Poll(t, deadline, "FPM", func() (ok bool) {
		var err error
		conn, err = net.Dial("unix", socket)
		return err == nil
	})
	defer conn.Close()
	const beginRequest, parametersRecord, stdin, stdout = 1, 4, 5, 6
	record := func(kind byte, content []byte) []byte {
		header := []byte{1, kind, 0, 1, 0, 0, 0, 0} // version, type, request 1
		binary.BigEndian.PutUint16(header[4:], uint16(len(content)))
		return append(header, content...)
	}
	var encoded []byte
	for name, value := range parameters {
		encoded = append(encoded, byte(len(name))) // below 128: one byte
		encoded = binary.BigEndian.AppendUint32(encoded, uint32(len(value))|1<<31)
		encoded = append(append(encoded, name...), value...)
	}
	if _, err := conn.Write(slices.Concat(
		record(beginRequest, []byte{0, 1, 0, 0, 0, 0, 0, 0}), // a responder, for one request
		record(parametersRecord, encoded), record(parametersRecord, nil), record(stdin, nil),
	)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	assert.NilError(t, err)
	var page []byte
	for len(answer) >= 8 {
		length, padding := int(binary.BigEndian.Uint16(answer[4:])), int(answer[6])
		assert.Assert(t, len(answer) >= 8+length+padding, "a record of %d bytes ends early", length)
		if answer[1] == stdout {
			page = append(page, answer[8:8+length]...)
		}
		answer = answer[8+length+padding:]
	}
	_, body, ok := bytes.Cut(page, []byte("\r\n\r\n"))
	assert.Assert(t, ok, "FPM answers %q", page)
	return body
}
