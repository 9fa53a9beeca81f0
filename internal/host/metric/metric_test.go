package metric

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"
)

// collector sends what a function sends.
type collector struct {
	Unchecked
	send func(Sender)
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	c.send(Sender{To: to, Prefix: "x_", Labels: []string{"who", "me"}})
}

// gather returns what is sent: the metrics by name, and by the values of labels in the order of
// their names.
func gather(t *testing.T, send func(Sender)) map[string]*dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{send: send})
	families, err := registry.Gather()
	assert.NilError(t, err)
	all := make(map[string]*dto.Metric)
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName() + " " + family.GetHelp()
			for _, pair := range m.Label {
				name += " " + pair.GetName() + "=" + pair.GetValue()
			}
			all[name] = m
		}
	}
	return all
}

// Each kind of metric arrives with its name, help, labels and value.
func TestSend(t *testing.T) {
	bounds := []float64{1, 10}
	var h, more Histogram
	for _, v := range []float64{1, 2, 11, 100} {
		h.Observe(bounds, v)
	}
	more.Observe(bounds, 0.5)
	h.Add(&more)
	got := gather(t, func(s Sender) {
		s.Counter("a_total", "Help.", 7, "label", "one")
		s.Counter("a_total", "Help.", 8, "label", "other")
		s.Seconds("b_total", "Help.", 1500*time.Millisecond)
		s.Gauge("c", "Help.", -1)
		s.Duration("d", "Help.", 250*time.Millisecond)
		s.State("e", "Help.", true)
		s.State("f", "Help.", false)
		s.Histogram("h", "Help.", bounds, &h)
	})
	assert.Check(t, got["x_a_total Help. label=one who=me"].Counter.GetValue() == 7, got)
	assert.Check(t, got["x_a_total Help. label=other who=me"].Counter.GetValue() == 8, got)
	assert.Check(t, got["x_b_total Help. who=me"].Counter.GetValue() == 1.5, got)
	assert.Check(t, got["x_c Help. who=me"].Gauge.GetValue() == -1, got)
	assert.Check(t, got["x_d Help. who=me"].Gauge.GetValue() == 0.25, got)
	assert.Check(t, got["x_e Help. who=me"].Gauge.GetValue() == 1, got)
	assert.Check(t, got["x_f Help. who=me"].Gauge.GetValue() == 0, got)
	sent := got["x_h Help. who=me"].Histogram
	assert.Check(t, sent.GetSampleCount() == 5 && sent.GetSampleSum() == 114.5 && len(sent.Bucket) == 2 &&
		sent.Bucket[0].GetCumulativeCount() == 2 && sent.Bucket[1].GetCumulativeCount() == 3, sent)
}

type color int

func (c color) String() string { return [...]string{"", "red", "blue"}[c] }

// Counters have a key, the older one if there is one, and a metric; the one for a value without a
// name has neither.
func TestFamilies(t *testing.T) {
	var n atomic.Uint64
	n.Store(3)
	colors := make([]atomic.Uint64, 3)
	for i := range colors {
		colors[i].Store(uint64(10 + i))
	}
	var f Families
	f.One("plain", "", &n, "Help.")
	f.One("renamed", "before", &n, "Help.")
	f.Add("colors", "", By[color]("color", colors), "Help.")
	f.Add("sides", "left_sides", Label("end").With("up", 1).With("down", 2), "Help.", "side", "left")
	f.Add("sides", "right_sides", Label("end").With("up", 4), "Help.", "side", "right")
	logged := make(map[string]uint64)
	f.Each(func(key string, n uint64) { logged[key] = n })
	assert.DeepEqual(t, logged, map[string]uint64{"plain": 3, "before": 3, "colors_red": 11, "colors_blue": 12,
		"left_sides_up": 1, "left_sides_down": 2, "right_sides_up": 4})
	sent := make(map[string]uint64)
	for name, m := range gather(t, f.Send) {
		sent[name] = uint64(m.Counter.GetValue())
	}
	assert.DeepEqual(t, sent, map[string]uint64{
		"x_plain_total Help. who=me": 3, "x_renamed_total Help. who=me": 3,
		"x_colors_total Help. color=red who=me": 11, "x_colors_total Help. color=blue who=me": 12,
		"x_sides_total Help. end=up side=left who=me": 1, "x_sides_total Help. end=down side=left who=me": 2,
		"x_sides_total Help. end=up side=right who=me": 4})
}

// Values of labels are printable, and those that differ still do: else no scrape would succeed.
func TestLabelsArePrintable(t *testing.T) {
	values := map[string]string{"a\x1b[2J": `a\x1b[2J`, `a\x1b[2J`: `a\\x1b[2J`, "\xff": `\xff`, `\xff`: `\\xff`, "ä b": "ä b", "": "",
		"\u202e": `\u202e`, "a\nb": `a\nb`}
	got := gather(t, func(s Sender) {
		for value := range values {
			s.Gauge("a", "Help.", 1, "label", value)
		}
	})
	for value, want := range values {
		assert.Check(t, got["x_a Help. label="+want+" who=me"] != nil, "%q: %v", value, got)
	}
}
