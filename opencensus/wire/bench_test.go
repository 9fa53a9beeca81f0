package wire_test

import (
	"testing"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// record is a usual one.
var record = wire.Record{
	Measurements: []wire.Measurement{{Measure: []byte("shop/latency"), Type: wire.Float, Float: 12.75}},
	Tags:         []wire.KeyValue{{Key: []byte("http.route"), Value: []byte("/cart/items")}},
	Attachments:  []wire.KeyValue{},
}

const readBytes = 64 << 10 // of a read of a receiver

func records(n int) []byte {
	c := client.Client{PID: 24983}
	var stream []byte
	for range n {
		stream = c.Record(stream, &record)
	}
	return stream
}

// feedAll feeds a stream again and again, in reads, until b.N messages were delivered.
func feedAll(b *testing.B, stream []byte, messages int, deliver func(wire.Message)) {
	b.Helper()
	var counts wire.Counts
	s := wire.NewSplitter(&budget{limit: plenty}, wire.MaxTraceBytes, &counts)
	delivered := 0
	b.ReportAllocs()
	b.SetBytes(int64(len(stream) / messages))
	for b.Loop() {
		if delivered > 0 {
			delivered--
			continue
		}
		for rest := stream; len(rest) > 0; {
			n := min(readBytes, len(rest))
			if err := s.Feed(rest[:n], func(m wire.Message) { delivered++; deliver(m) }); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
		delivered--
	}
	if counts != (wire.Counts{}) {
		b.Fatalf("%+v", counts)
	}
}

// A message, from a stream of records, decoded.
func BenchmarkRecords(b *testing.B) {
	const n = 10000
	var r wire.Record
	feedAll(b, records(n), n, func(m wire.Message) {
		if err := r.Decode(m.Payload); err != nil {
			b.Fatal(err)
		}
	})
}
