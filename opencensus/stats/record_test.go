package stats

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// What is wrong with one measurement does not cost the others of its record.
func TestSkipped(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("v", wire.Sum), {Name: "f", Measure: "f", Aggregation: wire.LastValue}})
		u.CreateMeasure(wire.Measure{Name: "f", Type: wire.Float})
		u.CreateMeasure(wire.Measure{Name: "f", Type: wire.Int, Unit: "By"}) // conflicts
		u.CreateMeasure(wire.Measure{Name: "f", Type: wire.Unknown})
		u.CreateMeasure(wire.Measure{Name: "f", Type: 0})
		u.CreateMeasure(wire.Measure{Name: strings.Repeat("x", maxName+1), Type: wire.Int})
		var all []wire.Measurement
		all = append(all, ints("m", 1, math.MaxInt64+1, math.MaxUint64)...)
		all = append(all, floats("m", 1)...) // the other type
		all = append(all, ints("f", 1)...)   // likewise
		all = append(all, ints("never registered", 1)...)
		all = append(all, ints(strings.Repeat("x", maxName+1), 1)...)
		all = append(all, floats("f", math.NaN(), math.Inf(1), math.Inf(-1), 2.5)...)
		all = append(all, wire.Measurement{Measure: []byte("m"), Type: wire.Unknown},
			wire.Measurement{Measure: []byte("m")})
		all = append(all, ints("m", 2)...)
		u.test(all)
	})
	expect(t, s, 0, `v sum "" {} 3`, `f gauge "" {} 2.5`)
	expectLost(t, s, map[Loss]uint64{
		OutOfRange: 2, TypeConflict: 2, NoView: 1, MeasureName: 1, NotFinite: 3, NoValue: 2,
		CreateConflict: 1, CreateType: 2, CreateName: 1,
	})
	c := s.Counts()
	assert.Check(t, c.Measurements == 14 && c.Aggregated == 3, "%+v", c)
}

// Sums stay at the end of their range.
func TestSaturated(t *testing.T) {
	s := New(Options{NonMonotonicSums: true})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("int", wire.Sum), {Name: "float", Measure: "f", Aggregation: wire.Sum},
			{Name: "dist", Measure: "g", Aggregation: wire.Distribution}})
		u.test(ints("m", math.MaxInt64-1, 1, 1, math.MaxInt64))
		u.test(floats("f", -math.MaxFloat64, -math.MaxFloat64))
		u.test(floats("g", math.MaxFloat64, math.MaxFloat64))
	})
	expect(t, s, 0, `int sum "" {} 9223372036854775807`, `float updown "" {} -1.7976931348623157e+308`,
		`dist histogram "" {} 2 1.7976931348623157e+308 1.7976931348623157e+308..1.7976931348623157e+308 [] [2]`)
	expectLost(t, s, map[Loss]uint64{Saturated: 4})
}

// Series are by the tags that the view has, whatever their order and what else there is.
func TestSeries(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.Count, "b", "a"))
		one := ints("m", 1)
		u.test(one, "a=1", "b=2")
		u.test(one, "b=2", "x=y", "a=1")
		u.test(one, "a=1")
		u.test(one, "a=1", "b=")
		u.test(one, "b=1")
		u.test(one)
		u.test(one, "x=y")
		u.test(one, "a=1", "a=2", "b=3") // the first one counts
		u.test(one, "a=1", "b=\xff\xfe", "\xff=")
		u.test(one, "a=1", "b=\xfd")
	})
	expect(t, s, 0,
		`v sum "1" {a=1 b=2} 2`, `v sum "1" {a=1} 1`, `v sum "1" {a=1 b=} 1`, `v sum "1" {b=1} 1`, `v sum "1" {} 2`,
		`v sum "1" {a=1 b=3} 1`, "v sum \"1\" {a=1 b=\ufffd} 2")
	expectLost(t, s, nil)
}

// Beyond the limit there is one series more.
func TestOverflow(t *testing.T) {
	s := New(Options{MaxSeries: 2})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("v", wire.Sum, "k"), distribution("d", 5)})
		for i, k := range []string{"a", "b", "c", "d", "a", "c"} {
			u.test(ints("m", uint64(1)<<i), "k="+k)
		}
	})
	expect(t, s, 0, `v sum "" {k=a} 17`, `v sum "" {k=b} 2`, `v sum "" {otel.metric.overflow=(true)} 44`,
		`d histogram "" {} 6 63 1..32 [5] [3 3]`)
	expectLost(t, s, map[Loss]uint64{Overflow: 3})
	got := s.Status().Series
	assert.Check(t, got == 4, "%d series", got)
}

// Texts are made UTF-8 before they are compared, and cut where a character ends.
func TestTexts(t *testing.T) {
	s := New(Options{})
	umlauts := strings.Repeat("ä", maxText) // two bytes each
	value := "x" + strings.Repeat("ä", maxValue)
	update(s, 0, func(u *Update) {
		v := viewOf("na\xffme", wire.Sum, "k\xff")
		v.Description = umlauts
		u.registerView(v)
		u.registerView(viewOf("na\xfeme", wire.Sum, "k\xfe")) // reads the same
		u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Int, Unit: "\xffs"})
		u.test(ints("m", 1), "k\xff="+value)
		u.test(ints("m", 1), "k\xfd="+value+"another")
		u.test(ints("m", 1), strings.Repeat("x", maxName+1)+"=ignored")
		for i := range maxTags + 2 { // only the first ones are looked at
			r := wire.Record{Measurements: ints("m", 1), Tags: make([]wire.KeyValue, i)}
			r.Tags = append(r.Tags, pairs("k\xff", "late")...)
			u.Record(&r, time.Time{})
		}
		u.UnregisterViews([]string{"unknown"})
	})
	expect(t, s, 0, "na\ufffdme sum \"\ufffds\" {k\ufffd=x"+strings.Repeat("ä", maxValue/2)+"} 2",
		"na\ufffdme sum \"\ufffds\" {} 3", fmt.Sprintf("na\ufffdme sum \"\ufffds\" {k\ufffd=late} %d", maxTags))
	got := s.Encode(moment)
	assert.Check(t, strings.Count(string(got[0].Body), "ä") == maxText/2+maxValue/2, "%q", got[0].Body)
	expectLost(t, s, map[Loss]uint64{TextCut: 1, ValueCut: 2, TagName: 1, TagsTooMany: 3})
	update(s, 0, func(u *Update) { u.UnregisterViews([]string{"na\xfcme"}) })
	if got := s.Status().Views; got != 0 {
		t.Errorf("%d views", got)
	}
}

// One message does not occupy the state for long, however many measurements and views it reaches.
func TestRecordBounds(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.Count))
		u.test(ints("m", make([]uint64, maxMeasurements+5)...))
	})
	expect(t, s, 0, fmt.Sprintf(`v sum "1" {} %d`, maxMeasurements))
	expectLost(t, s, map[Loss]uint64{TooManyOfRecord: 5})

	s = New(Options{})
	update(s, 0, func(u *Update) {
		for i := range maxViewsOfMeasure + 1 {
			u.registerView(viewOf(fmt.Sprint(i), wire.Count))
		}
		u.test(ints("m", make([]uint64, maxUpdates/maxViewsOfMeasure+1)...))
	})
	expectLost(t, s, map[Loss]uint64{ViewTooMany: 1, TooManyOfRecord: 1})
	got := len(export(t, s, 0))
	assert.Check(t, got == maxViewsOfMeasure, "%d views", got)
}
