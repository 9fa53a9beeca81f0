package otlp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/internal/host/metric"
)

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

	for s := range NumSignals {
		if !d.config.Takes(s) {
			continue
		}
		m := metric.Sender{To: to, Prefix: "correlator_otlp_",
			Labels: []string{"destination", d.config.Name, "signal", s.String()}}
		all[s].send(m)
		m.Gauge("queue_limit_bytes",
			"Limit of all queues (queue-bytes). Received data is refused above three quarters.", int(d.quota))
		m.Duration("queue_oldest_seconds", "Age of the oldest waiting batch.", oldest[s])
		for state := range numStates {
			m.State("state", "1 for the present state of the destination, 0 for the others.", state == states[s],
				"state", state.String())
		}
	}
}

// send sends the metrics of one destination and signal.
func (c *counters) send(m metric.Sender) {
	m.Counter("accepted_items_total",
		"Items offered to the destination's queue. The correlator's own count even if dropped at once.", c.accepted)
	m.Counter("sent_items_total", "Items acknowledged by the receiver, without rejected ones.", c.sent)
	dropped := func(n uint64, reason Reason, code string) {
		m.Counter("dropped_items_total", "Accepted items lost and, if refused, by the receiver's code.", n,
			"reason", reason.String(), "code", code)
	}
	for reason := range NumReasons {
		if reason != Refused {
			dropped(c.dropped[reason], reason, "")
		}
	}
	for code, n := range c.refused {
		if v := statusCodes[code].verdict; v == verdictDrop || v == verdictExhausted {
			dropped(n, Refused, statusCodes[code].name)
		}
	}
	for code, n := range c.attempts {
		m.Counter("attempts_total", "Requests, by status code. A failed one may be retried.", n,
			"code", statusCodes[code].name)
	}
	m.Counter("retries_total", "Requests that repeat a batch.", c.retries)
	m.Counter("throttled_total", "Responses that asked for a pause.", c.throttled)
	m.Seconds("throttled_seconds_total",
		"Additional time spent waiting because the receiver asked for it.", c.throttledBy)
	m.Counter("maybe_duplicated_batches_total",
		"Batches sent again after a timeout or broken connection; perhaps received twice.", c.duplicated)
	m.Counter("bad_response_total",
		"Invalid responses: undecodable, too large, or with impossible numbers.", c.badResponse)
	m.Gauge("queue_bytes", "Memory of waiting batches, including those in flight.",
		int(c.queued.bytes+c.inFlight.bytes))
	m.Gauge("queue_batches", "Batches waiting, without those in flight.", c.queued.batches)
	m.Gauge("queue_items", "Items waiting, without those in flight.", int(c.queued.items))
	m.Gauge("in_flight", "Requests in flight.", c.inFlight.batches)
	m.Gauge("in_flight_items", "Items in flight.", int(c.inFlight.items))
	m.Histogram("request_seconds", "Duration of requests, up to the response, timeout or error.",
		secondsBounds, &c.seconds)
	m.Histogram("request_bytes", "Size of requests before compression.", bytesBounds, &c.bytes)
}
