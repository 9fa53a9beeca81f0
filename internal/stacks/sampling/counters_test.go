package sampling

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"gotest.tools/v3/assert"

	"correlator/internal/host/metric"
	"correlator/profile"
)

// collector collects counters.
type collector struct {
	metric.Unchecked
	c *Counters
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	c.c.Families().Send(metric.Sender{To: to, Prefix: "correlator_"})
}

// The counters of mapped files and frames, which belong to package profile, are collected.
func TestCollectProfileCounters(t *testing.T) {
	files, kernel := new(profile.Files), new(profile.Kernel)
	files.Mappings.Resolved.Store(1)
	files.Mappings.NotOpened.Store(2)
	files.Mappings.NotRead.Store(3)
	files.Mappings.NotELF.Store(4)
	files.Mappings.NotLoaded.Store(5)
	files.Mappings.TooMany.Store(6)
	files.Frames.File.Store(7)
	files.Frames.Anonymous.Store(8)
	files.Frames.Unknown.Store(9)
	kernel.Frames.File.Store(10)
	kernel.Frames.Anonymous.Store(11)
	kernel.Frames.Unknown.Store(12)
	var c Counters
	c.files.Store(files)
	c.kernel.Store(kernel)

	logged := make(map[string]uint64)
	c.Families().Each(func(key string, n uint64) { logged[key] = n })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{c: &c})
	families, err := registry.Gather()
	assert.NilError(t, err)
	collected := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.Metric {
			name := family.GetName()
			for _, pair := range metric.Label {
				name += " " + pair.GetValue()
			}
			collected[name] = metric.GetCounter().GetValue()
		}
	}
	for i, want := range []struct{ key, metric string }{
		{"mappings_resolved", "correlator_mappings_total resolved"},
		{"mappings_not_opened", "correlator_mappings_total not_opened"},
		{"mappings_not_read", "correlator_mappings_total not_read"},
		{"mappings_not_elf", "correlator_mappings_total not_elf"},
		{"mappings_not_loaded", "correlator_mappings_total not_loaded"},
		{"mappings_too_many", "correlator_mappings_total too_many"},
		{"frames_file", "correlator_frames_total file user"}, // labels are sorted by name
		{"frames_anonymous", "correlator_frames_total anonymous user"},
		{"frames_unknown", "correlator_frames_total unknown user"},
		{"kernel_frames_file", "correlator_frames_total file kernel"},
		{"kernel_frames_anonymous", "correlator_frames_total anonymous kernel"},
		{"kernel_frames_unknown", "correlator_frames_total unknown kernel"},
	} {
		n := uint64(i + 1)
		assert.Check(t, logged[want.key] == n && collected[want.metric] == float64(n),
			"%s is %d, %s is %v, want %d", want.key, logged[want.key], want.metric, collected[want.metric], n)
	}
}
