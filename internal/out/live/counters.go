package live

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/dots/broker"
)

// counters counts what is published, and what is not.
type counters struct {
	refused            atomic.Uint64 // changes
	connected          atomic.Int64  // 1: to the other broker
	connectionFailures atomic.Uint64
}

// metricDescs describes what a Live counts.
type metricDescs struct {
	untracked, unshown, refused, unnamed *prometheus.Desc

	// Of the embedded broker.
	guests, connections, closed, objects, bytes, sent *prometheus.Desc

	// Of the connection to another one.
	connected, connectionFailures *prometheus.Desc
}

func newMetricDescs() metricDescs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("correlator_live_"+name, help, labels, nil)
	}
	return metricDescs{
		untracked: desc("samples_untracked_total",
			"CPU samples not shown because a table was full, by table.", "of"),
		unshown: desc("threads_untracked_total",
			"Threads waiting in a transaction that are not shown; each reading counts."),
		refused: desc("changes_refused_total",
			"Object changes not accepted by the broker; each try counts."),
		unnamed: desc("samples_unnamed_total",
			"CPU samples shown without some function names.", "reason"),
		guests:      desc("guests", "Connected guests of the embedded broker."),
		connections: desc("connections_total", "Connections accepted by the embedded broker."),
		closed:      desc("connections_closed_total", "Guests' connections closed.", "reason"),
		objects:     desc("objects", "Objects in the embedded broker."),
		bytes:       desc("bytes", "Memory of objects and pending output."),
		sent:        desc("sent_bytes_total", "Bytes sent to guests."),
		connected:   desc("connected", "1 while connected to the broker of --live-connect."),
		connectionFailures: desc("connection_failures_total",
			"Failed or ended connections to the broker of --live-connect."),
	}
}

// Describe implements prometheus.Collector.
func (l *Live) Describe(descs chan<- *prometheus.Desc) {
	descs <- l.descs.untracked
	descs <- l.descs.unshown
	descs <- l.descs.refused
	descs <- l.descs.unnamed
	if l.broker != nil {
		descs <- l.descs.guests
		descs <- l.descs.connections
		descs <- l.descs.closed
		descs <- l.descs.objects
		descs <- l.descs.bytes
		descs <- l.descs.sent
	}
	if l.config.Connect != "" {
		descs <- l.descs.connected
		descs <- l.descs.connectionFailures
	}
}

// Collect implements prometheus.Collector. The metrics are the same ones each time.
func (l *Live) Collect(metrics chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(desc *prometheus.Desc, n int) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
	untracked, unshown := l.tracker.lost()
	for what, n := range untracked {
		counter(l.descs.untracked, n, untrackedNames[what])
	}
	counter(l.descs.unshown, unshown)
	counter(l.descs.refused, l.counters.refused.Load())
	for reason, n := range l.names.Unnamed {
		counter(l.descs.unnamed, n, reason)
	}
	if l.broker != nil {
		c := l.broker.Counters()
		gauge(l.descs.guests, c.Guests)
		counter(l.descs.connections, c.Accepted)
		for _, reason := range broker.Reasons() {
			counter(l.descs.closed, c.Closed[reason], label(reason))
		}
		gauge(l.descs.objects, c.Objects)
		gauge(l.descs.bytes, c.CacheBytes+c.QueuedBytes)
		counter(l.descs.sent, c.SentBytes)
	}
	if l.config.Connect != "" {
		gauge(l.descs.connected, int(l.counters.connected.Load()))
		counter(l.descs.connectionFailures, l.counters.connectionFailures.Load())
	}
}

// label returns a reason as a label's value.
func label(r broker.Reason) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(r.String())
}

// lost returns how many samples there was no room for, by what there were too many of, and how many
// readings of threads that wait.
func (t *Tracker) lost() (samples [numUntracked]uint64, readings uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.untracked, t.unshown
}
