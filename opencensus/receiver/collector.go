package receiver

import (
	"github.com/prometheus/client_golang/prometheus"

	"correlator/opencensus/spans"
	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("correlator_opencensus_"+name, help, labels, nil)
}

// descs are the descriptions of all metrics.
var descs = []*prometheus.Desc{
	descConnections, descConnectionsTotal, descClosed, descAcceptErrors,
	descMessages, descPayload, descProcessed, descDropped, descWaiting, descBuffered, descSkipped,
	descClientLost, descClientLostTraces, descLatency,
	descSpans, descSpansDropped, descSpansRefused, descAttributesLost, descEventsLost, descLinksLost,
	descParents, descZones,
	descMeasurements, descAggregated, descStatsLost, descViews, descDefined, descStatsMemory,
	descPoints, descPointsRefused, descPanics,
}

var (
	descConnections      = describe("connections", "Open connections.")
	descConnectionsTotal = describe("connections_total", "Connections accepted.")
	descClosed           = describe("closed_connections_total",
		"Connections closed by the agent.",
		"reason")
	descAcceptErrors = describe("accept_errors_total", "Failures to accept a connection.")

	descMessages = describe("messages_total",
		"Messages received, also in part.", "type")
	descPayload   = describe("payload_bytes_total", "Payload bytes of complete messages.", "type")
	descProcessed = describe("processed_messages_total", "Messages processed.", "type")
	descDropped   = describe("dropped_messages_total",
		"Messages not processed.", "type", "reason")
	descWaiting  = describe("waiting_messages", "Messages waiting to be processed.", "queue")
	descBuffered = describe("buffered_bytes", "Bytes of waiting and incomplete messages.")
	descSkipped  = describe("skipped_bytes_total", "Bytes skipped in search of a message.")

	descClientLost = describe("client_lost_messages_total",
		"Messages lost by clients, from gaps in sequence numbers.")
	descClientLostTraces = describe("client_lost_traces_total",
		"Empty trace exports, which the client could not encode.")
	descLatency = describe("latency_seconds",
		"Time from the start of sending to complete reception, for clients with a 64-bit clock.")

	descSpans        = describe("exported_spans_total", "Spans accepted by destinations' queues.")
	descSpansDropped = describe("dropped_spans_total", "Invalid spans.", "reason")
	descSpansRefused = describe("refused_spans_total",
		"Spans not accepted by destinations' queues.", "reason")
	descAttributesLost = describe("lost_attributes_total", "Span attributes left out.")
	descEventsLost     = describe("lost_events_total", "Span events whose contents were not sent.")
	descLinksLost      = describe("lost_links_total", "Span links without contents or valid ids.")
	descParents        = describe("invalid_parents_total",
		"Spans exported without their parent, whose id is invalid.")
	descZones = describe("unknown_zones_total", "Times in unknown zones, taken as UTC.")

	descMeasurements = describe("measurements_total", "Measurements received.")
	descAggregated   = describe("aggregated_measurements_total",
		"Measurements aggregated by at least one view.")
	descStatsLost = describe("lost_stats_total",
		"Measures, views and measurements lost or changed.", "what", "reason")
	descViews = describe("registered_views_total",
		"View registrations; rejected ones are in correlator_opencensus_lost_stats_total.", "result")
	descDefined     = describe("definitions", "Measures, views and series.", "what")
	descStatsMemory = describe("stats_bytes", "Memory of measures, views and series.")

	descPoints        = describe("exported_points_total", "Data points accepted by destinations' queues.")
	descPointsRefused = describe("refused_points_total",
		"Data points not accepted by destinations' queues.", "reason")
	descPanics = describe("panics_total", "Defects of the agent that cost a message or a connection.")
)

// Describe sends the descriptions of all metrics. It may be called on a nil Receiver.
func (*Receiver) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect sends every metric: the same series each time, whether their values are 0 or not. The
// values of messages are of one moment, and so are those of measures and views.
func (r *Receiver) Collect(to chan<- prometheus.Metric) {
	m := metrics(to)
	c := r.counters.snapshot()
	r.collectConnections(m)
	collectMessages(m, &c)
	for queue, name := range [numQueues]string{statsQueue: "stats", traceQueue: "traces"} {
		m.gauge(descWaiting, r.queues[queue].length(), name)
	}
	m.gauge(descBuffered, r.budget.used())
	collectSpans(m, &c)
	r.collectStats(m)
	collectItems(m, &c.points, descPoints, descPointsRefused)
	m.counter(descPanics, r.counters.panics.Load())
}

func (r *Receiver) collectConnections(m metrics) {
	conns := r.listener.conns.Counts()
	m.gauge(descConnections, conns.Open)
	m.counter(descConnectionsTotal, conns.Added)
	m.counter(descClosed, conns.MadeRoom, "made_room")
	m.counter(descClosed, conns.Refused, "refused")
	m.counter(descClosed, r.counters.notProtocol.Load(), "not_protocol")
	m.counter(descAcceptErrors, r.listener.accepting.Failures().Count)
}

// typeName returns the value of the label type.
func typeName(index int) string {
	if index == 0 {
		return "unknown"
	}
	return wire.TypeAt(index).String()
}

func collectMessages(m metrics, c *counts) {
	for i := range c.messages {
		message, name := &c.messages[i], typeName(i)
		m.counter(descMessages, message.received, name)
		m.counter(descPayload, message.bytes, name)
		m.counter(descProcessed, message.processed, name)
		for why, n := range message.dropped {
			m.counter(descDropped, n, name, Drop(why).String())
		}
	}
	m.counter(descSkipped, c.skipped)
	m.counter(descClientLost, c.gaps)
	m.counter(descClientLostTraces, c.empty)
	m.histogram(descLatency, &c.latency)
}

func collectSpans(m metrics, c *counts) {
	collectItems(m, &c.spans, descSpans, descSpansRefused)
	for why, n := range c.spansDropped {
		m.counter(descSpansDropped, n, spans.DropReason(why).String())
	}
	m.counter(descAttributesLost, c.attributesLost)
	m.counter(descEventsLost, c.eventsLost)
	m.counter(descLinksLost, c.linksLost)
	m.counter(descParents, c.badParents)
	m.counter(descZones, c.unknownZones)
}

func collectItems(m metrics, c *itemCounts, exported, refused *prometheus.Desc) {
	m.counter(exported, c.exported)
	for why, n := range c.refused {
		m.counter(refused, n, Refusal(why).String())
	}
}

func (r *Receiver) collectStats(m metrics) {
	c, s := r.stats.Counts(), r.stats.Status()
	m.counter(descMeasurements, c.Measurements)
	m.counter(descAggregated, c.Aggregated)
	for i, n := range c.Lost {
		what, reason := stats.Loss(i).Labels()
		m.counter(descStatsLost, n, what, reason)
	}
	m.counter(descViews, c.ViewsCreated, "created")
	m.counter(descViews, c.ViewsReplaced, "replaced")
	m.counter(descViews, c.ViewsKnown, "known")
	m.gauge(descDefined, s.Measures, "measures")
	m.gauge(descDefined, s.Views, "views")
	m.gauge(descDefined, s.Series, "series")
	m.gauge(descStatsMemory, s.Memory)
}

// metrics is where metrics are sent.
type metrics chan<- prometheus.Metric

func (m metrics) gauge(d *prometheus.Desc, n int, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func (m metrics) counter(d *prometheus.Desc, n uint64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (m metrics) histogram(d *prometheus.Desc, h *histogram) {
	cumulative := make(map[float64]uint64, len(latencyBounds))
	total := uint64(0)
	for i, bound := range latencyBounds {
		total += h.buckets[i]
		cumulative[bound] = total
	}
	total += h.buckets[len(latencyBounds)]
	m <- prometheus.MustNewConstHistogram(d, total, h.sum.Seconds(), cumulative)
}
