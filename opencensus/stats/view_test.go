package stats

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// viewOf returns a view of the measure "m".
func viewOf(name string, a wire.Aggregation, keys ...string) wire.View {
	return wire.View{Name: name, Measure: "m", Aggregation: a, TagKeys: keys}
}

func distribution(name string, boundaries ...float64) wire.View {
	v := viewOf(name, wire.Distribution)
	v.Boundaries = boundaries
	return v
}

// registerView registers one view.
func (u *Update) registerView(v wire.View) { u.RegisterViews([]wire.View{v}) }

// Registering a view again changes nothing, in whatever order its definition is.
func TestRegisteredAgain(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Float, Unit: "ms"})
		v := distribution("d", 5, -3, 100, 5, math.Inf(1), math.NaN(), math.Inf(-1))
		v.TagKeys = []string{"b", "a", "b"}
		u.registerView(v)
		u.test(floats("m", 7), "a=1", "b=2", "c=3")
	})
	want := `d histogram "ms" {a=1 b=2} %d %d 7..7 [-3 5 100] [0 0 %[1]d 0]`
	for i := range 3 {
		expect(t, s, time.Duration(i)*time.Minute, fmt.Sprintf(want, i+1, 7*(i+1)))
		update(s, time.Duration(i)*time.Minute, func(u *Update) {
			u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Float, Unit: "s", Description: "another"})
			v := distribution("d", -3, 5, 100)
			v.TagKeys, v.Description = []string{"a", "b"}, "another"
			u.registerView(v)
			u.test(floats("m", 7), "b=2", "a=1")
		})
	}
	for _, r := range s.Encode(moment.Add(time.Hour)) {
		p := decode(t, r, 1<<20).ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
		if p.Description != "" || p.GetHistogram().DataPoints[0].StartTimeUnixNano != uint64(moment.UnixNano()) {
			t.Errorf("%v", p)
		}
	}
	c := s.Counts()
	assert.Check(t, c.ViewsCreated == 1 && c.ViewsKnown == 3, "%+v", c)
	expectLost(t, s, nil)
}

// Another definition of a name is not taken, reported once, and taken when nobody has registered the
// present one for 5 minutes.
func TestConflict(t *testing.T) {
	original := distribution("v", 1, 2)
	original.TagKeys = []string{"k"}
	others := []wire.View{
		viewOf("v", wire.Count, "k"), distribution("v", 1, 2), distribution("v", 1, 2, 3),
		{Name: "v", Measure: "other", Aggregation: wire.Distribution, Boundaries: []float64{1, 2},
			TagKeys: []string{"k"}},
	}
	for i, other := range others {
		var reported []Conflict
		s := New(Options{})
		update(s, 0, func(u *Update) {
			u.registerView(original)
			u.test(floats("m", 1.5), "k=x")
		})
		update(s, time.Minute, func(u *Update) { u.registerView(original) })
		for _, after := range []time.Duration{0, 2 * time.Minute, 6*time.Minute - 1} {
			reported = append(reported, s.Update(moment.Add(after), func(u *Update) {
				u.SetUser(33)
				u.registerView(other)
			})...)
		}
		expectLost(t, s, map[Loss]uint64{ViewConflict: 3})
		assert.Check(t, len(reported) == 1 && reported[0].View == "v" && reported[0].UID == 33 &&
			reported[0].Kept != reported[0].Refused &&
			strings.Contains(reported[0].Kept, `distribution of "m" by ["k"] in 3 buckets: [1 2]`),
			"%d: reported %+v", i, reported)
		expect(t, s, 5*time.Minute, `v histogram "" {k=x} 1 1.5 1.5..1.5 [1 2] [0 1 0]`)

		replaced := 6 * time.Minute
		update(s, replaced, func(u *Update) {
			u.registerView(other)
			u.test(floats(other.Measure, 3), "k=x")
			u.registerView(original) // now this one conflicts
		})
		metrics := export(t, s, 7*time.Minute)
		last := metrics[0].GetHistogram().DataPoints[0]
		assert.Check(t, len(metrics) == 2 && last.TimeUnixNano == uint64(moment.Add(replaced).UnixNano()),
			"%d: %v", i, metrics)
		start := metrics[1].GetSum().GetDataPoints()
		assert.Check(t, i != 0 || start[0].StartTimeUnixNano == last.TimeUnixNano && start[0].GetAsInt() == 1, start)
		assert.Check(t, len(export(t, s, 8*time.Minute)) == 1, "%d: the replaced view is exported again", i)
		c := s.Counts()
		assert.Check(t, c.ViewsReplaced == 1 && s.Status().Views == 1, "%d: %+v", i, c)
		expectLost(t, s, map[Loss]uint64{ViewConflict: 4})
	}
}

// A view that is unregistered is exported once more, as of then; registered again, it starts anew.
func TestUnregister(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("a", wire.Count), viewOf("b", wire.Sum), viewOf("c", wire.Count),
			{Name: "empty", Measure: "other", Aggregation: wire.Count}})
		u.test(floats("m", 2, 3))
		u.UnregisterViews([]string{"b", "unknown", "a", "empty", strings.Repeat("x", 1000)})
		u.test(floats("m", 4))
	})
	update(s, time.Second, func(u *Update) {
		u.registerView(viewOf("a", wire.Count))
		u.test(floats("m", 1))
	})
	metrics := export(t, s, time.Minute)
	want := []string{`b sum "" {} 5.0`, `a sum "1" {} 2`, `c sum "1" {} 4`, `a sum "1" {} 1`}
	got := points(metrics)
	assert.Assert(t, slices.Equal(got, want), "%q, want %q", got, want)
	dropped, again := metrics[1].GetSum().DataPoints[0], metrics[3].GetSum().DataPoints[0]
	assert.Check(t, dropped.TimeUnixNano <= again.StartTimeUnixNano &&
		again.StartTimeUnixNano == uint64(moment.Add(time.Second).UnixNano()),
		"%v, %v", dropped, again)
	expect(t, s, time.Hour, `c sum "1" {} 4`, `a sum "1" {} 1`)
	if got := s.Status(); got.Views != 2 || got.Series != 2 || got.Measures != 1 {
		t.Errorf("%+v", got)
	}
	expectLost(t, s, nil)
}

// The capture of two names that are unregistered.
func TestUnregisterCapture(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		for _, name := range []string{"odd/count", "odd/sum", "v"} {
			u.registerView(viewOf(name, wire.Count))
		}
		u.test(ints("m", 1))
	})
	feed(t, s, "43-view-unregister.bin")
	got := s.Status()
	assert.Check(t, got.Views == 1 && got.Series == 1, "%+v", got)
	expect(t, s, 0, `odd/count sum "1" {} 1`, `odd/sum sum "1" {} 1`, `v sum "1" {} 1`)
	expect(t, s, 0, `v sum "1" {} 1`)
}

// All aggregations, of both types.
func TestAggregations(t *testing.T) {
	all := []wire.View{viewOf("count", wire.Count), viewOf("sum", wire.Sum), distribution("dist", 2, 4),
		viewOf("last", wire.LastValue)}
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.RegisterViews(all)
		u.test(ints("m", 5, 2, 3))
	})
	expect(t, s, 0, `count sum "1" {} 3`, `sum sum "" {} 10`, `dist histogram "" {} 3 10 2..5 [2 4] [1 1 1]`,
		`last gauge "" {} 3`)

	for _, nonMonotonic := range []bool{false, true} {
		s = New(Options{NonMonotonicSums: nonMonotonic})
		update(s, 0, func(u *Update) {
			u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Float, Unit: "ms"})
			u.RegisterViews(all)
			u.test(floats("m", 5, -2, 3.5))
		})
		sum, lost := `sum sum "ms" {} 8.5`, map[Loss]uint64{Negative: 1}
		if nonMonotonic {
			sum, lost = `sum updown "ms" {} 6.5`, nil
		}
		expect(t, s, 0, `count sum "1" {} 3`, sum, `dist histogram "ms" {} 3 no sum, -2..5 [2 4] [1 1 1]`,
			`last gauge "ms" {} 3.5`)
		expectLost(t, s, lost)
	}
}

// A histogram has a sum until its first negative value, each series on its own.
func TestNegativeSum(t *testing.T) {
	s := New(Options{})
	v := distribution("d")
	v.TagKeys = []string{"k"}
	add := func(values ...float64) {
		update(s, 0, func(u *Update) {
			u.registerView(v)
			u.test(floats("m", values...), "k=a")
		})
	}
	update(s, 0, func(u *Update) { u.registerView(v); u.test(floats("m", 3), "k=b") })
	const other = `d histogram "" {k=b} 1 3 3..3 [] [1]`
	add(1, math.Copysign(0, -1))
	expect(t, s, 0, other, `d histogram "" {k=a} 2 1 -0..1 [] [2]`)
	add(-0.5)
	expect(t, s, 0, other, `d histogram "" {k=a} 3 no sum, -0.5..1 [] [3]`)
	add(7)
	expect(t, s, 0, other, `d histogram "" {k=a} 4 no sum, -0.5..7 [] [4]`)
}

// Boundaries that are odd, and values on them: a bucket has its upper boundary.
func TestBoundaries(t *testing.T) {
	for _, test := range []struct {
		boundaries, values []float64
		want               string
	}{
		{nil, []float64{1, -1}, `2 no sum, -1..1 [] [2]`},
		{[]float64{math.NaN(), math.Inf(1)}, []float64{1}, `1 1 1..1 [] [1]`},
		{[]float64{0, 10}, []float64{0, 10, 10.5, -0.5, math.Copysign(0, -1)}, `5 no sum, -0.5..10.5 [0 10] [3 1 1]`},
		{[]float64{100, 5, 5, 0.5, -3}, []float64{-3, 5, 100}, `3 no sum, -3..100 [-3 0.5 5 100] [1 0 1 1 0]`},
		{[]float64{0, math.Copysign(0, -1)}, []float64{1}, `1 1 1..1 [0] [0 1]`},
	} {
		s := New(Options{})
		update(s, 0, func(u *Update) {
			u.registerView(distribution("d", test.boundaries...))
			u.test(floats("m", test.values...))
		})
		expect(t, s, 0, `d histogram "" {} `+test.want)
	}
}

// Views before their measure, records before everything.
func TestOrder(t *testing.T) {
	create := func(u *Update) { u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Int, Unit: "By"}) }
	register := func(u *Update) { u.registerView(viewOf("v", wire.Sum, "k")) }
	one := func(u *Update) { u.test(ints("m", 1), "k=a") }
	for _, test := range []struct {
		name  string
		steps []func(*Update)
		want  []string
		lost  map[Loss]uint64
	}{
		{"register before create", []func(*Update){register, create, one}, []string{`v sum "By" {k=a} 1`}, nil},
		{"register before record", []func(*Update){register, one}, []string{`v sum "" {k=a} 1`}, nil},
		{"record before create", []func(*Update){register, one, create, one}, []string{`v sum "By" {k=a} 2`}, nil},
		{"record before register", []func(*Update){one, create, register, one}, []string{`v sum "By" {k=a} 1`},
			map[Loss]uint64{NoView: 1}},
		{"without view", []func(*Update){create, one, one}, nil, map[Loss]uint64{NoView: 2}},
		{"without record", []func(*Update){create, register}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(Options{})
			for _, step := range test.steps {
				update(s, 0, step)
			}
			expect(t, s, 0, test.want...)
			expectLost(t, s, test.lost)
		})
	}
}

// A view that is invalid does not cost the others of its message.
func TestInvalidViews(t *testing.T) {
	long, many := strings.Repeat("x", maxName+1), make([]string, maxTagKeys+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	distinct := make([]float64, 5)
	for i := range distinct {
		distinct[i] = float64(i)
	}
	s := New(Options{MaxBoundaries: 4})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{
			viewOf("first", wire.Count), viewOf("", wire.Count), viewOf("none", wire.None), viewOf("5", 5),
			viewOf("max", 1<<63),
			viewOf("key", wire.Count, "a", ""), viewOf(long, wire.Count), viewOf("key", wire.Count, long),
			{Name: "measure", Measure: long, Aggregation: wire.Count}, viewOf("keys", wire.Count, many...),
			distribution("boundaries", distinct...), distribution("same", make([]float64, 5)...),
			viewOf("last", wire.Count),
		})
		u.test(ints("m", 1))
	})
	expect(t, s, 0, `first sum "1" {} 1`, `same histogram "" {} 1 1 1..1 [0] [0 1]`, `last sum "1" {} 1`)
	expectLost(t, s, map[Loss]uint64{ViewInvalid: 5, ViewName: 3, ViewTagKeys: 1, ViewBoundaries: 1})
}
