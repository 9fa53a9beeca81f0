// Package metric sends what packages count to Prometheus.
package metric

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/host/terminal"
)

// Unchecked is embedded by collectors whose metrics are described where they are collected.
type Unchecked struct{}

// Describe implements [prometheus.Collector].
func (Unchecked) Describe(chan<- *prometheus.Desc) {}

// Sender sends metrics whose names begin with a prefix. Labels are names and values in turn. A
// metric has the same help and names of labels wherever it is sent.
type Sender struct {
	To     chan<- prometheus.Metric
	Prefix string
	Labels []string // of all metrics, before their own
}

// Counter sends a number that only grows.
func (s Sender) Counter(name, help string, n uint64, labels ...string) {
	s.constant(name, help, prometheus.CounterValue, float64(n), labels)
}

// Seconds sends a duration that only grows, in seconds.
func (s Sender) Seconds(name, help string, d time.Duration, labels ...string) {
	s.constant(name, help, prometheus.CounterValue, d.Seconds(), labels)
}

// Gauge sends a number of the moment.
func (s Sender) Gauge(name, help string, n int, labels ...string) {
	s.constant(name, help, prometheus.GaugeValue, float64(n), labels)
}

// Duration sends a duration of the moment, in seconds.
func (s Sender) Duration(name, help string, d time.Duration, labels ...string) {
	s.constant(name, help, prometheus.GaugeValue, d.Seconds(), labels)
}

// State sends 1 for what is so, else 0.
func (s Sender) State(name, help string, is bool, labels ...string) {
	n := 0
	if is {
		n = 1
	}
	s.Gauge(name, help, n, labels...)
}

// Histogram sends a histogram with its bounds.
func (s Sender) Histogram(name, help string, bounds []float64, h *Histogram, labels ...string) {
	cumulative, n := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, bound := range bounds {
		n += h.counts[i]
		cumulative[bound] = n
	}
	desc, values := s.desc(name, help, labels)
	s.To <- prometheus.MustNewConstHistogram(desc, n+h.counts[len(bounds)], h.sum, cumulative, values...)
}

func (s Sender) constant(name, help string, kind prometheus.ValueType, value float64, labels []string) {
	desc, values := s.desc(name, help, labels)
	s.To <- prometheus.MustNewConstMetric(desc, kind, value, values...)
}

// escape makes a text that somebody else chose printable: what scrapes is not what reads it. Texts
// that differ still do, or the same series would be there twice, and no scrape would succeed.
func escape(text string) string {
	if printable := terminal.Escape(text); printable == text && !strings.Contains(text, `\`) {
		return text
	}
	return terminal.Escape(strings.ReplaceAll(text, `\`, `\\`))
}

// descs has the description of each metric by its name, with which it always has the same labels.
var descs sync.Map

func (s Sender) desc(name, help string, labels []string) (desc *prometheus.Desc, values []string) {
	values = make([]string, 0, (len(s.Labels)+len(labels))/2)
	for _, pairs := range [][]string{s.Labels, labels} {
		for i := 1; i < len(pairs); i += 2 {
			values = append(values, escape(pairs[i]))
		}
	}
	name = s.Prefix + name
	if known, ok := descs.Load(name); ok {
		return known.(*prometheus.Desc), values
	}
	var names []string
	for _, pairs := range [][]string{s.Labels, labels} {
		for i := 0; i < len(pairs); i += 2 {
			names = append(names, pairs[i])
		}
	}
	desc = prometheus.NewDesc(name, help, names, nil)
	descs.Store(name, desc)
	return desc, values
}

// MaxBuckets is how many bounds a Histogram may have.
const MaxBuckets = 12

// Histogram is a distribution of values by bounds that its owner knows.
type Histogram struct {
	counts [MaxBuckets + 1]uint64 // the one behind those of the bounds is beyond them
	sum    float64
}

// Observe adds a value.
func (h *Histogram) Observe(bounds []float64, v float64) {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// Add adds all values of another one with the same bounds.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.sum += other.sum
}

// Families are counters, those of one metric after the other.
type Families []family

// family is the counters of one metric.
type family struct {
	name, key, help string
	series          Series
	fixed           []string // labels that all have
}

// Series is counters by the value of a label; without a label there is one.
type Series struct {
	label  string
	values []value
}

type value struct {
	label string
	n     uint64
}

// By returns a series for each value of T that has a name.
func By[T interface {
	~int | ~uint8
	String() string
}](label string, counts []atomic.Uint64) Series {
	s := Label(label)
	for i := range counts {
		if name := T(i).String(); name != "" {
			s = s.With(name, counts[i].Load())
		}
	}
	return s
}

// Just returns a series of one counter.
func Just(n uint64) Series { return Label("").With("", n) }

// Label returns a series without values.
func Label(name string) Series { return Series{label: name} }

// With adds a counter.
func (s Series) With(of string, n uint64) Series {
	s.values = append(s.values, value{of, n})
	return s
}

// Add adds the counters of a metric, which is called name_total. Their keys in logs and in the
// agent's status are the older key if there is one, else the name, followed by the value of the
// label.
func (f *Families) Add(name, olderKey string, series Series, help string, fixed ...string) {
	*f = append(*f, family{name, cmp.Or(olderKey, name), help, series, fixed})
}

// One adds a single counter.
func (f *Families) One(name, olderKey string, n *atomic.Uint64, help string) {
	f.Add(name, olderKey, Just(n.Load()), help)
}

// Each calls add with every counter by its key.
func (f Families) Each(add func(key string, n uint64)) {
	for _, family := range f {
		for _, v := range family.series.values {
			key := family.key
			if family.series.label != "" {
				key += "_" + v.label
			}
			add(key, v.n)
		}
	}
}

// Send sends every counter.
func (f Families) Send(s Sender) {
	for _, family := range f {
		for _, v := range family.series.values {
			labels := family.fixed
			if family.series.label != "" {
				labels = append(slices.Clip(labels), family.series.label, v.label)
			}
			s.Counter(family.name+"_total", family.help, v.n, labels...)
		}
	}
}
