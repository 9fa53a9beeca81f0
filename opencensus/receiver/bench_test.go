package receiver

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
	"correlator/otlp"
)

// benchConns is how many connections send at a time.
const benchConns = 8

// pump sends b.N messages over all connections, in writes of perWrite messages as write makes them,
// and waits until all of them are processed.
func pump(b *testing.B, l *lab, kind wire.Type, perWrite int, write func(dst []byte, c *client.Client, n int) []byte) {
	b.Helper()
	var conns []net.Conn
	for range benchConns {
		conns = append(conns, l.dial())
	}
	var writers sync.WaitGroup
	b.ResetTimer()
	for i, conn := range conns {
		share := b.N / benchConns
		if i < b.N%benchConns {
			share++
		}
		writers.Go(func() {
			c := client.Client{PID: uint32(i + 1), Sequence: 1}
			data := write(nil, &c, perWrite)
			for share > 0 {
				n := min(share, perWrite)
				c.Sequence = 1 // the same bytes each time: what clients do is not measured
				if n < perWrite {
					data = write(data[:0], &c, n)
				}
				if _, err := conn.Write(data); err != nil { // waits while the socket's buffer is full
					b.Error(err)
					return
				}
				share -= n
			}
		})
	}
	writers.Wait()
	verifyProcessed(b, l, kind)
}

// verifyProcessed waits until b.N messages have been received, reports how many per second, and
// which part was lost.
func verifyProcessed(b *testing.B, l *lab, kind wire.Type) {
	b.Helper()
	i := kind.Index()
	testenv.Poll(b, patience, "all messages", func() bool {
		c := l.counters.snapshot()
		return c.messages[i].done() == uint64(b.N)
	})
	b.StopTimer()
	processed := float64(l.counters.snapshot().messages[i].processed)
	b.ReportMetric(processed/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(100*(1-processed/float64(b.N)), "%lost")
}

// BenchmarkRecords sends records of 66 bytes, one at a time as an idle pool does, or several as they
// are there to be read when a pool is busy.
func BenchmarkRecords(b *testing.B) {
	record := wire.Record{
		Measurements: []wire.Measurement{{Measure: []byte(counter), Type: wire.Int, Int: 1}},
		Tags: []wire.KeyValue{
			{Key: []byte("route"), Value: []byte("/cart/checkout")}, {Key: []byte("code"), Value: []byte("200")},
		},
	}
	for _, perWrite := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("%d in a write", perWrite), func(b *testing.B) {
			l := openLab(b, Config{}, Options{})
			c := client.Client{PID: 1}
			data := c.RequestInit(nil, "8.2.35", "4.2.35")
			data = c.CreateMeasure(data, wire.Measure{Type: wire.Int, Name: counter, Unit: "1"})
			l.send(c.RegisterViews(data, wire.View{
				Name: counter, Measure: counter, Aggregation: wire.Sum, TagKeys: []string{"route", "code"}}))
			l.wait(`processed_messages_total{type="view_register"}`, 1)
			b.SetBytes(int64(len(c.Record(nil, &record))))
			pump(b, l, wire.StatsRecord, perWrite, func(dst []byte, c *client.Client, n int) []byte {
				for range n {
					dst = c.Record(dst, &record)
				}
				return dst
			})
		})
	}
}

// BenchmarkExports sends exports of 20 spans, those of a real request, into a queue that takes them: as
// many as there is CPU time for, of which those that find no room are lost.
func BenchmarkExports(b *testing.B) {
	json := twentySpans(b)
	write := func(dst []byte, c *client.Client, n int) []byte {
		for range n {
			dst = c.TraceExport(dst, json)
		}
		return dst
	}
	b.SetBytes(int64(len(json)))
	pump(b, openLab(b, Config{}, Options{Queue: discard{}}), wire.TraceExport, 1, write)
}

// discard is a queue that keeps nothing.
type discard struct{}

func (discard) EnqueueReceived(context.Context, *otlp.Batch) error { return nil }

// twentySpans returns the six spans of a capture, and again until there are 20.
func twentySpans(b *testing.B) string {
	b.Helper()
	data := capture(b, "20-trace-export.bin")
	all := string(data[strings.IndexByte(string(data), '['):])
	one := strings.TrimSuffix(strings.TrimPrefix(all, "["), "}]")
	spans := strings.Split(one, `},{"traceId"`)
	if len(spans) != 6 {
		b.Fatalf("%d spans in the capture", len(spans))
	}
	for len(spans) < 20 {
		spans = append(spans, spans[1:min(6, 21-len(spans))]...)
	}
	return "[" + strings.Join(spans[:20], `},{"traceId"`) + "}]"
}

// BenchmarkConnect connects, sends one record and disconnects.
func BenchmarkConnect(b *testing.B) {
	l := openLab(b, Config{}, Options{})
	c := client.Client{PID: 1}
	l.send(setUp(nil, &c))
	data := records(nil, &c, 1)
	b.ResetTimer()
	for range b.N {
		fd := connect(b, l.Path())
		if _, err := unix.Write(fd, data); err != nil {
			b.Fatal(err)
		}
		unix.Close(fd)
	}
	testenv.Poll(b, patience, "all records", func() bool {
		c := l.counters.snapshot()
		return c.messages[wire.StatsRecord.Index()].done() == uint64(b.N)
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "connects/s")
}
