package wire_test

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// record is a usual one.
var record = wire.Record{
	Measurements: []wire.Measurement{{Measure: []byte("shop/latency"), Type: wire.Float, Float: 12.75}},
	Tags:         []wire.KeyValue{{Key: []byte("http.route"), Value: []byte("/cart/items")}},
	Attachments:  []wire.KeyValue{},
}

// sizes are those of the pieces in which streams are fed.
var sizes = []int{1, 7, 100, 4096, 1 << 30}

// at has all messages of a client sent at one moment.
func at() time.Time { return time.Unix(1795196498, 65889000) }

func newClient() *client.Client { return &client.Client{PID: 24983, Now: at} }

// sequences are the sequence numbers of messages.
func sequences(messages []wire.Message) string {
	var list []string
	for _, m := range messages {
		list = append(list, strconv.FormatUint(m.Sequence, 10))
	}
	return strings.Join(list, " ")
}

// spans is the JSON of a trace export of so many bytes.
func spans(n int) string { return `[{"name":"` + strings.Repeat("x", n-13) + `"}]` }

// What becomes of streams with something wrong, which no client's connection is closed for.
func TestBadInput(t *testing.T) {
	index := wire.Type.Index
	const maxTrace = 100 << 10
	for name, test := range map[string]struct {
		stream    func(c *client.Client) []byte
		sequences string // of what is delivered
		counts    func(*wire.Counts)
	}{
		"nothing": {
			func(*client.Client) []byte { return nil },
			"", func(*wire.Counts) {},
		},
		"no header at the beginning": {
			func(c *client.Client) []byte { return c.Record([]byte("hello"), &record) },
			"1", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 5 },
		},
		"no header between messages": {
			func(c *client.Client) []byte { return c.Record(append(c.Record(nil, &record), 0, 0, 0, 1), &record) },
			"1 2", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 4 },
		},
		"zeros between messages": {
			func(c *client.Client) []byte { return c.Record(append(c.Record(nil, &record), 0, 0, 0, 0, 0), &record) },
			"1 2", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 5 },
		},
		"a trace export above the limit": {
			func(c *client.Client) []byte {
				return c.Record(c.TraceExport(c.Record(nil, &record), spans(maxTrace+1)), &record)
			},
			"1 3", func(n *wire.Counts) { n.Oversize[index(wire.TraceExport)] = 1 },
		},
		"a trace export of the limit": {
			func(c *client.Client) []byte { return c.Record(c.TraceExport(nil, spans(maxTrace)), &record) },
			"1 2", func(*wire.Counts) {},
		},
		"a trace export above the limit, truncated": {
			func(c *client.Client) []byte {
				export := c.TraceExport(nil, spans(maxTrace+70_000))
				return c.Record(export[:maxTrace+20_000], &record)
			},
			"2", func(n *wire.Counts) { n.Oversize[index(wire.TraceExport)] = 1 },
		},
		"a trace export above the hard limit": {
			func(c *client.Client) []byte {
				c.Sequence = 1
				h := wire.Header{Type: wire.TraceExport, Sequence: 1, PID: 1, Sent: at()}
				h.Length = wire.MaxTraceBytes + 1
				return c.Record(append(client.AppendHeader(nil, h), `[{"name":"x"}]`...), &record)
			},
			"2", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 34 },
		},
		"a truncated trace export": {
			func(c *client.Client) []byte {
				export := c.TraceExport(nil, spans(90_000))
				return c.Record(c.Record(export[:73088], &record), &record)
			},
			"2 3", func(n *wire.Counts) { n.Truncated[index(wire.TraceExport)] = 1 },
		},
		"a trace export truncated behind its header": {
			func(c *client.Client) []byte { return c.Record(c.TraceExport(nil, spans(90_000))[:21], &record) },
			"2", func(n *wire.Counts) { n.Truncated[index(wire.TraceExport)] = 1 },
		},
		"two truncated trace exports": {
			func(c *client.Client) []byte {
				first := c.TraceExport(nil, spans(90_000))[:73088]
				second := c.TraceExport(nil, spans(50_000))[:36544]
				return c.Record(append(first, second...), &record)
			},
			"3", nil, // if all is there, what follows the second is found before it
		},
		"left-over bytes": {
			func(c *client.Client) []byte {
				p := append(client.AppendRecord(nil, &record), 1)
				return c.Record(c.Message(nil, wire.StatsRecord, p), &record)
			},
			"2", func(n *wire.Counts) { n.Malformed[index(wire.StatsRecord)] = 1 },
		},
		"payloads that do not decode": {
			func(c *client.Client) []byte {
				var b []byte
				for _, kind := range []wire.Type{
					wire.ProcessInit, wire.RequestInit, wire.MeasureCreate, wire.ViewRegister, wire.ViewUnregister,
					wire.StatsRecord,
				} {
					b = c.Message(b, kind, []byte{5, 1})
				}
				return c.Record(b, &record)
			},
			"7", func(n *wire.Counts) {
				for _, kind := range []wire.Type{
					wire.ProcessInit, wire.RequestInit, wire.MeasureCreate, wire.ViewRegister, wire.ViewUnregister,
					wire.StatsRecord,
				} {
					n.Malformed[index(kind)] = 1
				}
			},
		},
		"a period of 4 bytes behind a StartTime that is not padded": {
			func(c *client.Client) []byte {
				return c.Record(c.Message(nil, wire.ReportingPeriod, []byte{0x40, 0x20, 0, 0}), &record)
			},
			"2", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 23 },
		},
		"unknown types": {
			func(c *client.Client) []byte {
				b := c.Message(nil, 5, nil)
				b = c.Message(b, 200, bytes.Repeat([]byte{0, 1}, 50_000))
				return c.Record(b, &record)
			},
			"3", func(n *wire.Counts) { n.Unknown = 2 },
		},
		"an empty trace export": {
			func(c *client.Client) []byte { return c.Record(c.TraceExport(nil, ""), &record) },
			"1 2", func(*wire.Counts) {},
		},
		"a trace export that is no list": {
			func(c *client.Client) []byte { return c.Record(c.TraceExport(nil, "null"), &record) },
			"2", func(n *wire.Counts) { n.Malformed[index(wire.TraceExport)] = 1 },
		},
		"a trace export that begins with space": {
			func(c *client.Client) []byte { return c.TraceExport(c.TraceExport(nil, " \n[ ]"), "{}") },
			"1 2", func(*wire.Counts) {},
		},
		"a trace export with a NUL": {
			func(c *client.Client) []byte { return c.Record(c.TraceExport(nil, "[{\x00}]"), &record) },
			"2", func(n *wire.Counts) { n.Truncated[index(wire.TraceExport)], n.Skipped = 1, 3 },
		},
		"the end inside a header": {
			func(c *client.Client) []byte { return append(c.Record(nil, &record), 0, 0, 0, 0, 44, 1) },
			"1", func(n *wire.Counts) { n.Truncated[index(wire.StatsRecord)] = 1 },
		},
		"the end inside a start of message": {
			func(c *client.Client) []byte { return append(c.Record(nil, &record), 0, 0, 0) },
			"1", func(n *wire.Counts) { n.Truncated[0] = 1 },
		},
		"the end inside a payload": {
			func(c *client.Client) []byte {
				b := c.RegisterViews(c.Record(nil, &record), wire.View{Name: "v", Measure: "m"})
				return b[:len(b)-1]
			},
			"1", func(n *wire.Counts) { n.Truncated[index(wire.ViewRegister)] = 1 },
		},
		"the end inside a large trace export": {
			func(c *client.Client) []byte { return c.TraceExport(c.Record(nil, &record), spans(maxTrace))[:90_000] },
			"1", func(n *wire.Counts) { n.Truncated[index(wire.TraceExport)] = 1 },
		},
		"the end in what is skipped": {
			func(c *client.Client) []byte {
				return c.TraceExport(c.Record(nil, &record), spans(maxTrace+1))[:90_000]
			},
			"1", func(n *wire.Counts) { n.Oversize[index(wire.TraceExport)] = 1 },
		},
		"the end in search of a header": {
			func(c *client.Client) []byte { return append(c.Record(nil, &record), 1, 2, 0, 0, 0, 0, 44, 1, 0, 0) },
			"1", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 10 },
		},
		"intact messages in what lacks its end": {
			func(c *client.Client) []byte {
				views := c.RegisterViews(nil, wire.View{Name: strings.Repeat("v", 4000)})
				return c.Record(c.Record(views[:300], &record), &record)
			},
			"2 3", func(n *wire.Counts) { n.Truncated[index(wire.ViewRegister)] = 1 },
		},
		"lengths no message has": {
			func(c *client.Client) []byte {
				var b []byte
				for _, length := range []uint64{1 << 31, 1 << 32, 1 << 62, 1<<64 - 1} {
					for _, kind := range []wire.Type{wire.TraceExport, wire.StatsRecord, wire.ViewRegister, 99} {
						h := wire.Header{Type: kind, Sequence: 1, PID: 1, Sent: at(), Length: length}
						b = append(client.AppendHeader(b, h), "payload"...)
					}
				}
				return c.Record(b, &record)
			},
			"1", func(n *wire.Counts) { n.Malformed[0], n.Skipped = 1, 4*(4*23+5+5+9+10) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			stream := test.stream(newClient())
			for _, size := range sizes {
				r := feed(t, stream, size, maxTrace)
				if got := sequences(r.messages); r.err != nil || got != test.sequences {
					t.Errorf("pieces of %d: delivered %s (%v)", size, got, r.err)
				}
				var expected wire.Counts
				if test.counts != nil {
					test.counts(&expected)
					assert.Check(t, r.counts == expected, "pieces of %d: %+v", size, r.counts)
				}
				if size <= 4096 && r.memory.most > 3*maxTrace {
					t.Errorf("pieces of %d: took %d bytes", size, r.memory.most)
				}
			}
		})
	}
}

// A length that is announced takes no memory before the payload arrives, and none is kept between
// messages.
func TestMemoryGrowsWithWhatArrives(t *testing.T) {
	memory := &budget{limit: plenty}
	var counts wire.Counts
	s := wire.NewSplitter(memory, wire.MaxTraceBytes, &counts)
	delivered := 0
	push := func(b []byte) {
		t.Helper()
		assert.NilError(t, s.Feed(b, func(wire.Message) { delivered++ }))
	}
	c := newClient()
	export := c.TraceExport(nil, spans(50<<20))
	push(export[:100])
	assert.Check(t, memory.taken <= 0, "took %d bytes for 100", memory.taken)
	push(export[100:10_000])
	assert.Check(t, memory.taken <= 20_000, "took %d bytes for 10000", memory.taken)
	for rest := export[10_000:]; len(rest) > 0; rest = rest[min(64<<10, len(rest)):] {
		push(rest[:min(64<<10, len(rest))])
	}
	assert.Check(t, delivered == 1 && memory.taken == 0 && memory.most <= 2*len(export),
		"%d messages, %d bytes kept, at most %d", delivered, memory.taken, memory.most)
	stream := c.Record(nil, &record)
	for i := range stream {
		push(stream[i : i+1])
		if memory.taken > 0 {
			t.Fatal("a record takes memory")
		}
	}
	s.End(nil)
}

// Without memory, what needs it is skipped; the rest is delivered.
func TestNoMemory(t *testing.T) {
	c := newClient()
	stream := c.Record(nil, &record)
	stream = c.TraceExport(stream, spans(100_000))
	stream = c.Record(stream, &record)
	stream = c.UnregisterViews(stream, strings.Repeat("v", 1000), strings.Repeat("\x00", 1000))
	stream = c.Record(stream, &record)
	truncated := c.TraceExport(nil, spans(100_000))
	stream = c.Record(append(stream, truncated[:73088]...), &record)
	for _, size := range []int{1, 7, 33, 100, 900} {
		for _, memory := range []int{0, 999} {
			var pieces [][]byte
			for rest := stream; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				pieces = append(pieces, rest[:min(size, len(rest))])
			}
			r := feedPieces(t, pieces, wire.MaxTraceBytes, memory)
			var expected wire.Counts
			expected.NoMemory[wire.TraceExport.Index()] = 2
			expected.NoMemory[wire.ViewUnregister.Index()] = 1
			if got := sequences(r.messages); got != "1 3 5 7" || r.counts != expected {
				t.Errorf("pieces of %d, memory %d: delivered %s, %+v", size, memory, got, r.counts)
			}
		}
	}
}

// Streams that are not the protocol are given up, at the same place whatever the pieces are.
func TestNotProtocol(t *testing.T) {
	c := newClient()
	good := c.Record(nil, &record)
	header := len(good) - len(client.AppendRecord(nil, &record))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	noise := func(n int) []byte { return bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), n/16+1)[:n] }
	for name, test := range map[string]struct {
		stream    []byte
		err       error
		delivered int
	}{
		"64 KiB without a header":              {join(noise(64<<10), good), nil, 1},
		"more than 64 KiB without a header":    {join(noise(64<<10+1), good), wire.ErrNotProtocol, 0},
		"64 KiB of zeros":                      {join(make([]byte, 64<<10), good), nil, 1},
		"more than 64 KiB of zeros":            {join(make([]byte, 64<<10+1), good), wire.ErrNotProtocol, 0},
		"16 MiB in one search":                 {join(good, noise(16<<20), good), nil, 2},
		"more than 16 MiB in one search":       {join(good, noise(16<<20+1), good), wire.ErrNotProtocol, 1},
		"zeros, more than 16 MiB":              {join(good, make([]byte, 16<<20+1), good), wire.ErrNotProtocol, 1},
		"starts of headers, more than 64 KiB":  {bytes.Repeat(good[:header-9], 10_000), wire.ErrNotProtocol, 0},
		"an end in the first 64 KiB":           {noise(60_000), nil, 0},
		"64 KiB twice, with a header between":  {join(noise(60_000), good, noise(60_000), good), nil, 2},
		"zeros in front of a header all along": {bytes.Repeat(join(make([]byte, 60_000), good), 300), nil, 300},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{13, 4096, 65536, 1 << 30} {
				if len(test.stream) > 1<<20 && size != 4096 && size != 1<<30 {
					continue
				}
				r := feed(t, test.stream, size, wire.MaxTraceBytes)
				assert.Check(t, errors.Is(r.err, test.err) && len(r.messages) == test.delivered,
					"pieces of %d: %d messages (%v)", size, len(r.messages), r.err)
			}
		})
	}
}

// After the end, and after an error, nothing is delivered and nothing kept.
func TestAfterEnd(t *testing.T) {
	memory := &budget{limit: plenty}
	var counts wire.Counts
	s := wire.NewSplitter(memory, wire.MaxTraceBytes, &counts)
	fail := func(m wire.Message) { t.Errorf("delivered %+v", m.Header) }
	err := s.Feed(make([]byte, 70_000), fail)
	assert.Check(t, errors.Is(err, wire.ErrNotProtocol), err)
	err = s.Feed(newClient().Record(nil, &record), fail)
	assert.Check(t, errors.Is(err, wire.ErrNotProtocol), err)
	s.End(fail)
	s.End(fail)
	assert.Check(t, memory.taken == 0, "%d bytes kept", memory.taken)
}

// What a client may do and then be silent keeps no memory.
func TestSilence(t *testing.T) {
	c := newClient()
	whole := c.Record(nil, &record)
	for name, beginning := range map[string][]byte{
		"nothing": nil, "a start of message": whole[:4], "half a header": whole[:9], "zeros": make([]byte, 10_000),
		"a message": whole, "most of a message": whole[:len(whole)-1],
	} {
		memory := &budget{limit: plenty}
		var counts wire.Counts
		s := wire.NewSplitter(memory, wire.MaxTraceBytes, &counts)
		err := s.Feed(beginning, func(wire.Message) {})
		assert.Check(t, err == nil && memory.taken <= 0, "%s: %d bytes kept (%v)", name, memory.taken, err)
		s.End(func(wire.Message) {})
	}
}
