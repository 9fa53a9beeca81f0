package otlp

import (
	"time"

	"correlator/internal/host/label"
	"correlator/internal/host/seconds"
)

// State is the state of a destination, or of one signal there.
type State uint8

const (
	StateOpen        State = iota
	StateWaiting           // for the next attempt, after an error
	StateProbing           // one attempt is in flight
	StateRejected          // rejects our credentials
	StateUnsupported       // does not know the signal
	numStates
)

var stateNames = [numStates]string{
	StateOpen: "open", StateWaiting: "waiting", StateProbing: "probing", StateRejected: "rejected",
	StateUnsupported: "unsupported",
}

func (s State) String() string { return label.Of(stateNames[:], s) }

// Status is the state of a destination. Its JSON is an interface. Items are spans, data points and
// samples, counted since the start.
//
//	Accepted = Sent + the sum of Dropped + QueuedItems + those in flight
type Status struct {
	Name        string    `json:"name"`
	Endpoint    string    `json:"endpoint"`
	State       string    `json:"state"`                 // name of a State
	Until       time.Time `json:"until,omitzero"`        // in StateWaiting: the next attempt
	Unsupported []string  `json:"unsupported,omitempty"` // signals that it does not know
	// LastError is the last response that was no success for all items: its code, and its text of about
	// 1 KiB at most.
	LastError *Failure `json:"last_error,omitempty"`
	// NoAnswerSince is since when no request was answered, not even with a refusal. It is zero
	// unless that is longer than requests usually take.
	NoAnswerSince time.Time `json:"no_answer_since,omitzero"`

	QueuedBatches int             `json:"queued_batches"`
	QueuedItems   uint64          `json:"queued_items"`
	QueuedBytes   int64           `json:"queued_bytes"`   // memory
	Oldest        seconds.Seconds `json:"oldest_seconds"` // age of the oldest batch that is queued

	// The throughput is at most Concurrency × size of a request / Latency.
	InFlight       int             `json:"in_flight"`        // requests
	Concurrency    int             `json:"concurrency"`      // requests that may be in flight now
	MaxConcurrency int             `json:"max_concurrency"`  // the limit that Concurrency climbs to
	Latency        seconds.Seconds `json:"latency_seconds"`  // of a request, smoothed
	ItemsPerSecond float64         `json:"items_per_second"` // sent, over half a minute
	BytesPerSecond float64         `json:"bytes_per_second"`

	Accepted uint64 `json:"accepted"`
	Sent     uint64 `json:"sent"`
	Dropped  Drops  `json:"dropped"`
}

// Drops are numbers of items by name of a Reason, without those that are 0.
type Drops map[string]uint64

// Sum returns the number of all.
func (d Drops) Sum() (items uint64) {
	for _, n := range d {
		items += n
	}
	return items
}

// Failure is an error that is over, perhaps.
type Failure struct {
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// String returns the message; nil has none.
func (f *Failure) String() string {
	if f == nil {
		return ""
	}
	return f.Message
}

// NewFailure returns nil if there was none.
func NewFailure(message string, at time.Time) *Failure {
	if message == "" {
		return nil
	}
	return &Failure{Message: message, At: at}
}

// Status returns the state of each destination, in the order of Options.Destinations.
func (x *Exporter) Status() []Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	all := make([]Status, 0, len(x.scheduler.destinations))
	for _, d := range x.scheduler.destinations {
		all = append(all, d.status(now))
	}
	return all
}

func (d *destinationState) status(now time.Time) Status {
	s := Status{
		Name: d.config.Name, Endpoint: d.config.Endpoint, State: d.state().String(),
		LastError: NewFailure(d.lastError, d.lastErrorAt), NoAnswerSince: d.noAnswerSince(now),
		InFlight: d.circuit.inFlight, Concurrency: d.circuit.allowed, MaxConcurrency: d.config.Concurrency,
		Latency:        seconds.Seconds(d.latency * float64(time.Second)),
		ItemsPerSecond: d.items.get(now), BytesPerSecond: d.requestBytes.get(now), Dropped: make(Drops),
	}
	switch d.state() {
	case StateWaiting:
		s.Until, s.Concurrency = d.circuit.end(), 0
	case StateProbing:
		s.Concurrency = 1
	}
	for signal := range NumSignals {
		c := &d.counters[signal]
		s.QueuedBatches += c.queued.batches
		s.QueuedItems += c.queued.items
		s.QueuedBytes += c.queued.bytes
		s.Accepted += c.accepted
		s.Sent += c.sent
		for reason, n := range c.dropped {
			if n > 0 {
				s.Dropped[Reason(reason).String()] += n
			}
		}
		s.Oldest = max(s.Oldest, seconds.Seconds(d.oldest(signal, now)))
		if d.support[signal].off {
			s.Unsupported = append(s.Unsupported, signal.String())
		}
	}
	return s
}

// noAnswerSince returns since when requests have gone without an answer, if that is long.
func (d *destinationState) noAnswerSince(now time.Time) time.Time {
	usual := max(minSilence, time.Duration(2*d.latency*float64(time.Second)))
	if d.unanswered.IsZero() || now.Sub(d.unanswered) < usual {
		return time.Time{}
	}
	return d.unanswered
}

// state returns the state of the destination, whatever signals it knows.
func (d *destinationState) state() State {
	switch {
	case d.circuit.state == circuitWaiting:
		return StateWaiting
	case d.circuit.state == circuitProbing:
		return StateProbing
	case d.rejected:
		return StateRejected
	default:
		return StateOpen
	}
}

// oldest returns the age of the oldest batch of a signal in the queue.
func (d *destinationState) oldest(signal Signal, now time.Time) time.Duration {
	if d.counters[signal].queued.batches == 0 {
		return 0
	}
	e := d.queue.front
	for e.batch.signal != signal {
		e = e.next
	}
	return max(now.Sub(e.batch.created), 0)
}
