package stats

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// What a user with many views and measures does not use for a day is forgotten, after its data was exported once more,
// with its memory, and can be registered again; what is recorded or registered meanwhile is not, nor is anything of a
// user with few.
func TestUnused(t *testing.T) {
	const many, modest = 1, 2
	s := New(Options{})
	define := func(u *Update, uid uint32, names ...string) {
		u.SetUser(uid)
		for _, name := range names {
			u.CreateMeasure(wire.Measure{Name: name, Type: wire.Int, Unit: "By"})
			u.RegisterViews([]wire.View{{Name: name, Description: strings.Repeat("d", maxText), Measure: name,
				Aggregation: wire.Count}})
		}
	}
	record := func(u *Update, uid uint32, names ...string) {
		u.SetUser(uid)
		for _, name := range names {
			u.Record(&wire.Record{Measurements: ints(name, 1)}, time.Time{})
		}
	}
	var unused []string
	for i := range 1000 {
		unused = append(unused, fmt.Sprint("unused-", i))
	}
	update(s, 0, func(u *Update) {
		define(u, many, unused...)
		define(u, many, "recorded", "registered")
		define(u, modest, "modest")
		record(u, modest, "modest")
		record(u, many, append(unused, "recorded")...)
		u.SetUser(many)
		u.CreateMeasure(wire.Measure{Name: "without views", Type: wire.Int, Unit: "By"})
	})
	assert.Check(t, s.memory.Used() > modestBytes)
	export(t, s, unusedLook) // later than the first look
	update(s, unusedAge-time.Second, func(u *Update) {
		record(u, many, "recorded")
		define(u, many, "registered")
	})
	assert.Check(t, len(export(t, s, unusedAge-unusedLook/2)) == 1002, "forgotten too early")
	got := export(t, s, 2*unusedAge-2*time.Second)
	assert.Check(t, len(got) == 1002, "%d metrics are exported when they are forgotten", len(got))
	checkMemory(t, s)
	status := s.Status()
	assert.Check(t, status.Views == 3 && status.Measures == 3 && status.Series == 2 && status.Memory < modestBytes,
		"%+v", status)
	counts := s.Counts()
	assert.Check(t, counts.Lost[ViewUnused] == 1000 && counts.Lost[MeasureUnused] == 1001, "%+v", counts.Lost)
	checkSums(t, &counts)
	got = export(t, s, 3*unusedAge) // of a user that has few by now, whatever is not used
	assert.Check(t, len(got) == 2, "%d metrics", len(got))
	update(s, 3*unusedAge, func(u *Update) { define(u, many, unused[0]); record(u, many, unused[0]) })
	assert.Check(t, len(export(t, s, 3*unusedAge+time.Second)) == 3)
}
