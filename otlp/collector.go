package otlp

import "time"

// Kind is the kind of a metric.
type Kind uint8

const (
	Counter Kind = iota
	Gauge
	Distribution // a histogram
)

// Family describes the metrics of one name. The first labels of an exporter's are destination and signal.
type Family struct {
	Name   string // without namespace: correlator_otlp_
	Kind   Kind
	Labels []string
	Help   string
}

// Reading is the value of one metric.
type Reading struct {
	Family *Family
	Labels []string // values of the family's labels, in their order; only valid during the call

	Value float64 // of a Counter or Gauge

	// Of a Distribution: the upper bounds, how many were not above each (and not above the one before), at
	// the end how many were above all, and their sum.
	Bounds []float64
	Counts []uint64
	Sum    float64
}

// The families, in the order of Families.
const (
	famAccepted = iota
	famSent
	famDropped
	famAttempts
	famRetries
	famThrottled
	famThrottledSeconds
	famDuplicated
	famBadResponse
	famQueueBytes
	famQueueLimit
	famQueueBatches
	famQueueItems
	famQueueOldest
	famInFlight
	famInFlightItems
	famSeconds
	famBytes
	famState
	numFamilies
)

var base = []string{"destination", "signal"}

var families = [numFamilies]Family{
	famAccepted: {"accepted_items_total", Counter, base,
		"Items (spans, data points, samples) that were offered to the destination's queue. The correlator's own are in it also when " +
			"they were dropped at once, received ones only when they were taken."},
	famSent: {"sent_items_total", Counter, base, "Items that the receiver acknowledged, without those it rejected."},
	famDropped: {"dropped_items_total", Counter, []string{"destination", "signal", "reason", "code"},
		"Accepted items that are lost, by reason; with refused also by the code that the receiver answered with."},
	famAttempts: {"attempts_total", Counter, []string{"destination", "signal", "code"},
		"Requests, by the code that they ended with. One that failed may be sent again: what is lost is in " +
			"correlator_otlp_dropped_items_total."},
	famRetries: {"retries_total", Counter, base, "Requests with a batch that had been sent before."},
	famThrottled: {"throttled_total", Counter, base,
		"Requests that the receiver answered with the time that it wants to be left alone."},
	famThrottledSeconds: {"throttled_seconds_total", Counter, base, "Time in which nothing was sent because the receiver " +
		"had asked for it; without what the correlator would have waited anyway."},
	famDuplicated: {"maybe_duplicated_batches_total", Counter, base,
		"Batches sent again after a timeout or a broken connection: the receiver may have them twice."},
	famBadResponse: {"bad_response_total", Counter, base,
		"Answers that no receiver should give: undecodable, too large, or with impossible numbers in them."},
	famQueueBytes: {"queue_bytes", Gauge, base, "Memory of the batches that wait to be sent, those in flight included."},
	famQueueLimit: {"queue_limit_bytes", Gauge, base,
		"What that memory may be, of all signals of the destination together (queue-bytes). Received data is refused from three quarters of it on."},
	famQueueBatches: {"queue_batches", Gauge, base, "Batches that wait to be sent, without those in flight."},
	famQueueItems:   {"queue_items", Gauge, base, "Items that wait to be sent, without those in flight."},
	famQueueOldest:  {"queue_oldest_seconds", Gauge, base, "Age of the oldest batch that waits."},
	famInFlight:     {"in_flight", Gauge, base, "Requests without an answer yet."},
	famInFlightItems: {"in_flight_items", Gauge, base,
		"Items in the requests without an answer yet. At any time, accepted items are those sent, dropped, queued and in flight."},
	famSeconds: {"request_seconds", Distribution, base, "Time from sending a request to its answer, or to the timeout or error instead."},
	famBytes:   {"request_bytes", Distribution, base, "Sizes of the requests that were sent, before compression."},
	famState: {"state", Gauge, []string{"destination", "signal", "state"},
		"1 for the state that the destination is in, for this signal; 0 for the others."},
}

// Families is every metric of an exporter, in a fixed order.
func Families() []Family { return append([]Family(nil), families[:]...) }

// Each calls add with every metric of every destination and each signal that it takes: the same ones
// each time, whatever was counted. All values of a destination are of one moment.
func (x *Exporter) Each(add func(Reading)) {
	for _, d := range x.destinations {
		d.readings(add)
	}
}

func (d *destination) readings(add func(Reading)) {
	x, p := d.exporter, d.state
	var all [NumSignals]counters
	var oldest [NumSignals]time.Duration
	var states [NumSignals]State
	x.mu.Lock()
	all = p.counters
	for s := range NumSignals {
		oldest[s] = p.oldest(s, time.Now())
		if states[s] = p.state(); p.support[s].off {
			states[s] = StateUnsupported
		}
	}
	x.mu.Unlock()

	for s := range NumSignals {
		if p.conf.Takes(s) {
			r := reader{add: add, labels: [4]string{p.conf.Name, s.String()}}
			r.counters(&all[s])
			r.value(famQueueLimit, float64(min(p.conf.QueueBytes, x.scheduler.budget)))
			r.value(famQueueOldest, oldest[s].Seconds())
			for state := range NumStates {
				v := 0.0
				if state == states[s] {
					v = 1
				}
				r.value(famState, v, state.String())
			}
		}
	}
}

// reader makes readings of one destination and signal.
type reader struct {
	add    func(Reading)
	labels [4]string
}

func (r *reader) value(family int, v float64, labels ...string) {
	n := copy(r.labels[2:], labels)
	r.add(Reading{Family: &families[family], Labels: r.labels[:2+n], Value: v})
}

func (r *reader) counters(c *counters) {
	r.value(famAccepted, float64(c.accepted))
	r.value(famSent, float64(c.sent))
	for reason := range NumReasons {
		if reason != Refused {
			r.value(famDropped, float64(c.dropped[reason]), reason.String(), "")
			continue
		}
		for code, n := range c.refused {
			if v := statusCodes[code].verdict; v == verdictDrop || v == verdictExhausted {
				r.value(famDropped, float64(n), reason.String(), statusCodes[code].name)
			}
		}
	}
	for code, n := range c.attempts {
		r.value(famAttempts, float64(n), statusCodes[code].name)
	}
	r.value(famRetries, float64(c.retries))
	r.value(famThrottled, float64(c.throttled))
	r.value(famThrottledSeconds, c.throttledBy.Seconds())
	r.value(famDuplicated, float64(c.duplicated))
	r.value(famBadResponse, float64(c.badResponse))
	r.value(famQueueBytes, float64(c.queued.bytes+c.inFlight.bytes))
	r.value(famQueueBatches, float64(c.queued.batches))
	r.value(famQueueItems, float64(c.queued.items))
	r.value(famInFlight, float64(c.inFlight.batches))
	r.value(famInFlightItems, float64(c.inFlight.items))
	r.distribution(famSeconds, &secondsBounds, &c.seconds)
	r.distribution(famBytes, &bytesBounds, &c.bytes)
}

func (r *reader) distribution(family int, bounds *[buckets]float64, h *histogram) {
	r.add(Reading{
		Family: &families[family], Labels: r.labels[:2], Bounds: bounds[:], Counts: h.counts[:], Sum: h.sum,
	})
}
