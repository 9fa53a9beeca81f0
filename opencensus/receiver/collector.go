package receiver

import (
	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/host/metric"
	"correlator/opencensus/spans"
	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
)

// Collect implements prometheus.Collector: the same series each time, whether their values are 0 or
// not. The values of messages are of one moment, and so are those of measures and views.
func (r *Receiver) Collect(to chan<- prometheus.Metric) {
	m := metric.Sender{To: to, Prefix: "correlator_opencensus_"}
	c := r.counters.snapshot()
	r.collectConnections(m)
	c.sendMessages(m)
	for queue, name := range [numQueues]string{statsQueue: "stats", traceQueue: "traces"} {
		m.Gauge("waiting_messages", "Messages waiting to be processed.", r.queues[queue].length(), "queue", name)
	}
	m.Gauge("buffered_bytes", "Bytes of waiting and incomplete messages.", r.budget.used())
	c.sendSpans(m)
	r.collectStats(m)
	m.Counter("exported_points_total", "Data points accepted by destinations' queues.", c.points.exported)
	for why, n := range c.points.refused {
		m.Counter("refused_points_total", "Data points not accepted by destinations' queues.", n,
			"reason", Refusal(why).String())
	}
	m.Counter("panics_total", "Defects of the agent that cost a message or a connection.", r.counters.panics.Load())
}

func (r *Receiver) collectConnections(m metric.Sender) {
	conns := r.listener.conns.Counts()
	m.Gauge("connections", "Open connections.", conns.Open)
	m.Counter("connections_total", "Connections accepted.", conns.Added)
	for reason, n := range map[string]uint64{
		"made_room": conns.MadeRoom, "refused": conns.Refused, "not_protocol": r.counters.notProtocol.Load(),
	} {
		m.Counter("closed_connections_total", "Connections closed by the agent.", n, "reason", reason)
	}
	m.Counter("accept_errors_total", "Failures to accept a connection.", r.listener.accepting.Failures().Count)
}

// typeName returns the value of the label type.
func typeName(index int) string {
	if index == 0 {
		return "unknown"
	}
	return wire.TypeAt(index).String()
}

func (c *counts) sendMessages(m metric.Sender) {
	for i := range c.messages {
		message, name := &c.messages[i], typeName(i)
		m.Counter("messages_total", "Messages received, also in part.", message.received, "type", name)
		m.Counter("payload_bytes_total", "Payload bytes of complete messages.", message.bytes, "type", name)
		m.Counter("processed_messages_total", "Messages processed.", message.processed, "type", name)
		for why, n := range message.dropped {
			m.Counter("dropped_messages_total", "Messages not processed.", n,
				"type", name, "reason", Drop(why).String())
		}
	}
	m.Counter("skipped_bytes_total", "Bytes skipped in search of a message.", c.skipped)
	m.Counter("client_lost_messages_total", "Messages lost by clients, from gaps in sequence numbers.", c.gaps)
	m.Counter("client_lost_traces_total", "Empty trace exports, which the client could not encode.", c.empty)
	m.Histogram("latency_seconds",
		"Time from the start of sending to complete reception, for clients with a 64-bit clock.",
		latencyBounds, &c.latency)
}

func (c *counts) sendSpans(m metric.Sender) {
	m.Counter("exported_spans_total", "Spans accepted by destinations' queues.", c.spans.exported)
	for why, n := range c.spans.refused {
		m.Counter("refused_spans_total", "Spans not accepted by destinations' queues.", n,
			"reason", Refusal(why).String())
	}
	for why, n := range c.spansDropped {
		m.Counter("dropped_spans_total", "Invalid spans.", n, "reason", spans.DropReason(why).String())
	}
	m.Counter("lost_attributes_total", "Span attributes left out.", c.attributesLost)
	m.Counter("lost_events_total", "Span events whose contents were not sent.", c.eventsLost)
	m.Counter("lost_links_total", "Span links without contents or valid ids.", c.linksLost)
	m.Counter("invalid_parents_total", "Spans exported without their parent, whose id is invalid.", c.badParents)
	m.Counter("unknown_zones_total", "Times in unknown zones, taken as UTC.", c.unknownZones)
}

func (r *Receiver) collectStats(m metric.Sender) {
	c, s := r.stats.Counts(), r.stats.Status()
	m.Counter("measurements_total", "Measurements received.", c.Measurements)
	m.Counter("aggregated_measurements_total", "Measurements aggregated by at least one view.", c.Aggregated)
	for i, n := range c.Lost {
		what, reason := stats.Loss(i).Labels()
		m.Counter("lost_stats_total", "Measures, views and measurements lost or changed.", n,
			"what", what, "reason", reason)
	}
	for result, n := range map[string]uint64{
		"created": c.ViewsCreated, "replaced": c.ViewsReplaced, "known": c.ViewsKnown,
	} {
		m.Counter("registered_views_total",
			"View registrations; rejected ones are in correlator_opencensus_lost_stats_total.", n, "result", result)
	}
	for what, n := range map[string]int{"measures": s.Measures, "views": s.Views, "series": s.Series} {
		m.Gauge("definitions", "Measures, views and series.", n, "what", what)
	}
	m.Gauge("stats_bytes", "Memory of measures, views and series.", s.Memory)
}
