package keep

import (
	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/host/metric"
)

// Collect implements prometheus.Collector. The metrics are the same ones each time.
func (k *Keep) Collect(metrics chan<- prometheus.Metric) {
	m, stats := metric.Sender{To: metrics, Prefix: "correlator_keep_"}, k.store.Stats()
	m.Counter("samples_total", "CPU samples kept for correlator explain.", stats.Added)
	m.Gauge("samples", "CPU samples kept now.", int(stats.Samples))
	m.Counter("samples_evicted_total", "CPU samples evicted early for lack of room.", stats.Evicted)
	m.Counter("samples_expired_total", "CPU samples that reached their age limit.", stats.Expired)
	for reason, n := range stats.Lost {
		m.Counter("samples_lost_total", "CPU samples in transactions that were not kept.", n,
			"reason", lostNames[reason])
	}
	for reason, n := range k.names.Unnamed {
		m.Counter("samples_unnamed_total", "CPU samples kept without some function names.", n, "reason", reason)
	}
	m.Gauge("accounts", "Transactions whose accounts are kept.", stats.Accounts)
	for _, reason := range []reason{goneExpired, goneEvicted} {
		m.Counter("accounts_forgotten_total", "Accounts that are kept no more.",
			stats.AccountsForgotten[reason], "reason", goneNames[reason])
	}
	m.Counter("spans_total", "Spans whose times were kept.", stats.Spans.Added)
	for reason, n := range map[string]uint64{"invalid": stats.Spans.Invalid, "evicted": stats.Spans.Evicted,
		"repeated": stats.Spans.Repeated} {
		m.Counter("spans_lost_total", "Spans whose times were not, or not long.", n, "reason", reason)
	}
	waits := &stats.Waits
	m.Counter("waits_total", "Waits kept with their stack, for correlator explain.", waits.Added)
	m.Gauge("waits", "Waits kept now with their stack.", int(waits.Kept))
	m.Counter("waits_evicted_total", "Waits evicted early for lack of room.", waits.Evicted)
	m.Counter("waits_expired_total", "Waits that reached their age limit.", waits.Expired)
	for reason, n := range waits.Lost {
		m.Counter("waits_lost_total", "Waits in transactions that were not kept.", n, "reason", lostNames[reason])
	}
	m.Counter("untimed_total", "Samples and waits kept without their times.", stats.Untimed)
	m.Gauge("slow_transactions", "Transactions kept by `--keep-slow`.", stats.Slow.Kept)
	m.Counter("slow_transactions_forgotten_total", "Of those, forgotten for lack of room.", stats.Slow.Forgotten)
	m.Gauge("bytes", "Memory of kept samples.", stats.Bytes)
	m.Gauge("transactions", "Transactions with kept samples or accounts.", stats.Transactions)
}
