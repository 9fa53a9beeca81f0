package receiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/otlp"
)

// connect connects without waiting, as the userland client does, and without the net package, whose
// memory is then that of the receiver alone.
func connect(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	assert.NilError(t, err)
	return fd
}

// Connections that send nothing, or no more than a part of a message, stay open and keep nothing that
// others need: there are fewer readers.
func TestSilentConnections(t *testing.T) { silentConnections(t, 300, func() {}) }

// silentConnections opens n connections; between is called while they send nothing at all.
func silentConnections(t *testing.T, n int, between func()) {
	for name, data := range map[string]string{
		"nothing": "", "a start of message": "\x00\x00\x00\x00",
		"half a header": "\x00\x00\x00\x00\x2c\x01\x11\x00\x41\xda",
	} {
		t.Run(name, func(t *testing.T) {
			l := openLab(t, Config{MaxConnections: n + 1}, Options{})
			assert.Assert(t, cap(l.readers) < n, "%d readers", cap(l.readers))
			for i := range n {
				if i%1000 == 0 { // the backlog has room for so many
					l.wait("connections_total", float64(i))
				}
				fd := connect(t, l.Path())
				t.Cleanup(func() { unix.Close(fd) })
				_, err := unix.Write(fd, []byte(data))
				assert.NilError(t, err)
			}
			l.wait("connections_total", float64(n))
			c := client.Client{PID: 17}
			l.send(records(setUp(nil, &c), &c, 3))
			l.wait(`processed_messages_total{type="stats_record"}`, 3)
			l.wait("connections", float64(n))
			if data == "" {
				between()
			}
			l.want("buffered_bytes", 0)
			l.wantOnly(map[string]float64{})
			l.finish()
			l.wantSum(counter, 3)
			l.want("connections", 0)
		})
	}
}

// Connections that come in a row find room in the backlog, each of them.
func TestManyConnects(t *testing.T) {
	const n = 1000
	l := openLab(t, Config{}, Options{})
	for range n {
		unix.Close(connect(t, l.Path()))
	}
	l.finish()
	l.want("connections_total", n)
	l.want("accept_errors_total", 0)
	l.wantOnly(map[string]float64{})
}

// Beyond the limit a connection takes the place of the one that is idle for the longest time. The status
// says what became of all.
func TestConnectionLimit(t *testing.T) {
	l := openLab(t, Config{MaxConnections: 2}, Options{})
	conns := []net.Conn{l.dial(), l.dial(), l.dial()}
	l.wait("connections_total", 3)
	l.want(`closed_connections_total{reason="made_room"}`, 1)
	l.want("connections", 2)
	l.listener.accepting.Report(unix.EMFILE)
	l.want("accept_errors_total", 1)
	s := l.Status()
	assert.Check(t, s.Connections == 2 && s.MaxConnections == 2 && s.AcceptedConnections == 3 &&
		s.ClosedConnections == 1 &&
		s.LastError.Message == unix.EMFILE.Error() && !s.LastError.At.IsZero(), "%+v", s)
	for i, conn := range conns {
		closed := l.isClosed(conn)
		assert.Check(t, closed == (i == 0), "connection %d: closed: %v", i, closed)
	}
}

// stalled is a queue that takes nothing until release.
func stalled() (q *store, release func()) {
	open := make(chan struct{})
	return &store{open: open, entered: make(chan struct{}, 1000)}, func() { close(open) }
}

// export appends a trace export of that many spans.
func export(dst []byte, c *client.Client, spans int) []byte {
	one := strings.TrimSuffix(strings.TrimPrefix(span, "["), "]")
	return c.TraceExport(dst, "["+strings.Repeat(one+",", spans-1)+one+"]")
}

// noRoom returns how many messages of a type were dropped because there was no memory for them, and
// fails the test if there are other losses.
func (l *lab) noRoom(kind string) (n float64) {
	l.Helper()
	for series, value := range gather(l, l.Receiver) {
		if value == 0 || !strings.HasPrefix(series, "dropped_messages_total") {
			continue
		}
		if !strings.Contains(series, `"queue_full"`) && !strings.Contains(series, `"no_memory"`) {
			l.Errorf("%s: %v", series, value)
		}
		if strings.Contains(series, kind) {
			n += value
		}
	}
	return n
}

// While the queue takes nothing, sockets are read, statistics go on, and what finds no room is
// dropped and counted. Then the rest is exported.
func TestStalledQueue(t *testing.T) {
	const exports, spansOf, recorded = 300, 250, 1500
	queue, release := stalled()
	l := openLab(t, Config{BufferBytes: minBufferBytes, MaxTraceBytes: minTraceBytes}, Options{Queue: queue})
	var writers sync.WaitGroup
	for i := range 4 {
		conn := l.dial()
		writers.Go(func() {
			c := client.Client{PID: uint32(i + 1)}
			data := setUp(nil, &c)
			for range exports {
				if _, err := conn.Write(export(data, &c, spansOf)); err != nil { // waits if nobody reads
					t.Error(err)
				}
				data = records(data[:0], &c, recorded/exports)
			}
			_, err := conn.Write(data)
			assert.Check(t, err)
			conn.Close()
		})
	}
	writers.Wait()
	l.wait("connections", 0)
	testenv.Poll(t, patience, "all statistics", func() bool {
		return l.count(`processed_messages_total{type="stats_record"}`)+l.noRoom("stats_record") == 4*recorded
	})
	dropped := l.noRoom("trace_export")
	waiting := l.count(`waiting_messages{queue="traces"}`)
	assert.Check(t, dropped != 0 && waiting != 0 && len(l.batches) == 0,
		"%v exports were dropped, %v wait", dropped, waiting)
	assert.Check(t, l.count(`processed_messages_total{type="stats_record"}`) != 0, "no record was processed")
	release()
	l.finish()
	l.want(`messages_total{type="trace_export"}`, 4*exports)
	processed := l.count(`processed_messages_total{type="trace_export"}`)
	got := processed + l.noRoom("trace_export")
	assert.Check(t, got == 4*exports, "%v exports were processed or dropped", got)
	l.want("exported_spans_total", spansOf*processed)
	spans := 0
	for _, r := range l.resourceSpans(t) {
		spans += len(r.ScopeSpans[0].Spans)
	}
	assert.Check(t, float64(spans) == spansOf*processed, "%d spans arrived of %v exports", spans, processed)
}

// A user whose messages fill the memory does not keep those of another out.
func TestUsersShareMemory(t *testing.T) {
	const hog, other = 1000, 1001
	queue, release := stalled()
	l := openLab(t, Config{SocketMode: 0o666, BufferBytes: minBufferBytes, MaxTraceBytes: minTraceBytes},
		Options{Queue: queue})
	conn, c := l.dialAs(hog), client.Client{PID: 1}
	for end := time.Now().Add(patience); l.noRoom("trace_export") == 0 && time.Now().Before(end); {
		l.write(conn, export(nil, &c, 250))
	}
	l.wait(`messages_total{type="trace_export"}`, float64(c.Sequence))
	before := l.noRoom("trace_export")
	held := l.count("buffered_bytes")
	assert.Check(t, held > 0 && held <= minBufferBytes/2, "%v bytes are held by one user", held)
	modest, m := l.dialAs(other), client.Client{PID: 2}
	for range 10 {
		l.write(modest, export(nil, &m, 250))
	}
	for i := range 10 {
		l.write(conn, export(nil, &c, 250))
		l.wait(`messages_total{type="trace_export"}`, float64(c.Sequence)+10)
		if got := l.noRoom("trace_export"); got != before+float64(i)+1 {
			t.Errorf("%v were dropped, of which %v are the hog's", got, before+float64(i)+1)
		}
	}
	release()
	l.finish()
	l.want(`processed_messages_total{type="trace_export"}`, float64(c.Sequence)+10-before-10)
}

// Whatever was sent before a shutdown is received and exported: also on connections that are not
// accepted yet, and messages that are not complete before their last bytes are read.
func TestShutdownDrains(t *testing.T) {
	const conns, exports, recorded = 50, 5, 100
	l := openLab(t, Config{}, Options{})
	for i := range conns {
		c := client.Client{PID: uint32(i + 1)}
		data := setUp(nil, &c)
		for range exports {
			data = export(data, &c, 20)
		}
		l.write(l.dial(), records(data, &c, recorded))
	}
	l.finish()
	l.wantOnly(map[string]float64{})
	l.wantSum(counter, conns*recorded)
	l.want("exported_spans_total", conns*exports*20)
	l.want("connections_total", conns)
	_, err := net.Dial("unix", l.Path())
	assert.Check(t, errors.Is(err, unix.ENOENT), "after the shutdown: %v", err)
}

// A shutdown that has no time left drops what waits, counts it, and leaves nothing behind.
func TestShutdownWithoutTime(t *testing.T) {
	queue, _ := stalled()
	l := openLab(t, Config{}, Options{Queue: queue})
	c := client.Client{PID: 1}
	data := setUp(nil, &c)
	for range 500 {
		data = export(data, &c, 100)
	}
	conn := l.dial()
	l.write(conn, records(data, &c, 10))
	<-queue.entered // the sender waits
	l.isClosed(conn)
	err := l.Shutdown(testenv.Ended())
	assert.Check(t, errors.Is(err, context.Canceled), "shutdown: %v", err)
	l.balance()
	all := gather(t, l.Receiver)
	lost := all[`refused_spans_total{reason="overload"}`] +
		100*all[`dropped_messages_total{reason="shutdown",type="trace_export"}`]
	assert.Check(t, lost == 500*100, "%v spans are counted as lost", lost)
}

// A client that goes on sending does not keep a shutdown from ending.
func TestShutdownWhileSending(t *testing.T) {
	l := openLab(t, Config{}, Options{})
	conn := l.dial()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c := client.Client{PID: 1}
		for {
			if _, err := conn.Write(records(nil, &c, 100)); err != nil {
				return
			}
		}
	}()
	l.wait("connections_total", 1)
	l.finish()
	<-stopped
}

// No goroutine is left of a receiver after its shutdown.
func TestLeaksNothing(t *testing.T) {
	l := openLab(t, Config{}, Options{OnEvent: func(Event) {}})
	for i := range 20 {
		c := client.Client{PID: uint32(i + 1)}
		l.write(l.dial(), export(setUp(nil, &c), &c, 1))
	}
	l.write(l.dial(), []byte("something else"))
	l.finish()
	stacks := func() string {
		all := make([]byte, 1<<20)
		return string(all[:runtime.Stack(all, true)])
	}
	testenv.Poll(t, patience, "the end of all goroutines", func() bool {
		return !strings.Contains(stacks(), "receiver.(*Receiver)") && !strings.Contains(stacks(), "receiver.newEvents")
	})
}

// What nobody takes is counted, and after the first requests not even encoded.
func TestUnsupported(t *testing.T) {
	l := openLab(t, Config{}, Options{Queue: &store{err: otlp.ErrUnsupported}})
	c := client.Client{PID: 1}
	conn := l.dial()
	l.write(conn, export(setUp(nil, &c), &c, 7))
	l.wait(`refused_spans_total{reason="unsupported"}`, 7)
	l.write(conn, records(export(nil, &c, 1), &c, 1))
	l.wait(`dropped_messages_total{reason="unsupported",type="trace_export"}`, 1)
	l.finish()
	l.want(`refused_points_total{reason="unsupported"}`, 1)
	l.wantOnly(map[string]float64{`dropped_messages_total{reason="unsupported",type="trace_export"}`: 1})
	s := l.Status()
	assert.Check(t, maps.Equal(s.Messages["traces"].Dropped, map[string]uint64{"unsupported": 1}) &&
		s.Messages["stats"].Processed > 0 && s.SpansDropped == 7 && s.PointsDropped == 1, "%+v", s)
	for _, name := range []string{"traces", "stats", "other"} {
		m := s.Messages[name]
		sum := m.Processed + m.Waiting
		for _, n := range m.Dropped {
			sum += n
		}
		assert.Check(t, m.Dropped != nil && m.Received > 0 && m.Received == sum, "%s: %+v", name, m)
	}
	l.tracesRefused.Store(0)
	assert.Check(t, l.takesTraces(time.Now()), "refused for good")
}

// Why the queue did not take spans is counted.
func TestRefusals(t *testing.T) {
	for reason, err := range map[string]error{
		"too_large": fmt.Errorf("%w: 5 MB", otlp.ErrTooLarge), "overload": &otlp.OverloadError{},
		"shutdown": otlp.ErrClosed,
	} {
		l := openLab(t, Config{}, Options{Queue: &store{err: err}})
		c := client.Client{PID: 1}
		l.send(export(setUp(nil, &c), &c, 3))
		l.finish()
		l.want(fmt.Sprintf("refused_spans_total{reason=%q}", reason), 3)
		l.wantOnly(map[string]float64{})
	}
	l := openLab(t, Config{}, Options{MaxRequestBytes: 200})
	c := client.Client{PID: 1}
	l.send(export(setUp(nil, &c), &c, 30))
	l.finish()
	l.want(`refused_spans_total{reason="too_large"}`, 30)
}
