package receiver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// BenchmarkRun is what a whole running agent takes, whose destination reads requests and keeps nothing:
// what part of so much a second it loses, its largest resident memory, and its CPU time.
func BenchmarkRun(b *testing.B) {
	testenv.NeedRoot(b)
	binary := demo.Agent(b, b.TempDir())
	c := client.Client{PID: 1}
	for _, compression := range []string{"gzip", "none"} {
		b.Run("15000 exports a second, "+compression, func(b *testing.B) {
			a := startAgent(b, binary, compression)
			a.pace(b, c.TraceExport(nil, twentySpans(b)), 1, 15_000)
			a.wait(b, `correlator_opencensus_exported_spans_total`, 20*b.N)
		})
	}
	b.Run("500000 records a second", func(b *testing.B) {
		const perWrite = 50
		a := startAgent(b, binary, "gzip")
		if _, err := a.conns[0].Write(setUp(nil, &c)); err != nil {
			b.Fatal(err)
		}
		data := []byte{}
		for range perWrite {
			data = c.Record(data, &tagged)
		}
		a.pace(b, data, perWrite, 500_000)
		a.wait(b, `correlator_opencensus_processed_messages_total{type="stats_record"}`, b.N/perWrite*perWrite)
	})
	b.Run("5000 silent connections", func(b *testing.B) {
		a := startAgent(b, binary, "gzip")
		for range 5000 - benchConns {
			fd := connect(b, a.socket)
			b.Cleanup(func() { unix.Close(fd) })
		}
		a.wait(b, "correlator_opencensus_connections", 5000)
	})
}

// runningAgent is an agent in a process of its own, with connections to it.
type runningAgent struct {
	pid             int
	socket, metrics string
	conns           []net.Conn
}

func startAgent(b *testing.B, binary, compression string) *runningAgent {
	b.Helper()
	dir := b.TempDir()
	a := &runningAgent{socket: filepath.Join(dir, "oc-daemon.sock"), metrics: "127.0.0.1:19464"}
	sink := startSink(b, filepath.Join(dir, "sink"))
	config := filepath.Join(dir, "config.yaml")
	testenv.WriteFile(b, config, "otlp: {destinations: [{endpoint: 'unix:"+sink+"', compression: "+compression+"}]}\n"+
		"opencensus: {max-connections: 5000}\n")
	cmd := exec.Command(binary, "run", "--config", config, "--opencensus-socket", a.socket, "--metrics-address",
		a.metrics, "--admin-socket", filepath.Join(dir, "admin"), "--log-level", "error")
	cmd.Stderr = os.Stderr
	assert.NilError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	a.pid = cmd.Process.Pid
	for range benchConns {
		var conn net.Conn
		testenv.Poll(b, patience, "the socket", func() (ok bool) {
			var err error
			conn, err = net.Dial("unix", a.socket)
			return err == nil
		})
		b.Cleanup(func() { conn.Close() })
		a.conns = append(a.conns, conn)
	}
	return a
}

// pace writes b.N messages, of which data has some, so many a second.
func (a *runningAgent) pace(b *testing.B, data []byte, messages, perSecond int) {
	b.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	b.ResetTimer()
	begin, writes := time.Now(), b.N/messages
	for i := 0; i < writes; <-ticker.C {
		due := int(time.Since(begin).Seconds() * float64(perSecond/messages))
		for ; i < min(due, writes); i++ {
			if _, err := a.conns[i%benchConns].Write(data); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "messages/s")
}

// wait waits for a metric, or for what is lost, and reports that and what the agent has taken.
func (a *runningAgent) wait(b *testing.B, series string, want int) {
	b.Helper()
	got, last, since := -1, -1, time.Now()
	for got < want && time.Since(since) < 5*time.Second { // it still changes
		if got = a.metric(b, series); got != last {
			last, since = got, time.Now()
		}
	}
	b.StopTimer()
	b.ReportMetric(100*(1-float64(got)/float64(max(want, 1))), "%lost")
	for line := range strings.Lines(string(testenv.ReadFile(b, fmt.Sprintf("/proc/%d/status", a.pid)))) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			assert.NilError(b, err)
			b.ReportMetric(float64(kb)/1000, "MB-max")
		}
	}
	stat := strings.Fields(string(testenv.ReadFile(b, fmt.Sprintf("/proc/%d/stat", a.pid))))
	user, _ := strconv.Atoi(stat[13])
	system, _ := strconv.Atoi(stat[14])
	b.ReportMetric(float64(user+system)/100, "CPU-s")
}

// metric returns the value of a series at /metrics; -1: it is not there.
func (a *runningAgent) metric(b *testing.B, series string) int {
	b.Helper()
	answer, err := http.Get("http://" + a.metrics + "/metrics")
	assert.NilError(b, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	assert.NilError(b, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			assert.NilError(b, err)
			return int(f)
		}
	}
	return -1
}

// startSink starts a destination that answers every request with success.
func startSink(b *testing.B, socket string) string {
	b.Helper()
	listener, err := net.Listen("unix", socket)
	assert.NilError(b, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(unread{}), grpc.MaxRecvMsgSize(16<<20),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(nil); err != nil {
				return err
			}
			return stream.SendMsg(nil)
		}))
	go server.Serve(listener)
	b.Cleanup(server.Stop)
	return socket
}

// unread is a codec of messages that nobody looks at.
type unread struct{}

var _ encoding.CodecV2 = unread{}

func (unread) Name() string                         { return "proto" }
func (unread) Marshal(any) (mem.BufferSlice, error) { return nil, nil }
func (unread) Unmarshal(mem.BufferSlice, any) error { return nil }

// tagged is a record in a message of 66 bytes.
var tagged = wire.Record{
	Measurements: []wire.Measurement{{Measure: []byte(counter), Type: wire.Int, Int: 1}},
	Tags: []wire.KeyValue{
		{Key: []byte("route"), Value: []byte("/cart/checkout")}, {Key: []byte("code"), Value: []byte("200")},
	},
}
