package stats

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// A view that does not fit into a request is continued in the next one, and nothing is lost.
func TestSplit(t *testing.T) {
	fill := func(s *State) {
		update(s, 0, func(u *Update) {
			v := distribution("d", 1, 2)
			v.TagKeys = []string{"k"}
			u.RegisterViews([]wire.View{viewOf("count", wire.Count, "k"), v, viewOf("last", wire.LastValue, "k")})
			for i := range 100 {
				u.withAttachments(ints("m", uint64(i)), pairs("k", fmt.Sprint(i)), "a", "b")
			}
		})
	}
	one := New(Options{})
	fill(one)
	want := points(export(t, one, 0))
	assert.Assert(t, len(want) == 300, "%d points", len(want))
	for _, limit := range []int{400, 401, 500, 1000, 5000, 20000} {
		s := New(Options{MaxBytes: limit})
		fill(s)
		requests := s.Encode(moment)
		var got []string
		sizes := 0
		for _, r := range requests {
			sizes += len(r.Body)
			got = append(got, points(decode(t, r, limit).ResourceMetrics[0].ScopeMetrics[0].Metrics)...)
		}
		assert.Check(t, slices.Equal(got, want), "limit %d: %d points", limit, len(got))
		if most := sizes/(limit-250) + 2; limit > 500 && len(requests) > most {
			t.Errorf("limit %d: %d requests with %d bytes", limit, len(requests), sizes)
		}
		expectLost(t, s, nil)
	}
}

// A point that fits into no request costs no other.
func TestPointTooLarge(t *testing.T) {
	s := New(Options{MaxBytes: 600})
	update(s, 0, func(u *Update) {
		large := viewOf("large", wire.Count)
		large.Description = strings.Repeat("x", 1000)
		u.RegisterViews([]wire.View{viewOf("first", wire.Count, "k"), distribution("wide",
			slices.Collect(count(100))...), large,
			viewOf("last", wire.Count)})
		u.test(ints("m", 1), "k=a")
		u.test(ints("m", 1), "k="+strings.Repeat("x", 255)) // fits
	})
	expect(t, s, 0, `first sum "1" {k=a} 1`, `first sum "1" {k=`+strings.Repeat("x", 255)+`} 1`, `last sum "1" {} 2`)
	expectLost(t, s, map[Loss]uint64{PointTooLarge: 2})
}

// count yields the first numbers.
func count(n int) func(func(float64) bool) {
	return func(yield func(float64) bool) {
		for i := range n {
			if !yield(float64(i)) {
				return
			}
		}
	}
}

// Nothing to say: no request. And what says who it is.
func TestResource(t *testing.T) {
	s := New(Options{HostName: "web\xff"})
	got := s.Encode(moment)
	assert.Check(t, got == nil, "%d requests", len(got))
	update(s, 0, func(u *Update) { u.registerView(viewOf("v", wire.Count)) })
	got = s.Encode(moment)
	assert.Check(t, got == nil, "%d requests without data", len(got))
	update(s, 0, func(u *Update) { u.test(ints("m", 1)) })
	r := decode(t, s.Encode(moment)[0], 1<<20).ResourceMetrics[0]
	want := "{service.name=unknown_service:php host.name=web\ufffd telemetry.sdk.name=opencensus telemetry.sdk.language=php}"
	if got := list(r.Resource.Attributes); got != want {
		t.Errorf("resource %s, want %s", got, want)
	}
	if got := r.ScopeMetrics[0].Scope.Name; got != "opencensus-php" {
		t.Errorf("scope %q", got)
	}
}

// A block that is processed after an export which was made later than the block was received: its
// views begin after that export, and end after it.
func TestLateUpdate(t *testing.T) {
	s := New(Options{})
	times := func(m *metrics.Metric) (start, end time.Duration) {
		p := m.GetSum().DataPoints[0]
		return time.Unix(0, int64(p.StartTimeUnixNano)).Sub(moment), time.Unix(0, int64(p.TimeUnixNano)).Sub(moment)
	}
	register := func(u *Update) {
		u.registerView(viewOf("v", wire.Count))
		u.test(ints("m", 1))
	}
	update(s, 0, register)
	if _, end := times(export(t, s, 10*time.Second)[0]); end != 10*time.Second {
		t.Errorf("%v", end)
	}
	update(s, 9*time.Second, func(u *Update) {
		u.UnregisterViews([]string{"v"})
		register(u)
	})
	all := export(t, s, 8*time.Second) // the clock was set back
	assert.Assert(t, len(all) == 2, "%d metrics", len(all))
	_, end := times(all[0])
	start, last := times(all[1])
	assert.Check(t, end == 10*time.Second && start == end && last == end,
		"the first ends after %v, the second begins after %v and ends after %v", end, start, last)
}

// A clock that is set back does not make points that end before they start.
func TestClockSetBack(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("a", wire.Count), viewOf("b", wire.Count)})
		u.test(ints("m", 1))
	})
	update(s, -time.Hour, func(u *Update) { u.UnregisterViews([]string{"b"}) })
	got := len(export(t, s, -time.Hour))
	assert.Check(t, got == 2, "%d metrics", got)
	s = New(Options{})
	s.Update(time.Unix(-1, 0), func(u *Update) { // before 1970
		u.registerView(viewOf("v", wire.Count))
		u.withAttachments(ints("m", 1), nil, "a", "b")
	})
	for _, r := range s.Encode(time.Unix(-1, 0)) {
		decode(t, r, 1<<20)
	}
}
