package stats

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// gather gathers a state as a program does, which checks that everything is consistent, and writes
// it in both text formats, of which it returns the first.
func gather(t testing.TB, s *State) string {
	t.Helper()
	families, err := prometheus.Gatherers{prometheus.NewRegistry(), s}.Gather()
	assert.Check(t, err)
	var text, open bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		assert.Check(t, err)
		_, err = expfmt.MetricFamilyToOpenMetrics(&open, f)
		assert.Check(t, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(text.Bytes()))
	assert.Check(t, err == nil && len(parsed) == len(families),
		"%d families, parsed %d: %v", len(families), len(parsed), err)
	checkOpenMetrics(t, open.String())
	return text.String()
}

// checkOpenMetrics checks that no family and no sample occurs twice.
func checkOpenMetrics(t testing.TB, text string) {
	t.Helper()
	seen := make(map[string]bool)
	for line := range strings.Lines(text) {
		var name string
		switch {
		case strings.HasPrefix(line, "# TYPE "):
			name = strings.Join(strings.Fields(line)[:3], " ")
		case strings.HasPrefix(line, "#"):
			continue
		default:
			name = line[:strings.LastIndexByte(line, ' ')]
		}
		assert.Check(t, !seen[name], "%s is there twice", name)
		seen[name] = true
	}
}

// samples are the lines that are no comments.
func samples(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func TestGather(t *testing.T) {
	s := New(Options{MaxSeries: 1})
	feed(t, s, "session-userland-cli.bin")
	update(s, 0, func(u *Update) {
		u.Record(&wire.Record{Measurements: ints("shop/bytes", 2), Tags: pairs("route", "other")}, moment)
	})
	want := `# HELP opencensus_shop_bytes_total sum of bytes
# TYPE opencensus_shop_bytes_total counter
opencensus_shop_bytes_total{route="/cart"} 25648
opencensus_shop_bytes_total{otel_metric_overflow="true"} 2
# HELP opencensus_shop_latency_dist latency distribution
# TYPE opencensus_shop_latency_dist histogram
opencensus_shop_latency_dist_bucket{route="/cart",le="0"} 0
opencensus_shop_latency_dist_bucket{route="/cart",le="5"} 0
opencensus_shop_latency_dist_bucket{route="/cart",le="10"} 0
opencensus_shop_latency_dist_bucket{route="/cart",le="25.5"} 1
opencensus_shop_latency_dist_bucket{route="/cart",le="100"} 1
opencensus_shop_latency_dist_bucket{route="/cart",le="+Inf"} 1
opencensus_shop_latency_dist_sum{route="/cart"} 12.75
opencensus_shop_latency_dist_count{route="/cart"} 1
# HELP opencensus_shop_latency_last last latency
# TYPE opencensus_shop_latency_last gauge
opencensus_shop_latency_last 12.75
# HELP opencensus_shop_requests_total number of requests
# TYPE opencensus_shop_requests_total counter
opencensus_shop_requests_total{code="200",route="/cart"} 1
`
	got := gather(t, s)
	assert.Check(t, got == want, "got\n%s", got)
	update(s, 0, func(u *Update) { u.UnregisterViews([]string{"shop/requests"}) })
	got = gather(t, s)
	assert.Check(t, !strings.Contains(got, "requests"), "got\n%s", got)
}

// Descriptions and values are printable: who shows a page in a terminal is not at the clients' mercy.
func TestGatherPrintable(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		v := viewOf("v", wire.Count, "k")
		v.Description = "d\x1b]0;x\x07 \u202e\n\u009bé"
		u.registerView(v)
		u.test(ints(v.Measure, 1), "k=a\x1b[31m\x00\x7f\u202eé b")
		u.test(ints(v.Measure, 1), "k=a\x07[31m\x00\x7f\u202eé b") // looks the same
	})
	got, want := gather(t, s), "# HELP opencensus_v_total d?]0;x? ???é\n# TYPE opencensus_v_total counter\n"+
		"opencensus_v_total{k=\"a?[31m???é b\"} 1\n"
	assert.Check(t, got == want, "got\n%s", got)
	expectLost(t, s, map[Loss]uint64{GatherLabel: 1})
}

// Names and labels that are not unique after translation, or that mean something else.
func TestGatherClashes(t *testing.T) {
	for _, test := range []struct {
		views []wire.View
		want  []string // names
		loss  Loss
	}{
		{[]wire.View{viewOf("a/b", wire.Count), viewOf("a.b", wire.Count), viewOf("a b_total", wire.Count)},
			[]string{"opencensus_a_b_total"}, GatherName},
		{[]wire.View{viewOf("a/b", wire.LastValue), viewOf("a.b", wire.Count)}, []string{"opencensus_a_b"}, GatherName},
		{[]wire.View{viewOf("a/b_total", wire.LastValue), viewOf("a.b", wire.Count)},
			[]string{"opencensus_a_b_total"}, GatherName},
		{[]wire.View{viewOf("ä€:", wire.LastValue)}, []string{"opencensus____"}, NumLosses},
		{[]wire.View{distribution("d"), viewOf("d_count", wire.LastValue), viewOf("d_sum", wire.LastValue),
			viewOf("d_bucket", wire.LastValue), viewOf("d_created", wire.LastValue)},
			[]string{`opencensus_d_bucket{le="+Inf"}`, "opencensus_d_sum", "opencensus_d_count"}, GatherName},
		{[]wire.View{viewOf("d_sum", wire.LastValue), distribution("d"), distribution("d_sum_x")},
			[]string{"opencensus_d_sum", `opencensus_d_sum_x_bucket{le="+Inf"}`, "opencensus_d_sum_x_sum",
				"opencensus_d_sum_x_count"}, GatherName},
		{[]wire.View{viewOf("v", wire.Count, "a.b", "a/b")}, nil, GatherLabel},
		{[]wire.View{viewOf("v", wire.Count, "__name__")}, nil, GatherLabel},
		{[]wire.View{viewOf("v", wire.Count, "//")}, nil, GatherLabel},
		{[]wire.View{viewOf("v", wire.Count, "otel.metric.overflow")}, nil, GatherLabel},
		{[]wire.View{{Name: "v", Measure: "m", Aggregation: wire.Distribution, TagKeys: []string{"le"}}}, nil,
			GatherLabel},
		{[]wire.View{viewOf("v", wire.Count, "le", "1st", "ä")},
			[]string{`opencensus_v_total{_="3",_1st="2",le="1"}`}, NumLosses},
	} {
		s := New(Options{})
		update(s, 0, func(u *Update) {
			u.RegisterViews(test.views)
			u.test(ints("m", 1), "le=1", "1st=2", "ä=3", "a.b=4", "a/b=5")
		})
		var got []string
		for _, line := range samples(gather(t, s)) {
			got = append(got, line[:strings.LastIndexByte(line, ' ')])
		}
		assert.Check(t, fmt.Sprint(got) == fmt.Sprint(test.want), "%v: got %q, want %q", test.views, got, test.want)
		for l, n := range s.Counts().Lost {
			assert.Check(t, (n > 0) == (Loss(l) == test.loss), "%v: %d lost by %v", test.views, n, l)
		}
	}
}

// An empty label does not exist in Prometheus.
func TestGatherEmptyLabels(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.Count, "a", "b"))
		for i, tags := range [][]string{{"a=1"}, {"a=1", "b="}, {"a=", "b=1"}, {"b=1"}, {"a="}, {}} {
			for range 1 << i {
				u.test(ints("m", 1), tags...)
			}
		}
	})
	want := []string{`opencensus_v_total 16`, `opencensus_v_total{a="1"} 1`, `opencensus_v_total{b="1"} 4`}
	got := samples(gather(t, s))
	assert.Check(t, fmt.Sprint(got) == fmt.Sprint(want), "got %q, want %q", got, want)
	expectLost(t, s, map[Loss]uint64{GatherLabel: 3})
}

// Sums of floats are counters, or gauges if they may decrease.
func TestGatherNonMonotonic(t *testing.T) {
	s := New(Options{NonMonotonicSums: true})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("float", wire.Sum), {Name: "int", Measure: "n", Aggregation: wire.Sum}})
		u.test(floats("m", -1.5))
		u.test(ints("n", 3))
	})
	got := gather(t, s)
	for _, want := range []string{"# TYPE opencensus_float gauge\nopencensus_float -1.5\n",
		"# TYPE opencensus_int_total counter\nopencensus_int_total 3\n"} {
		assert.Check(t, strings.Contains(got, want), "got\n%s", got)
	}
}

// A Gather leaves out views that do not fit into its memory, not those after them.
func TestGatherBound(t *testing.T) {
	s := New(Options{MaxMemory: 4 << 20})
	boundaries := make([]float64, 4000)
	for i := range boundaries {
		boundaries[i] = float64(i)
	}
	update(s, 0, func(u *Update) {
		for name := range 2 {
			v := distribution(fmt.Sprint("v", name), boundaries...)
			v.TagKeys = []string{"k"}
			u.registerView(v)
		}
		for i := range 3 {
			u.test(ints("m", 1), "k="+fmt.Sprint(i))
		}
		u.registerView(viewOf("small", wire.Count))
		u.test(ints("m", 1))
	})
	families, _ := s.Gather()
	if len(families) != 2 || families[0].GetName() != "opencensus_small_total" || len(families[1].Metric) != 4 {
		t.Errorf("%d families", len(families))
	}
	expectLost(t, s, map[Loss]uint64{GatherNoRoom: 4})
}

// One user's views leave room for those of others, whoever has registered first.
func TestGatherUsers(t *testing.T) {
	s := New(Options{MaxViews: 20_000})
	boundaries := slices.Collect(count(4000))
	s.Update(moment, func(u *Update) {
		u.SetUser(1)
		for i, n := 0, len(boundaries); n > 0; i++ {
			if i%150 == 0 {
				n /= 2
			}
			v := distribution(fmt.Sprint("greedy", i), boundaries[:n]...)
			v.Measure = v.Name
			u.registerView(v)
			u.test(ints(v.Measure, 1))
		}
	})
	s.Update(moment, func(u *Update) {
		u.SetUser(2)
		u.registerView(distribution("mine", boundaries[:50]...))
		u.test(ints("m", 1))
	})
	families, _ := s.Gather()
	if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "opencensus_mine" }) {
		t.Errorf("not among %d families", len(families))
	}
	assert.Check(t, s.Counts().Lost[GatherNoRoom] != 0, "everything has room")
}

// What a Gather allocates is bounded, whatever it consists of.
func TestGatherMemory(t *testing.T) {
	const limit = 2 << 20
	boundaries, keys := slices.Collect(count(1000)), make([]string, maxTagKeys)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	many := func(from int) (tags []string) {
		for i, key := range keys {
			tags = append(tags, fmt.Sprint(key, "=", from+i))
		}
		return tags
	}
	for name, fill := range map[string]func(u *Update, i int){
		"families": func(u *Update, i int) {
			v := viewOf(fmt.Sprint(strings.Repeat("x", i%200), i), wire.Count)
			v.Measure = fmt.Sprint(i)
			u.registerView(v)
			u.test(ints(v.Measure, 1))
		},
		"histograms": func(u *Update, i int) {
			v := viewOf(fmt.Sprint(strings.Repeat("x", i%200), i), wire.Distribution)
			v.Measure = fmt.Sprint(i)
			u.registerView(v)
			u.test(ints(v.Measure, 1))
		},
		"series": func(u *Update, i int) {
			v := viewOf(fmt.Sprint(i/1100), wire.Count, "k") // just above a power of two
			v.Measure = v.Name
			u.registerView(v)
			u.test(ints(v.Measure, 1), fmt.Sprint("k=", i))
		},
		"long values": func(u *Update, i int) {
			v := viewOf(fmt.Sprint(i/100), wire.LastValue, "k")
			v.Measure = v.Name
			u.registerView(v)
			u.test(ints(v.Measure, 1), fmt.Sprint("k=", i, strings.Repeat("v", 200)))
		},
		"control characters": func(u *Update, i int) {
			v := viewOf(fmt.Sprint(i/100), wire.LastValue, "k")
			v.Measure, v.Description = v.Name, strings.Repeat("\x1b", maxText)
			u.registerView(v)
			u.test(ints(v.Measure, 1), fmt.Sprint("k=", i, strings.Repeat("\x1b", 200)))
		},
		"labels": func(u *Update, i int) {
			v := viewOf(fmt.Sprint(i/100), wire.LastValue, keys...)
			v.Measure = v.Name
			u.registerView(v)
			u.test(ints(v.Measure, 1), many(i)...)
		},
		"buckets": func(u *Update, i int) {
			v := distribution(fmt.Sprint(i/10), boundaries...)
			v.Measure, v.TagKeys = v.Name, []string{"k"}
			u.registerView(v)
			u.test(ints(v.Measure, 1), fmt.Sprint("k=", i))
		},
		"clashes": func(u *Update, i int) {
			v := viewOf(strings.Repeat("/", 1+i%200)+strings.Repeat(".", i/200%50), wire.Distribution, keys...)
			v.Measure = v.Name
			u.registerView(v)
			u.test(ints(v.Measure, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{MaxMemory: 4 * limit, MaxViews: 100_000, MaxMeasures: 100_000})
			for i := range 8_000 {
				update(s, 0, func(u *Update) { fill(u, i) })
			}
			s.memory = newBudget(limit)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			families, _ := s.Gather()
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			c := s.Counts()
			t.Logf("%d families, %d bytes; no room for %d series", len(families), allocated, c.Lost[GatherNoRoom])
			if c.Lost[GatherNoRoom] == 0 || allocated > limit/2+limit/8 { // a user has the half
				t.Errorf("%d families, %d bytes; no room for %d series", len(families), allocated, c.Lost[GatherNoRoom])
			}
		})
	}
}

func TestLossLabels(t *testing.T) {
	seen := make(map[[2]string]bool)
	for l := range NumLosses {
		what, reason := l.Labels()
		assert.Check(t, what != "" && reason != "" && !seen[[2]string{what, reason}], "%d: %q by %q", l, what, reason)
		seen[[2]string{what, reason}] = true
	}
	what, reason := NumLosses.Labels()
	assert.Check(t, what == "unknown" && reason == "unknown", "%q by %q", what, reason)
}
