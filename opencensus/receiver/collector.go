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
	descConnections      = describe("connections", "Connections that are open.")
	descConnectionsTotal = describe("connections_total", "Connections that were accepted.")
	descClosed           = describe("closed_connections_total",
		"Connections that were closed by the agent: for another one because there were too many (made_room), at once because there were too many (refused), or because what they sent is not the protocol (not_protocol).",
		"reason")
	descAcceptErrors = describe("accept_errors_total", "Times that connections could not be accepted.")

	descMessages = describe("messages_total",
		"Messages that were received, whole or in part: those that were processed or dropped, and those that wait.", "type")
	descPayload   = describe("payload_bytes_total", "Bytes in the payloads of messages that were received whole.", "type")
	descProcessed = describe("processed_messages_total", "Messages that were processed.", "type")
	descDropped   = describe("dropped_messages_total",
		"Messages that were not processed, by the reason.", "type", "reason")
	descWaiting  = describe("waiting_messages", "Messages that wait to be processed.", "queue")
	descBuffered = describe("buffered_bytes", "Bytes of messages that wait, or are not received whole yet.")
	descSkipped  = describe("skipped_bytes_total", "Bytes that were skipped in search of a message.")

	descClientLost = describe("client_lost_messages_total",
		"Messages that clients could not send, as their sequence numbers show.")
	descClientLostTraces = describe("client_lost_traces_total",
		"Trace exports that are empty because the client could not encode them.")
	descLatency = describe("latency_seconds",
		"Time from when a client began to send a message until it was read whole, of clients with a clock of 64 bits.")

	descSpans        = describe("exported_spans_total", "Spans that were accepted by the queues of destinations.")
	descSpansDropped = describe("dropped_spans_total", "Spans that were not encoded, by what is wrong with them.", "reason")
	descSpansRefused = describe("refused_spans_total",
		"Spans that were not accepted by the queues of destinations, by the reason.", "reason")
	descAttributesLost = describe("lost_attributes_total", "Attributes of spans that were left out.")
	descEventsLost     = describe("lost_events_total", "Events of spans that clients did not send the contents of.")
	descLinksLost      = describe("lost_links_total", "Links of spans that have no contents or no valid ids.")
	descParents        = describe("invalid_parents_total", "Spans that are exported without their parent, whose id is invalid.")
	descZones          = describe("unknown_zones_total", "Times in zones that are not known, taken for UTC.")

	descMeasurements = describe("measurements_total", "Measurements that were received.")
	descAggregated   = describe("aggregated_measurements_total", "Measurements that were aggregated by at least one view.")
	descStatsLost    = describe("lost_stats_total",
		"What of measures, views and measurements is lost or changed, by what it is, and why.", "what", "reason")
	descViews = describe("registered_views_total",
		"Views that were registered, by what came of it; those that were not taken are in lost_stats.", "result")
	descDefined     = describe("definitions", "Measures, views, and series of views that exist.", "what")
	descStatsMemory = describe("stats_bytes", "Memory of measures, views and series.")

	descPoints        = describe("exported_points_total", "Data points that were accepted by the queues of destinations.")
	descPointsRefused = describe("refused_points_total",
		"Data points that were not accepted by the queues of destinations, by the reason.", "reason")
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
	for lane, name := range [numLanes]string{statsLane: "stats", traceLane: "traces"} {
		m.gauge(descWaiting, r.lanes[lane].length(), name)
	}
	m.gauge(descBuffered, int(r.config.BufferBytes-r.budget.left()))
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
		of, name := &c.messages[i], typeName(i)
		m.counter(descMessages, of.received, name)
		m.counter(descPayload, of.bytes, name)
		m.counter(descProcessed, of.processed, name)
		for why, n := range of.dropped {
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
