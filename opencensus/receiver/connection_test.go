package receiver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// counter is a measure with a view.
const counter = "shop/requests"

// setUp appends what a request sends before its records.
func setUp(dst []byte, c *client.Client) []byte {
	dst = c.RequestInit(dst, "8.2.35", "4.2.35")
	dst = c.CreateMeasure(dst, wire.Measure{Type: wire.Int, Name: counter, Unit: "1"})
	return c.RegisterViews(dst, wire.View{Name: counter, Measure: counter, Aggregation: wire.Sum})
}

// one is a record of 1.
var one = wire.Record{Measurements: []wire.Measurement{{Measure: []byte(counter), Type: wire.Int, Int: 1}}}

// records appends n of them.
func records(dst []byte, c *client.Client, n int) []byte {
	for range n {
		dst = c.Record(dst, &one)
	}
	return dst
}

// wantSum compares the exported value of a view.
func (l *lab) wantSum(view string, want int64) {
	l.Helper()
	m := l.lastMetrics(l)[view]
	if m == nil {
		l.Errorf("no metric %s", view)
	} else if n := m.GetSum().DataPoints[0].GetAsInt(); n != want {
		l.Errorf("%s is %d, want %d", view, n, want)
	}
}

// wantOnly compares all counters of what is dropped, closed and lost with those of want; others must
// be 0.
func (l *lab) wantOnly(want map[string]float64) {
	l.Helper()
	got := make(map[string]float64)
	for series, value := range gather(l, l.Receiver) {
		for _, prefix := range []string{"dropped_", "closed_", "client_lost", "skipped_", "panics_"} {
			if value != 0 && strings.HasPrefix(series, prefix) {
				got[series] = value
			}
		}
	}
	if !maps.Equal(got, want) {
		l.Errorf("losses:\n got %v\nwant %v", got, want)
	}
}

// isClosed waits for the receiver to read all that was written, or to close the connection.
func (l *lab) isClosed(conn net.Conn) bool {
	l.Helper()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		l.Fatal(err)
	}
	closed := false
	testenv.Poll(l, patience, "the end of the connection, or that all is read", func() bool {
		unread := 1
		err = raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd)}}
			if _, err := unix.Poll(fds, 0); err == nil {
				closed = fds[0].Revents&unix.POLLHUP != 0
			}
			unread, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
		})
		if err != nil {
			l.Fatal(err)
		}
		return closed || unread == 0
	})
	return closed
}

func TestOneRequest(t *testing.T) {
	l := openLab(t, Config{}, Options{})
	c := client.Client{PID: 17}
	l.send(c.RequestShutdown(records(setUp(nil, &c), &c, 3)))
	l.finish()
	l.wantSum(counter, 3)
	l.want(`messages_total{type="stats_record"}`, 3)
	l.want(`processed_messages_total{type="req_init"}`, 1)
	l.want("latency_seconds_count", 7)
	l.want("connections_total", 1)
	l.want("connections", 0)
	l.wantOnly(map[string]float64{})
}

// What is wrong with one message costs that one. What follows is received on the same connection.
func TestBadInput(t *testing.T) {
	c := client.Client{PID: 17, Sequence: 100}
	next := func(kind wire.Type, payload string) string { return string(c.Message(nil, kind, []byte(payload))) }
	dropped := func(kind, reason string) map[string]float64 {
		return map[string]float64{fmt.Sprintf("dropped_messages_total{reason=%q,type=%q}", reason, kind): 1}
	}
	for _, test := range []struct {
		name string
		data string
		want map[string]float64
	}{
		{"a header that is none", "no header", map[string]float64{
			`dropped_messages_total{reason="malformed",type="unknown"}`: 1, "skipped_bytes_total": 9}},
		{"an oversize trace export", next(wire.TraceExport, "["+strings.Repeat(" ", minTraceBytes)+"]"),
			dropped("trace_export", "oversize")},
		{"a trace export that was not finished", next(wire.TraceExport, `[{"traceId":"0123456789abcdef"}]`)[:40],
			dropped("trace_export", "truncated")},
		{"a payload with bytes left over", next(wire.StatsRecord, "\x00\x00\x00\x01"),
			dropped("stats_record", "malformed")},
		{"a negative integer", next(wire.StatsRecord, "\x01\x01m\x01\xff\x00\x00"),
			dropped("stats_record", "malformed")},
		{"an unknown type", next(99, "something"), dropped("unknown", "unknown_type")},
		{"a trace export that the client could not encode", next(wire.TraceExport, ""),
			map[string]float64{"client_lost_traces_total": 1}},
		{"a trace export with invalid JSON", next(wire.TraceExport, "[{]}"), dropped("trace_export", "malformed")},
		{"a measure of unknown type", next(wire.MeasureCreate, "\xff\x01m\x00\x00"), map[string]float64{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := openLab(t, Config{MaxTraceBytes: minTraceBytes}, Options{})
			conn := l.dial()
			first := client.Client{PID: 18}
			l.write(conn, setUp(nil, &first))
			l.write(conn, []byte(test.data))
			l.write(conn, records(nil, &first, 2))
			assert.Check(t, !l.isClosed(conn), "the connection was closed")
			conn.Close()
			l.finish()
			l.wantSum(counter, 2)
			l.wantOnly(test.want)
		})
	}
}

// What a connection ends with is lost.
func TestEndInsideMessage(t *testing.T) {
	l := openLab(t, Config{}, Options{})
	c := client.Client{PID: 17}
	data := records(setUp(nil, &c), &c, 1)
	l.send(c.TraceExport(data, `[{"traceId"`)[:len(data)+25])
	l.finish()
	l.wantSum(counter, 1)
	l.wantOnly(map[string]float64{`dropped_messages_total{reason="truncated",type="trace_export"}`: 1})
}

// A connection that carries something else is closed; all others are left open, whatever little they
// have sent.
func TestWhatIsClosed(t *testing.T) {
	events := make(chan Event, 10)
	l := openLab(t, Config{}, Options{OnEvent: func(e Event) { events <- e }})
	var open []net.Conn
	for _, data := range []string{
		"", "\x00\x00\x00\x00", "\x00\x00\x00\x00\x2c\x01\x11\x00", "GET / HTTP/1.1\r\n\r\n",
	} {
		conn := l.dial()
		l.write(conn, []byte(data))
		open = append(open, conn)
	}
	for name, b := range map[string]byte{"zeros": 0, "no zeros": 'x'} {
		conn := l.dial()
		_, err := conn.Write(bytes.Repeat([]byte{b}, 128<<10)) // fails once it is closed
		for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
			_, err = conn.Write([]byte{b})
		}
		assert.Check(t, err != nil && l.isClosed(conn), "%s: open, %v", name, err)
		select {
		case e := <-events:
			assert.Check(t, e.Kind == NotProtocol && e.UID == uint32(unix.Geteuid()) && e.PID == unix.Getpid(),
				"%s: %+v", name, e)
		case <-time.After(patience):
			t.Errorf("%s: no event", name)
		}
	}
	for i, conn := range open {
		assert.Check(t, !l.isClosed(conn), "connection %d is closed", i)
	}
	l.want(`closed_connections_total{reason="not_protocol"}`, 2)
	l.want("connections", 4)
	l.finish()
	l.want("connections", 0)
}

// messages are those of a capture, by type.
func messages(t *testing.T, name string) map[string]float64 {
	t.Helper()
	var manifest map[string]struct{ Messages []struct{ Type wire.Type } }
	assert.NilError(t, json.Unmarshal(capture(t, "manifest.json"), &manifest))
	all := make(map[string]float64)
	for _, m := range manifest[name].Messages {
		all[fmt.Sprintf("messages_total{type=%q}", m.Type)]++
	}
	assert.Assert(t, len(all) != 0, "no messages of %s", name)
	return all
}

// Every session of a real client is received as it was sent, in one write, in many, and by many
// connections at a time.
func TestSessions(t *testing.T) {
	for name, want := range map[string]map[string]float64{
		"session-userland-cli.bin":              {},
		"session-userland-fpm-two-requests.bin": {},
		"session-userland-unsampled.bin":        {},
		"session-userland-fork.bin":             {},
		"session-userland-zts.bin":              {},
		"session-extension-cli.bin":             {},
		"session-extension-fpm-master.bin":      {},
		"session-extension-fpm-worker.bin":      {},
		"session-extension-32bit.bin":           {},
		"session-extension-zts.bin":             {},
		"session-userland-truncated.bin": {
			`dropped_messages_total{reason="truncated",type="trace_export"}`: 1, "client_lost_messages_total": 3},
		"session-userland-odd-values.bin": {
			`dropped_messages_total{reason="malformed",type="stats_record"}`: 3, "client_lost_traces_total": 1},
	} {
		data := capture(t, name)
		for _, pieces := range []int{1, 100, 1 << 20} {
			if pieces < 100 && len(data) > 20_000 {
				continue // it takes too many system calls
			}
			t.Run(fmt.Sprintf("%s in pieces of %d", name, pieces), func(t *testing.T) {
				const conns = 3
				l := openLab(t, Config{}, Options{})
				var senders sync.WaitGroup
				for range conns {
					conn := l.dial()
					senders.Go(func() {
						defer conn.Close()
						for rest := data; len(rest) > 0; {
							n := min(pieces, len(rest))
							if _, err := conn.Write(rest[:n]); err != nil {
								t.Error(err)
								return
							}
							rest = rest[n:]
						}
					})
				}
				senders.Wait()
				l.finish()
				got := gather(t, l.Receiver)
				for series, n := range messages(t, name) {
					assert.Check(t, got[series] == conns*n, "%s: %v, want %v", series, got[series], conns*n)
				}
				all := make(map[string]float64)
				for series, n := range want {
					all[series] = conns * n
				}
				l.wantOnly(all)
			})
		}
	}
}

// All that a session measures is aggregated, and is that of all its connections.
func TestMetricsOfSession(t *testing.T) {
	l := openLab(t, Config{}, Options{})
	for range 3 {
		l.send(capture(t, "session-userland-cli.bin"))
	}
	l.finish()
	l.wantSum("shop/requests", 3)
	l.wantSum("shop/bytes_total", 3*25648)
	latency := l.lastMetrics(t)["shop/latency_dist"].GetHistogram().DataPoints[0]
	assert.Check(t, latency.Count == 3 && latency.GetSum() == 3*12.75, "latency %v", latency)
}
