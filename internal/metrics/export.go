package metrics

import (
	"slices"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/terminal"
	"correlator/otlp"
)

// Export is what goes out and comes in by OTLP.
type Export interface {
	// Families is every family that there may be, always the same.
	Families() []otlp.Family
	// Each calls add with every metric, the same ones each time. It is safe for concurrent use.
	Each(add func(otlp.Reading))
}

// exportPrefix is in front of the names of families.
const exportPrefix = "otlp_"

// ExportCollector exports the readings of an Export.
type ExportCollector struct {
	export Export
	descs  map[string]*prometheus.Desc // by the name of the family
}

// NewExportCollector returns a Collector of the readings of export.
func NewExportCollector(export Export) *ExportCollector {
	c := &ExportCollector{export: export, descs: make(map[string]*prometheus.Desc)}
	for _, f := range export.Families() {
		c.descs[f.Name] = prometheus.NewDesc("correlator_"+exportPrefix+f.Name, f.Help, f.Labels, nil)
	}
	return c
}

// Describe sends the descriptions of all families, those without metrics included.
func (c *ExportCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		descs <- desc
	}
}

// Collect sends all metrics, as of now.
func (c *ExportCollector) Collect(metrics chan<- prometheus.Metric) {
	c.export.Each(func(r otlp.Reading) {
		desc, ok := c.descs[r.Family.Name] // a test knows that all have one
		if !ok {
			return
		}
		labels := texts(r.Labels)
		switch r.Family.Kind {
		case otlp.Distribution:
			metrics <- histogram(desc, &r, labels)
		case otlp.Gauge:
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, r.Value, labels...)
		default:
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, r.Value, labels...)
		}
	})
}

// texts are the values of labels as Prometheus can have them: the path in an endpoint need not be UTF-8.
func texts(labels []string) []string {
	for i, label := range labels {
		if !utf8.ValidString(label) {
			labels = slices.Clone(labels)
			labels[i] = terminal.Escape(label)
		}
	}
	return labels
}

// histogram is one whose buckets hold everything that is not above their bounds.
func histogram(desc *prometheus.Desc, r *otlp.Reading, labels []string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(r.Bounds))
	var n uint64
	for i, in := range r.Counts {
		n += in
		if i < len(r.Bounds) {
			buckets[r.Bounds[i]] = n
		}
	}
	return prometheus.MustNewConstHistogram(desc, n, r.Sum, buckets, labels...)
}
