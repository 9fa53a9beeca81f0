package spans

import (
	"testing"
)

// BenchmarkAppend encodes exports of 20 spans, most with attributes and a stack trace, as the
// clients send them.
func BenchmarkAppend(b *testing.B) {
	payload := manySpans(b, 20)
	e := NewEncoder(testOptions())
	x := &Export{Payload: payload, Sent: sent, Received: sent, PHPVersion: "8.2.35", Process: Process{PID: 24983}}
	var out []byte
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		var r Result
		out, r, err = e.Append(out[:0], x)
		if err != nil || r.Spans != 20 {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(20*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
	b.ReportMetric(float64(len(out)), "output-bytes")
}
