package agent

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker/cost"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// fixedSource is a Source with fixed values. It is healthy and not ready.
type fixedSource struct {
	config     Config
	counters   Counters
	census     Census
	notSampled map[string]int
	services   []ServiceCounts
	unwinding  *sampling.UnwindingStatus
	waits      *sampling.WaitsStatus
	cost       cost.Cost
}

func (s *fixedSource) Config() Config             { return s.config }
func (s *fixedSource) Counters() *Counters        { return &s.counters }
func (s *fixedSource) Census() Census             { return s.census }
func (s *fixedSource) NotSampled() map[string]int { return s.notSampled }
func (s *fixedSource) Services() []ServiceCounts  { return s.services }
func (s *fixedSource) Health() error              { return nil }
func (s *fixedSource) Ready() error               { return errStarting }
func (s *fixedSource) Cost() cost.Cost            { return s.cost }

func (s *fixedSource) Unwinding() *sampling.UnwindingStatus { return s.unwinding }
func (s *fixedSource) Waits() *sampling.WaitsStatus         { return s.waits }

func gather(t *testing.T, source Source) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(source))
	families, err := registry.Gather()
	assert.NilError(t, err)
	return families
}

// gatherValues returns the values of all series but the histogram's, by name and labels as
// Prometheus writes them.
func gatherValues(t *testing.T, source Source) map[string]float64 {
	t.Helper()
	values := make(map[string]float64)
	for _, family := range gather(t, source) {
		for _, metric := range family.Metric {
			var labels []string
			for _, pair := range metric.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", pair.GetName(), pair.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case metric.Counter != nil:
				values[name] = metric.Counter.GetValue()
			case metric.Gauge != nil:
				values[name] = metric.Gauge.GetValue()
			}
		}
	}
	return values
}

// counterFields yields every exported counter of v, by its path.
func counterFields(path string, v reflect.Value, yield func(path string, counter *atomic.Uint64)) {
	if counter, ok := v.Addr().Interface().(*atomic.Uint64); ok {
		yield(path, counter)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.Anonymous {
				counterFields(path, v.Field(i), yield)
			} else if field.IsExported() {
				counterFields(strings.TrimPrefix(path+"."+field.Name, "."), v.Field(i), yield)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			counterFields(fmt.Sprintf("%s[%d]", path, i), v.Index(i), yield)
		}
	}
}

// counted is what a field of Counters is known by.
type counted struct{ key, series string }

// countedFields sets each field of Counters in turn to 1, and returns by its path the key and the
// series that change.
func countedFields(t *testing.T) map[string]counted {
	t.Helper()
	counting.Do(func() { fields = countFields(t) })
	assert.Assert(t, fields != nil)
	return fields
}

var (
	counting sync.Once
	fields   map[string]counted // as all tests see them
)

func countFields(t *testing.T) map[string]counted {
	t.Helper()
	source := new(fixedSource)
	zero := gatherValues(t, source)
	fields := make(map[string]counted)
	counterFields("", reflect.ValueOf(&source.counters).Elem(), func(path string, counter *atomic.Uint64) {
		counter.Store(1)
		defer counter.Store(0)
		var keys, changed []string
		source.counters.Each(func(key string, n uint64) {
			if n != 0 {
				keys = append(keys, key)
			}
		})
		for name, value := range gatherValues(t, source) {
			if value != zero[name] {
				changed = append(changed, name)
			}
		}
		fields[path] = counted{strings.Join(keys, " "), strings.Join(changed, " ")}
	})
	return fields
}

// Every counter has a key in logs and a series, and no two have the same.
func TestCountersAreCollected(t *testing.T) {
	without := map[string]counted{
		"Feed.Records":                         {},
		"Errors[0]":                            {}, // ReasonNone
		"Sampling.Unwinding.InlinedUnknown[0]": {}, // of no reason
		"SweepNs":                              {series: "correlator_sweep_seconds_total"},
		"Sampling.WalksUnaskedNS":              {series: "correlator_waits_without_stack_seconds_total"},
		"Sampling.Walks":                       {}, // the sum of Sampling.Waits
	}
	keys, series := make(map[string]string), make(map[string]string)
	for path, c := range countedFields(t) {
		if want, ok := without[path]; ok {
			assert.Check(t, c == want, "%s is %+v, want %+v", path, c, want)
			continue
		}
		assert.Check(t, c.key != "" && c.series != "", "%s has the key %q and the series %q", path, c.key, c.series)
		assert.Check(t, keys[c.key] == "" && series[c.series] == "",
			"%s is %+v, as are %s and %s", path, c, keys[c.key], series[c.series])
		keys[c.key], series[c.series] = path, path
	}
	assert.Check(t, len(keys) >= 100, "%d counters", len(keys))
}

// The values of labels are the words that the packages have for what they count.
func TestCollectorLabels(t *testing.T) {
	words := func(n int, word func(i int) string) (words []string) {
		for i := range n {
			words = append(words, word(i))
		}
		slices.Sort(words)
		return words
	}
	outcomes := words(int(process.NumOutcomes), func(i int) string { return process.SampleOutcome(i).String() })
	reasons := words(int(process.NumReasons)-1, func(i int) string { return process.Reason(i + 1).String() })
	got := make(map[string][]string)
	for _, family := range gather(t, new(fixedSource)) {
		for _, metric := range family.Metric {
			for _, pair := range metric.Label {
				label := strings.TrimPrefix(family.GetName(), "correlator_") + " " + pair.GetName()
				got[label] = append(got[label], pair.GetValue())
			}
		}
	}
	for label, want := range map[string][]string{
		"process_errors_total reason":  reasons,
		"processes_in_error reason":    reasons,
		"processes_not_sampled reason": slices.Sorted(slices.Values(NotSampledReasons())),
		"processes state":              {"attached", "error", "filtered", "no-storage", "ready", "registered"},
		"samples_total outcome":        outcomes,
		"samples_total source":         {"fed", "sampled"},
		"kernel_samples_total outcome": words(len(bpf.Counters{}),
			func(i int) string { return bpf.KernelOutcome(i).String() }),
		"samples_dropped_total reason": words(int(messaging.NumDropReasons),
			func(i int) string { return messaging.DropReason(i).String() }),
		"feed_datagrams_refused_total reason": words(int(feed.NumRefusalReasons),
			func(i int) string { return feed.RefusalReason(i).String() }),
	} {
		slices.Sort(got[label])
		values := slices.Compact(got[label])
		assert.Check(t, slices.Equal(values, want), "%s is %q, want %q", label, values, want)
	}
}

// What is collected beside counters is the agent's configuration and state.
func TestCollectorState(t *testing.T) {
	got := gatherValues(t, &fixedSource{
		config: Config{SamplesPerSecond: 20, SamplesDelay: 300 * time.Millisecond, MaxProcesses: 4096,
			Unwinder: sampling.FullUnwinder},
		census: Census{
			Processes: map[process.State]int{process.StateRegistered: 102, process.StateError: 3},
			InError:   map[string]int{"denied": 3},
			Silent:    map[string]int{"noexec": 2},
			Waiting:   7, LiveEvents: true,
		},
		notSampled: map[string]int{"unresolved": 200},
		unwinding: &sampling.UnwindingStatus{Loaded: true, Unwound: 99, Native: 4, Waiting: 3,
			Engine: &unwind.Status{Unreaped: 2, Quarantined: make([]unwind.Quarantine, 1)}},
		cost: cost.Cost{Processes: 3, PSSBytes: 45 << 20, CPUSeconds: 12.5},
	})
	for series, want := range map[string]float64{
		`correlator_config_samples_per_second`:                    20,
		`correlator_config_samples_delay_seconds`:                 0.3,
		`correlator_config_max_processes`:                         4096,
		`correlator_healthy`:                                      1,
		`correlator_ready`:                                        0,
		`correlator_processes{state="registered"}`:                102,
		`correlator_processes{state="error"}`:                     3,
		`correlator_processes{state="filtered"}`:                  0,
		`correlator_processes_in_error{reason="denied"}`:          3,
		`correlator_processes_in_error{reason="socket_full"}`:     0,
		`correlator_processes_not_sampled{reason="unresolved"}`:   200,
		`correlator_processes_silent{reason="noexec"}`:            2,
		`correlator_processes_silent{reason="musl"}`:              0,
		`correlator_samples_waiting`:                              7,
		`correlator_live_events_up`:                               1,
		`correlator_config_unwinder{unwinder="full"}`:             1,
		`correlator_config_unwinder{unwinder="auto"}`:             0,
		`correlator_unwinding_up`:                                 1,
		`correlator_unwinding_processes{stacks="unwound"}`:        99,
		`correlator_unwinding_processes{stacks="native"}`:         4,
		`correlator_unwinding_processes{stacks="frame_pointers"}`: 3,
		`correlator_unwinding_processes_quarantined`:              1,
		`correlator_unwinding_workers_hung`:                       2,
		`correlator_cpu_seconds_total`:                            12.5,
		`correlator_memory_pss_bytes`:                             45 << 20,
	} {
		value, ok := got[series]
		assert.Check(t, ok && value == want, "%s is %v (collected: %v), want %v", series, value, ok, want)
	}
	without := gatherValues(t, new(fixedSource))
	for _, series := range []string{`correlator_memory_pss_bytes`, `correlator_waits_up`} {
		_, ok := without[series]
		assert.Check(t, !ok, "%s, which is not known", series)
	}
	for waits, want := range map[sampling.WaitsStatus]float64{{}: 0, {Kept: true}: 0, {Kept: true, Stacks: true}: 1} {
		value, ok := gatherValues(t, &fixedSource{waits: &waits})[`correlator_waits_up`]
		assert.Check(t, ok && value == want, "%+v: %v (collected: %v)", waits, value, ok)
	}
}

// The series do not depend on what the processes do.
func TestCollectorSeriesAreFixed(t *testing.T) {
	want := slices.Sorted(maps.Keys(gatherValues(t, new(fixedSource))))
	got := slices.Sorted(maps.Keys(gatherValues(t, &fixedSource{
		census: Census{
			Processes: map[process.State]int{process.StateReady: 1, "an unknown state": 1},
			InError:   map[string]int{"reason \xff": 1},
		},
		notSampled: map[string]int{"an unknown reason": 1},
	})))
	assert.Check(t, slices.Equal(got, want), "series %q, and without processes %q", got, want)
	assert.Check(t, len(want) <= 300, "%d series", len(want))
}

// metricNames returns the names of the metrics of counters, by key.
func metricNames(t *testing.T) map[string]string {
	t.Helper()
	names := make(map[string]string)
	for _, c := range countedFields(t) {
		names[c.key], _, _ = strings.Cut(c.series, "{")
	}
	// Package messaging does not export the fields of these.
	for _, key := range []string{"samples_delay_missed_overdue", "samples_delay_missed_lost"} {
		names[key] = "correlator_samples_delay_missed_total"
	}
	return names
}

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	metricLine = regexp.MustCompile("(?m)^- `(correlator_[a-z_]+)(?:{[a-z,]*})?`(?: \\(([^)]*)\\))?:")
)

// docs/metrics.md has the keys of counters in logs that are not the names of their metrics: "looks", or
// "trouble_…" when the key ends with the label.
func TestKeysInMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	assert.NilError(t, err)
	documented := make(map[string][]string) // keys, by metric
	for _, line := range metricLine.FindAllStringSubmatch(string(page), -1) {
		name := strings.TrimSuffix(strings.TrimPrefix(line[1], "correlator_"), "_total")
		documented[line[1]] = append(documented[line[1]], name)
		for _, key := range quoted.FindAllStringSubmatch(line[2], -1) {
			documented[line[1]] = append(documented[line[1]], strings.TrimSuffix(key[1], "_…"))
		}
	}
	for key, metric := range metricNames(t) {
		keys := documented[metric]
		if len(keys) > 1 {
			keys = keys[1:]
		}
		ok := slices.ContainsFunc(keys, func(k string) bool { return key == k || strings.HasPrefix(key, k+"_") })
		assert.Check(t, key == "" || metric == "" || ok, "counter %s is %s, documented as %q", key, metric, keys)
	}
}

// docs/operations.md has the metric beside each reason that is a counter of the agent.
func TestReasonsInOperationsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	assert.NilError(t, err)
	_, table, found := strings.Cut(string(page), "\nOf the agent itself, in the `reason` of log lines")
	assert.Assert(t, found, "no table of the agent's own reasons")
	table, _, _ = strings.Cut(table, "\n## ")
	names := metricNames(t)
	rows := regexp.MustCompile("(?m)^\\| (`[^|]*) \\| `([a-z_]+)[^|]* \\|").FindAllStringSubmatch(table, -1)
	for _, row := range rows {
		for _, reason := range quoted.FindAllStringSubmatch(row[1], -1) {
			assert.Check(t, names[reason[1]] == row[2],
				"%s has the metric %s, documented is %s", reason[1], names[reason[1]], row[2])
		}
	}
	assert.Check(t, len(rows) != 0, "the table is empty")
}
