package stats

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// shop is a record of one measurement with two tags, of a measure with two views.
func shop(s *State, series int) []wire.Record {
	records := make([]wire.Record, series)
	s.Update(moment, func(u *Update) {
		u.CreateMeasure(wire.Measure{Name: "shop/latency", Type: wire.Float, Unit: "ms"})
		u.RegisterViews([]wire.View{
			{Name: "shop/requests", Measure: "shop/latency", Aggregation: wire.Count, TagKeys: []string{"route",
				"code"}},
			{Name: "shop/latency_dist", Measure: "shop/latency", Aggregation: wire.Distribution,
				TagKeys:    []string{"route"},
				Boundaries: []float64{0, 5, 10, 25.5, 100}},
		})
		for i := range records {
			records[i] = wire.Record{
				Measurements: []wire.Measurement{{Measure: []byte("shop/latency"), Type: wire.Float, Float: 12.75}},
				Tags:         pairs("route", fmt.Sprint("/cart/", i), "code", "200"),
			}
			u.Record(&records[i], moment)
		}
	})
	return records
}

// One record in each Update.
func BenchmarkRecord(b *testing.B) {
	s := New(Options{})
	records := shop(s, 100)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r := &records[i%len(records)]
		s.Update(moment, func(u *Update) { u.Record(r, moment) })
		i++
	}
}

var pairsOfTrace = pairs("trace_id", "0123456789abcdef0123456789abcdef", "span_id", "00f067aa0ba902b7")

// Known series are updated without allocation.
func TestRecordAllocations(t *testing.T) {
	s := New(Options{})
	records := shop(s, 10)
	for _, attachments := range [][]wire.KeyValue{nil, pairsOfTrace} {
		all := func() {
			for i := range records {
				r := &records[i]
				r.Attachments = attachments
				s.Update(moment, func(u *Update) { u.Record(r, moment) })
			}
		}
		all() // an exemplar takes memory once
		n := testing.AllocsPerRun(10, all)
		assert.Check(t, n <= 0, "%v allocations", n)
	}
}

// 100,000 series, a sixth of them with 6 buckets.
func fillForBenchmark(b *testing.B) *State {
	b.Helper()
	s := New(Options{MaxMemory: 256 << 20})
	s.Update(moment, func(u *Update) {
		for i := range 50 {
			v := viewOf(fmt.Sprint("application/view/", i), wire.Count, "route", "code")
			if v.Measure = fmt.Sprint("measure", i); i%6 == 0 {
				v.Aggregation, v.Boundaries = wire.Distribution, []float64{1, 2, 3, 4, 5}
			}
			u.registerView(v)
			for j := range 2000 {
				u.test(ints(v.Measure, 1), fmt.Sprint("route=/path/of/something/", j), "code=200")
			}
		}
	})
	return s
}

func BenchmarkEncode(b *testing.B) {
	s := fillForBenchmark(b)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, r := range s.Encode(moment.Add(time.Minute)) {
			n += r.Points
		}
		if n != 100_000 {
			b.Fatal(n)
		}
	}
}
