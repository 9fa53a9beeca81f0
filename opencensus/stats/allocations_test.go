package stats

import (
	"fmt"
	"testing"

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
