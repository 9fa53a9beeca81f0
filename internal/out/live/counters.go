package live

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/dots/broker"
	"correlator/internal/host/metric"
)

// counters counts what is published, and what is not.
type counters struct {
	refused            atomic.Uint64 // changes
	connected          atomic.Int64  // 1: to the other broker
	connectionFailures atomic.Uint64
	timelinesFailed    atomic.Uint64
}

// Collect implements prometheus.Collector. The metrics are the same ones each time.
func (l *Live) Collect(metrics chan<- prometheus.Metric) {
	m := metric.Sender{To: metrics, Prefix: "correlator_live_"}
	lost := l.tracker.lost()
	for what, n := range lost.samples {
		m.Counter("samples_untracked_total", "CPU samples not shown because a table was full, by table.", n,
			"of", untrackedNames[what])
	}
	m.Counter("threads_untracked_total",
		"Threads waiting in a transaction that are not shown; each reading counts.", lost.readings)
	for of, n := range map[string]uint64{"account": lost.accounts, "stack": lost.waits} {
		m.Counter("waits_untracked_total", "Accounts of threads, and stacks of waits, not shown for lack of room.", n,
			"of", of)
	}
	m.Counter("changes_refused_total", "Object changes not accepted by the broker; each try counts.",
		l.counters.refused.Load())
	m.Counter("timelines_failed_total", "Timelines not made for lack of time or during a query; each try counts.",
		l.counters.timelinesFailed.Load())
	for reason, n := range l.names.Unnamed {
		m.Counter("samples_unnamed_total", "CPU samples and waits shown without some function names.", n, "reason", reason)
	}
	if l.broker != nil {
		c := l.broker.Counters()
		m.Gauge("guests", "Connected guests of the embedded broker.", c.Guests)
		m.Counter("connections_total", "Connections accepted by the embedded broker.", c.Accepted)
		for _, reason := range broker.Reasons() {
			m.Counter("connections_closed_total", "Guests' connections closed.", c.Closed[reason],
				"reason", label(reason))
		}
		m.Gauge("objects", "Objects in the embedded broker.", c.Objects)
		m.Gauge("bytes", "Memory of objects and pending output.", c.CacheBytes+c.QueuedBytes)
		m.Counter("sent_bytes_total", "Bytes sent to guests.", c.SentBytes)
	}
	if l.config.Connect != "" {
		m.Gauge("connected", "1 while connected to the broker of --live-connect.", int(l.counters.connected.Load()))
		m.Counter("connection_failures_total", "Failed or ended connections to the broker of --live-connect.",
			l.counters.connectionFailures.Load())
	}
}

// label returns a reason as a label's value.
func label(r broker.Reason) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(r.String())
}

// lost is what there was no room for: samples by what there were too many of, readings of threads that wait.
type lost struct {
	samples                   [numUntracked]uint64
	readings, accounts, waits uint64
}

func (t *Tracker) lost() lost {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lost{t.untracked, t.unshown, t.unaccounted, t.unwaited}
}
