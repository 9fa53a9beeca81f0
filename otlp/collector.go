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
	m.accepted = add("accepted_items_total",
		"Items offered to the destination's queue. The correlator's own count even if dropped at once.")
	m.sent = add("sent_items_total", "Items acknowledged by the receiver, without rejected ones.")
	m.dropped = add("dropped_items_total",
		"Accepted items lost and, if refused, by the receiver's code.", "reason", "code")
	m.attempts = add("attempts_total", "Requests, by status code. A failed one may be retried.", "code")
	m.retries = add("retries_total", "Requests that repeat a batch.")
	m.throttled = add("throttled_total", "Responses that asked for a pause.")
	m.throttledSeconds = add("throttled_seconds_total",
		"Additional time spent waiting because the receiver asked for it.")
	m.duplicated = add("maybe_duplicated_batches_total",
		"Batches sent again after a timeout or broken connection; perhaps received twice.")
	m.badResponse = add("bad_response_total",
		"Invalid responses: undecodable, too large, or with impossible numbers.")
	m.queueBytes = add("queue_bytes", "Memory of waiting batches, including those in flight.")
	m.queueLimit = add("queue_limit_bytes",
		"Limit of all queues (queue-bytes). Received data is refused above three quarters.")
	m.queueBatches = add("queue_batches", "Batches waiting, without those in flight.")
	m.queueItems = add("queue_items", "Items waiting, without those in flight.")
	m.queueOldest = add("queue_oldest_seconds", "Age of the oldest waiting batch.")
	m.inFlight = add("in_flight", "Requests in flight.")
	m.inFlightItems = add("in_flight_items", "Items in flight.")
	m.seconds = add("request_seconds", "Duration of requests, up to the response, timeout or error.")
	m.bytes = add("request_bytes", "Size of requests before compression.")
	m.states = add("state", "1 for the present state of the destination, 0 for the others.", "state")
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
