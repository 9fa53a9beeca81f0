package metrics

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"correlator/bpf"
	"correlator/internal/agent"
	"correlator/internal/process"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// Every counter of the agent is exported, each as a series of its own, under the word that logs have for it.
func TestEveryCounterIsExported(t *testing.T) {
	places := newPlaces(families())
	exported := make(map[string]string) // by series
	used := make(map[string]bool)
	new(agent.Counters).Each(func(name string, _ uint64) {
		desc, labels, ok := places.find(name)
		if !ok {
			t.Errorf("counter %s belongs to no family", name)
			return
		}
		at := desc.String() + strings.Join(labels, " ")
		if other, twice := exported[at]; twice {
			t.Errorf("counters %s and %s are the same series %s", name, other, at)
		}
		exported[at], used[desc.String()] = name, true
		if len(labels) > 0 && !strings.HasSuffix(name, labels[len(labels)-1]) {
			t.Errorf("counter %s has the label %q", name, labels)
		}
	})
	for _, f := range families() {
		if !used[describe(f.name, f.help, f.labels...).String()] {
			t.Errorf("no counter belongs to %s", f.name)
		}
	}
	if n := len(ours(t, crowded())); n != len(families())+len(readings())+1 {
		t.Errorf("%d families are exported of %d, %d and a histogram", n, len(families()), len(readings()))
	}
}

// Labels have the words that other packages have for what they count.
func TestLabelsAreWordsOfTheLog(t *testing.T) {
	words := func(n int, word func(i int) string) (words []string) {
		for i := range n {
			words = append(words, word(i))
		}
		slices.Sort(words)
		return words
	}
	outcomes := words(int(process.NumOutcomes), func(i int) string { return process.SampleOutcome(i).String() })
	reasons := words(int(process.NumReasons)-1, func(i int) string { return process.Reason(i + 1).String() })
	gathered := ours(t, crowded())
	for _, c := range []struct {
		family, label string
		want          []string
	}{
		{"correlator_process_errors_total", "reason", reasons},
		{"correlator_processes_in_error", "reason", reasons},
		{"correlator_processes_not_sampled", "reason", slices.Sorted(slices.Values(agent.NotSampledReasons()))},
		{"correlator_samples_total", "outcome", outcomes},
		{"correlator_samples_total", "source", []string{"fed", "sampled"}},
		{"correlator_kernel_samples_total", "outcome", words(len(bpf.Counters{}), func(i int) string { return bpf.KernelOutcome(i).String() })},
		{"correlator_samples_dropped_total", "reason", words(int(messaging.NumReasons), func(i int) string { return messaging.Reason(i).String() })},
		{"correlator_feed_datagrams_refused_total", "reason", words(int(feed.NumReasons), func(i int) string { return feed.Reason(i).String() })},
		{"correlator_processes", "state", words(len(states), func(i int) string { return string(states[i]) })},
	} {
		if got := labelValues(gathered[c.family], c.label); !slices.Equal(got, c.want) {
			t.Errorf("%s has %s %q, want %q", c.family, c.label, got, c.want)
		}
	}
}

// labelValues are the values that a label of a family has.
func labelValues(f *dto.MetricFamily, label string) []string {
	values := make(map[string]bool)
	for _, m := range f.GetMetric() {
		for _, pair := range m.Label {
			if pair.GetName() == label {
				values[pair.GetValue()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}

func TestValues(t *testing.T) {
	got := values(ours(t, crowded()))
	for series, want := range map[string]float64{
		`correlator_processes{state="registered"}`:                      102,
		`correlator_processes_in_error{reason="denied"}`:                float64(process.ReasonDenied),
		`correlator_process_errors_total{reason="denied"}`:              1000 + float64(process.ReasonDenied),
		`correlator_samples_total{outcome="no_trace",source="fed"}`:     2000 + float64(process.OutcomeNoTrace),
		`correlator_samples_total{outcome="no_trace",source="sampled"}`: 3000 + float64(process.OutcomeNoTrace),
		`correlator_frames_total{kind="anonymous",space="kernel"}`:      0,
		`correlator_kernel_samples_total{outcome="correlated"}`:         0,
		`correlator_sweep_seconds_total{}`:                              1.5,
		`correlator_samples_sent_total{}`:                               4000,
		`correlator_processes_not_sampled{reason="unresolved"}`:         200,
		`correlator_samples_waiting{}`:                                  7,
		`correlator_config_samples_delay_seconds{}`:                     0.3,
		`correlator_healthy{}`:                                          1,
		`correlator_ready{}`:                                            0,
		`correlator_live_events_up{}`:                                   1,
		`correlator_samples_delay_missed_total{reason="overdue"}`:       0,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (there: %v), want %v", series, value, ok, want)
		}
	}
	info := gather(t, crowded(), nil)["correlator_build_info"].GetMetric()[0]
	if s := series("", info); !strings.Contains(s, `revision="0123abcd"`) || !strings.Contains(s, `version="v1.2.3"`) || info.GetGauge().GetValue() != 1 {
		t.Errorf("build info %s is %v", s, info.GetGauge().GetValue())
	}
}

// However many processes there are, and whatever they do, the series are the same.
func TestSeriesDoNotDependOnProcesses(t *testing.T) {
	idle, busy := &fakeSource{}, crowded()
	busy.census.Processes["a state that nobody knows"] = 1
	busy.census.InError["reason \xff"] = 1
	want := slices.Sorted(maps.Keys(values(ours(t, idle))))
	got := slices.Sorted(maps.Keys(values(ours(t, busy))))
	if !slices.Equal(got, want) {
		t.Errorf("series %q, and without processes %q", got, want)
	}
	if len(want) > 200 {
		t.Errorf("%d series", len(want))
	}
}

// metricName finds what looks like a name of ours.
var metricName = regexp.MustCompile(`\bcorrelator_[a-z_]+\b`)

func TestLint(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(slices.Collect(maps.Values(gather(t, crowded(), exporting(t))))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Help texts are sentences; a reference in one is to a metric that there is.
func TestHelp(t *testing.T) {
	gathered := gather(t, crowded(), exporting(t))
	for name, f := range gathered {
		if !strings.HasPrefix(name, "correlator_") {
			continue
		}
		if !strings.HasSuffix(f.GetHelp(), ".") || strings.Contains(f.GetHelp(), "\n") {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
		for _, other := range metricName.FindAllString(f.GetHelp(), -1) {
			if gathered[other] == nil {
				t.Errorf("%s refers to %s", name, other)
			}
		}
	}
}

// What a scrape costs: gathering, and writing it down.
func BenchmarkScrape(b *testing.B) {
	source := crowded()
	handler := promhttp.HandlerFor(NewGatherer(source, nil, testBuild), promhttp.HandlerOpts{}) // not paced
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
