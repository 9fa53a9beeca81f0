package stats

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// checkMemory compares what is charged with what there is.
func checkMemory(t testing.TB, s *State) {
	t.Helper()
	users, total := make(map[*user]int), 0
	charge := func(u *user, n int) { users[u] += n; total += n }
	views := make([]*view, 0, len(s.views)+len(s.ended))
	for _, v := range s.views {
		views = append(views, v)
	}
	for _, v := range append(views, s.ended...) {
		charge(v.user, v.bytes)
		for _, x := range v.series {
			if x != v.overflow {
				charge(x.user, x.bytes)
			}
			for _, e := range x.exemplars {
				if e != nil {
					charge(e.user, exemplarBytes+cap(e.encoded))
				}
			}
		}
	}
	for _, m := range s.measures {
		charge(m.user, m.bytes)
		if m.unit != "" {
			charge(m.unitOf, len(m.unit))
		}
	}
	for u, n := range users {
		assert.Check(t, u.bytes == n+userBytes && s.memory.users[u.uid] == u,
			"user %d is charged %d bytes, but has %d", u.uid, u.bytes, n+userBytes)
		total += userBytes
	}
	if total != s.memory.Used() || len(users) != len(s.memory.users) || total > s.memory.Capacity() {
		t.Errorf("%d bytes of %d users are taken, but there are %d of %d, limit %d", s.memory.Used(), len(s.memory.users),
			total, len(users), s.memory.Capacity())
	}
}

// A user that takes all it can leaves room for others.
func TestUsers(t *testing.T) {
	const limit = 1 << 20
	s := New(Options{MaxMemory: limit})
	var had []int
	for uid := range uint32(3) {
		before := s.Status().Memory
		s.Update(moment, func(u *Update) {
			u.SetUser(uid)
			for i := range 10_000 {
				v := viewOf(fmt.Sprintf("view %d of %d", i, uid), wire.Count, "k")
				v.Measure = fmt.Sprintf("measure %d of %d", i%1000, uid)
				u.registerView(v)
			}
		})
		had = append(had, s.Status().Memory-before)
		checkMemory(t, s)
	}
	for i, left := 0, limit; i < len(had); i++ {
		assert.Check(t, had[i] <= left/2 && had[i] >= left/2-4096, "user %d has %d bytes of %d", i, had[i], left)
		left -= had[i]
	}
	c := s.Counts()
	assert.Check(t, c.Lost[ViewNoRoom]+c.ViewsCreated == 30_000, "%+v", c)

	// Another one can still do everything.
	s.Update(moment, func(u *Update) {
		u.SetUser(77)
		u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Int, Unit: "By"})
		u.registerView(viewOf("v", wire.Sum, "k"))
		u.withAttachments(ints("m", 7), pairs("k", "a"), "a", "b")
	})
	all := points(export(t, s, 0))
	want := `v sum "By" {k=a} 7 <7   {a=b}>`
	assert.Check(t, len(all) == 1 && all[0] == want, "%q, want %s", all, want)
	checkMemory(t, s)
}

// What a user creates is charged to it, also in views of others, and given back to it.
func TestShared(t *testing.T) {
	s := New(Options{})
	as := func(uid uint32, f func(u *Update)) {
		s.Update(moment, func(u *Update) { u.SetUser(uid); f(u) })
		checkMemory(t, s)
	}
	as(1, func(u *Update) { u.registerView(viewOf("v", wire.Count, "k")) })
	as(2, func(u *Update) { u.withAttachments(ints("m", 1), pairs("k", "2"), "a", "b") })
	as(3, func(u *Update) { u.withAttachments(ints("m", 1), pairs("k", "2"), "a", "longer than before") })
	as(4, func(u *Update) { u.test(ints("own", 1)) })
	got := len(s.memory.users)
	assert.Check(t, got == 4, "%d users", got)
	as(5, func(u *Update) { u.UnregisterViews([]string{"v"}) })
	if got := len(s.memory.users); got != 4 { // user 2 has the series
		t.Errorf("%d users", got)
	}
	expect(t, s, 0, `v sum "1" {k=2} 2 <1   {a=longer than before}>`)
	checkMemory(t, s)
	if got := len(s.memory.users); got != 2 { // with the two measures
		t.Errorf("%d users", got)
	}
}

// The unit of a measure is charged to who has given it, not to who has recorded the measure first.
func TestUnitOfAnother(t *testing.T) {
	s := New(Options{})
	memory := func(uid uint32) int { return s.memory.user(uid).bytes }
	s.Update(moment, func(u *Update) { u.SetUser(1); u.test(ints("m", 1)) })
	before := memory(1)
	unit := strings.Repeat("x", maxText)
	for uid, name := range []string{"none", "first"} {
		s.Update(moment, func(u *Update) {
			u.SetUser(2 + uint32(uid))
			m := wire.Measure{Name: "m", Type: wire.Int, Unit: unit}
			if name == "none" {
				m = wire.Measure{Name: "own", Type: wire.Int}
			}
			u.CreateMeasure(m)
		})
		checkMemory(t, s)
	}
	s.Update(moment, func(u *Update) { u.SetUser(4); u.CreateMeasure(wire.Measure{Name: "m", Type: wire.Int}) })
	if memory(1) != before || memory(2) != userBytes+measureBytes+len("own") || memory(3) != userBytes+maxText ||
		memory(4) != 0 {
		t.Errorf("users have %d (%d before), %d, %d, %d bytes", memory(1), before, memory(2), memory(3), memory(4))
	}
	// A user without anything of its own may give no unit to a measure.
	s.Update(moment, func(u *Update) { u.SetUser(5); u.test(ints("n", 1)) })
	s.Update(moment, func(u *Update) { u.SetUser(6); u.CreateMeasure(wire.Measure{Name: "n", Type: wire.Int}) })
	if memory(6) != 0 {
		t.Errorf("%d bytes", memory(6))
	}
	checkMemory(t, s)
}

// Measures and views of a user are limited in number.
func TestNumbers(t *testing.T) {
	s := New(Options{MaxMeasures: 3, MaxViews: 2})
	update(s, 0, func(u *Update) {
		for i := range 4 {
			u.CreateMeasure(wire.Measure{Name: fmt.Sprint("m", i), Type: wire.Int})
			u.test(ints("n", 1)) // from the third on, it is the fourth measure
		}
		for i := range 3 {
			v := viewOf(fmt.Sprint(i), wire.Count)
			v.Measure = "m0"
			u.registerView(v)
		}
		v := viewOf("0", wire.Sum) // another definition
		u.registerView(v)
	})
	expectLost(t, s, map[Loss]uint64{NoView: 4, CreateNoRoom: 2, ViewNoRoom: 1, ViewConflict: 1})
	update(s, time.Hour, func(u *Update) {
		v := viewOf("0", wire.Sum)
		u.registerView(v) // its measure is one too many
		v.Measure = "m1"
		u.registerView(v) // a replacement is not one view more
		u.UnregisterViews([]string{"0", "1"})
		u.RegisterViews([]wire.View{{Name: "x", Measure: "m0", Aggregation: wire.Sum}, {Name: "y", Measure: "m0",
			Aggregation: wire.Sum}})
	})
	got := s.Status()
	assert.Check(t, got.Views == 2 && got.Measures == 3, "%+v", got)
	expectLost(t, s, map[Loss]uint64{NoView: 4, CreateNoRoom: 2, ViewNoRoom: 2, ViewConflict: 1})
	checkMemory(t, s)
}

// Without room there are no more series, but the views go on counting. Measures that only a view
// named go with it.
func TestNoRoom(t *testing.T) {
	s := New(Options{MaxMemory: 16 << 10})
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.Count, "k"))
		for i := range 1000 {
			u.withAttachments(ints("m", 1), pairs("k", fmt.Sprint(i)), "a", strings.Repeat("x", 100))
		}
		u.test(ints("another", 1))
		u.registerView(viewOf("another", wire.Count))
		u.CreateMeasure(wire.Measure{Name: "another", Type: wire.Int})
	})
	checkMemory(t, s)
	total := int64(0)
	for _, m := range export(t, s, 0) {
		for _, p := range m.GetSum().DataPoints {
			total += p.GetAsInt()
		}
	}
	c := s.Counts()
	assert.Check(t, total == 1000 && c.Lost[Overflow] != 0 && c.Lost[ExemplarNoRoom] != 0 &&
		c.Lost[MeasureNoRoom] == 1 && c.Lost[ViewNoRoom] == 1 && c.Lost[CreateNoRoom] == 1,
		"%d counted: %v", total, c.Lost)
	update(s, 0, func(u *Update) {
		u.UnregisterViews([]string{"v"})
		u.RegisterViews([]wire.View{{Name: "w", Measure: "x", Aggregation: wire.Count}})
	})
	s.Encode(moment)
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{{Name: "w", Measure: "x", Aggregation: wire.Count}})
		u.UnregisterViews([]string{"w"})
	})
	got := s.Status()
	assert.Check(t, got.Measures == 1 && got.Memory == measureBytes+len("m")+userBytes, "%+v", got)
	checkMemory(t, s)
}

// The memory that is charged is the memory that is used, whatever it is used for.
func TestHeap(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	boundaries := make([]float64, 1000)
	for i := range boundaries {
		boundaries[i] = float64(i)
	}
	for name, fill := range map[string]func(u *Update, i int){
		"measures": func(u *Update, i int) { u.test(ints(fmt.Sprint(i), 1)) },
		"views": func(u *Update, i int) {
			u.RegisterViews([]wire.View{{Name: fmt.Sprint(i), Measure: fmt.Sprint(i / 10), Aggregation: wire.Count}})
		},
		"views with a series": func(u *Update, i int) {
			u.RegisterViews([]wire.View{{Name: fmt.Sprint(i), Measure: fmt.Sprint(i), Aggregation: wire.Count}})
			u.test(ints(fmt.Sprint(i), 1))
		},
		"replaced views": func(u *Update, i int) {
			u.RegisterViews([]wire.View{{Name: "v", Measure: "m", Aggregation: wire.Count}})
			u.test(ints("m", 1))
			u.UnregisterViews([]string{"v"})
		},
		"series": func(u *Update, i int) {
			u.RegisterViews([]wire.View{viewOf("v", wire.Count, "a", "b"), viewOf("w", wire.Count, "a")})
			u.test(ints("m", 1), "a=/path/of/something/"+fmt.Sprint(i), "b=200")
		},
		"wide distributions": func(u *Update, i int) {
			v := distribution(fmt.Sprint(i/10), boundaries...)
			v.Measure, v.TagKeys = v.Name, []string{"k"}
			u.registerView(v)
			u.test(ints(fmt.Sprint(i/10), 1), "k="+fmt.Sprint(i))
		},
		"exemplars": func(u *Update, i int) {
			u.registerView(wire.View{Name: fmt.Sprint(i / 1000), Measure: fmt.Sprint(i / 1000),
				Aggregation: wire.Distribution,
				Boundaries:  boundaries})
			u.withAttachments(ints(fmt.Sprint(i/1000), uint64(i%1000)), nil, "a", strings.Repeat("x", i%500))
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			const limit = 4 << 20
			s := New(Options{MaxMemory: limit, MaxSeries: 1 << 20})
			n := 0
			for lost := uint64(0); lost == 0 && n < 1_000_000; n++ {
				update(s, 0, func(u *Update) { fill(u, n) })
				c := s.Counts()
				lost = c.Lost[MeasureNoRoom] + c.Lost[ViewNoRoom] + c.Lost[Overflow] + c.Lost[ExemplarNoRoom]
				if s.Status().Measures == defaultMaxMeasures || s.Status().Views == DefaultMaxViews {
					break
				}
			}
			used, charged := heap()-before, s.Status().Memory
			bodies := 0
			for _, r := range s.Encode(moment) {
				bodies += len(r.Body)
			}
			t.Logf("%d times: charged %d bytes, used %d; exported %d", n, charged, used, bodies)
			if used > charged+charged/4+1<<16 {
				t.Errorf("charged %d bytes, used %d", charged, used)
			}
			if bodies > charged {
				t.Errorf("charged %d bytes, exported %d", charged, bodies)
			}
		})
	}
}
