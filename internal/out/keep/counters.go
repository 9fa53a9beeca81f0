package keep

import "github.com/prometheus/client_golang/prometheus"

// metricDescs describes what a Keep counts.
type metricDescs struct {
	samples, kept, evicted, expired, lost, unnamed, bytes, transactions *prometheus.Desc
}

func newMetricDescs() metricDescs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("correlator_keep_"+name, help, labels, nil)
	}
	return metricDescs{
		samples: desc("samples_total", "CPU samples kept for correlator explain."),
		kept:    desc("samples", "CPU samples kept now."),
		evicted: desc("samples_evicted_total",
			"CPU samples evicted early for lack of room."),
		expired: desc("samples_expired_total", "CPU samples that reached their age limit."),
		lost:    desc("samples_lost_total", "CPU samples in transactions that were not kept.", "reason"),
		unnamed: desc("samples_unnamed_total",
			"CPU samples kept without some function names.", "reason"),
		bytes:        desc("bytes", "Memory of kept samples."),
		transactions: desc("transactions", "Transactions with kept samples."),
	}
}

// Describe implements prometheus.Collector.
func (k *Keep) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{k.descs.samples, k.descs.kept, k.descs.evicted, k.descs.expired,
		k.descs.lost, k.descs.unnamed, k.descs.bytes, k.descs.transactions} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. The metrics are the same ones each time.
func (k *Keep) Collect(metrics chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, n float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, kind, n, labels...)
	}
	stats := k.store.Stats()
	send(k.descs.samples, prometheus.CounterValue, float64(stats.Added))
	send(k.descs.kept, prometheus.GaugeValue, float64(stats.Samples))
	send(k.descs.evicted, prometheus.CounterValue, float64(stats.Evicted))
	send(k.descs.expired, prometheus.CounterValue, float64(stats.Expired))
	for reason, n := range stats.Lost {
		send(k.descs.lost, prometheus.CounterValue, float64(n), lostNames[reason])
	}
	for reason, n := range k.names.Unnamed {
		send(k.descs.unnamed, prometheus.CounterValue, float64(n), reason)
	}
	send(k.descs.bytes, prometheus.GaugeValue, float64(stats.Bytes))
	send(k.descs.transactions, prometheus.GaugeValue, float64(stats.Transactions))
}
