package otlp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics describes the metrics of an exporter. The first labels are destination and signal.
type metrics struct {
	all []*prometheus.Desc // in the order of docs/metrics.md

	accepted, sent, dropped                         *prometheus.Desc
	attempts, retries, throttled, throttledSeconds  *prometheus.Desc
	duplicated, badResponse                         *prometheus.Desc
	queueBytes, queueLimit, queueBatches            *prometheus.Desc
	queueItems, queueOldest                         *prometheus.Desc
	inFlight, inFlightItems, seconds, bytes, states *prometheus.Desc
}

func newMetrics() *metrics {
	m := &metrics{}
	add := func(name, help string, labels ...string) *prometheus.Desc {
		labels = append([]string{"destination", "signal"}, labels...)
		desc := prometheus.NewDesc("correlator_otlp_"+name, help, labels, nil)
		m.all = append(m.all, desc)
		return desc
	}
	m.accepted = add("accepted_items_total", "Items (spans, data points, samples) that were offered to the "+
		"destination's queue. The correlator's own are in it also when they were dropped at once, received ones only "+
		"when they were taken.")
	m.sent = add("sent_items_total", "Items that the receiver acknowledged, without those it rejected.")
	m.dropped = add("dropped_items_total", "Accepted items that are lost, by reason; with refused also by the code "+
		"that the receiver answered with.", "reason", "code")
	m.attempts = add("attempts_total", "Requests, by the code that they ended with. One that failed may be sent "+
		"again: what is lost is in correlator_otlp_dropped_items_total.", "code")
	m.retries = add("retries_total", "Requests with a batch that had been sent before.")
	m.throttled = add("throttled_total", "Requests that the receiver answered with the time that it wants to be "+
		"left alone.")
	m.throttledSeconds = add("throttled_seconds_total", "Time in which nothing was sent because the receiver had "+
		"asked for it; without what the correlator would have waited anyway.")
	m.duplicated = add("maybe_duplicated_batches_total", "Batches sent again after a timeout or a broken "+
		"connection: the receiver may have them twice.")
	m.badResponse = add("bad_response_total", "Answers that no receiver should give: undecodable, too large, or "+
		"with impossible numbers in them.")
	m.queueBytes = add("queue_bytes", "Memory of the batches that wait to be sent, those in flight included.")
	m.queueLimit = add("queue_limit_bytes", "What that memory may be, of all signals of the destination together "+
		"(queue-bytes). Received data is refused from three quarters of it on.")
	m.queueBatches = add("queue_batches", "Batches that wait to be sent, without those in flight.")
	m.queueItems = add("queue_items", "Items that wait to be sent, without those in flight.")
	m.queueOldest = add("queue_oldest_seconds", "Age of the oldest batch that waits.")
	m.inFlight = add("in_flight", "Requests without an answer yet.")
	m.inFlightItems = add("in_flight_items", "Items in the requests without an answer yet. At any time, accepted "+
		"items are those sent, dropped, queued and in flight.")
	m.seconds = add("request_seconds", "Time from sending a request to its answer, or to the timeout or error "+
		"instead.")
	m.bytes = add("request_bytes", "Sizes of the requests that were sent, before compression.")
	m.states = add("state", "1 for the state that the destination is in, for this signal; 0 for the others.", "state")
	return m
}

// Describe implements prometheus.Collector.
func (x *Exporter) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range x.metrics.all {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. There is a metric for every destination and each signal
// that it takes, the same ones each time whatever was counted. All values of a destination are of
// one moment.
func (x *Exporter) Collect(to chan<- prometheus.Metric) {
	for _, d := range x.scheduler.destinations {
		x.collectDestination(d, to)
	}
}

func (x *Exporter) collectDestination(d *destinationState, to chan<- prometheus.Metric) {
	var all [NumSignals]counters
	var oldest [NumSignals]time.Duration
	var states [NumSignals]State
	x.mu.Lock()
	all = d.counters
	for s := range NumSignals {
		oldest[s] = d.oldest(s, time.Now())
		if states[s] = d.state(); d.support[s].off {
			states[s] = StateUnsupported
		}
	}
	x.mu.Unlock()

	m := x.metrics
	for s := range NumSignals {
		if !d.config.Takes(s) {
			continue
		}
		p := points{to: to, labels: [4]string{d.config.Name, s.String()}}
		p.counters(m, &all[s])
		p.gauge(m.queueLimit, float64(d.quota))
		p.gauge(m.queueOldest, oldest[s].Seconds())
		for state := range numStates {
			is := 0.0
			if state == states[s] {
				is = 1
			}
			p.gauge(m.states, is, state.String())
		}
	}
}

// points sends the metrics of one destination and signal.
type points struct {
	to     chan<- prometheus.Metric
	labels [4]string // the first two are set
}

func (p *points) value(desc *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	n := copy(p.labels[2:], labels)
	p.to <- prometheus.MustNewConstMetric(desc, t, v, p.labels[:2+n]...)
}

func (p *points) counter(desc *prometheus.Desc, v float64, labels ...string) {
	p.value(desc, prometheus.CounterValue, v, labels)
}

func (p *points) gauge(desc *prometheus.Desc, v float64, labels ...string) {
	p.value(desc, prometheus.GaugeValue, v, labels)
}

func (p *points) counters(m *metrics, c *counters) {
	p.counter(m.accepted, float64(c.accepted))
	p.counter(m.sent, float64(c.sent))
	for reason := range NumReasons {
		if reason != Refused {
			p.counter(m.dropped, float64(c.dropped[reason]), reason.String(), "")
			continue
		}
		for code, n := range c.refused {
			if v := statusCodes[code].verdict; v == verdictDrop || v == verdictExhausted {
				p.counter(m.dropped, float64(n), reason.String(), statusCodes[code].name)
			}
		}
	}
	for code, n := range c.attempts {
		p.counter(m.attempts, float64(n), statusCodes[code].name)
	}
	p.counter(m.retries, float64(c.retries))
	p.counter(m.throttled, float64(c.throttled))
	p.counter(m.throttledSeconds, c.throttledBy.Seconds())
	p.counter(m.duplicated, float64(c.duplicated))
	p.counter(m.badResponse, float64(c.badResponse))
	p.gauge(m.queueBytes, float64(c.queued.bytes+c.inFlight.bytes))
	p.gauge(m.queueBatches, float64(c.queued.batches))
	p.gauge(m.queueItems, float64(c.queued.items))
	p.gauge(m.inFlight, float64(c.inFlight.batches))
	p.gauge(m.inFlightItems, float64(c.inFlight.items))
	p.histogram(m.seconds, &secondsBounds, &c.seconds)
	p.histogram(m.bytes, &bytesBounds, &c.bytes)
}

// histogram sends a histogram, whose buckets at Prometheus include those below.
func (p *points) histogram(desc *prometheus.Desc, bounds *[buckets]float64, h *histogram) {
	cumulative := make(map[float64]uint64, buckets)
	var n uint64
	for i, bound := range bounds {
		n += h.counts[i]
		cumulative[bound] = n
	}
	p.to <- prometheus.MustNewConstHistogram(desc, n+h.counts[buckets], h.sum, cumulative, p.labels[:2]...)
}
