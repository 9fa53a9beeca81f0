package otlp

import (
	"time"

	"correlator/internal/host/label"
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

// Status is the state of a destination.
type Status struct {
	Name, Endpoint string
	State          State
	Unsupported    []Signal  // switched off here
	Until          time.Time // StateWaiting: the next attempt
	LastError      string    // code and text of the last response that was no success, about 1 KiB at most
	LastErrorAt    time.Time
	// NoAnswerSince is since when no request was answered, not even with a refusal. It is zero
	// unless that is longer than requests usually take.
	NoAnswerSince time.Time

	QueuedBatches int
	QueuedItems   uint64
	QueuedBytes   int64         // memory
	Oldest        time.Duration // age of the oldest batch that is queued
	InFlight      int

	// The throughput is at most Concurrency × size of a request / Latency.
	Concurrency    int           // requests that may be in flight now
	MaxConcurrency int           // the limit that Concurrency climbs to
	Latency        time.Duration // of a request, smoothed
	ItemsPerSecond float64       // sent, over half a minute
	BytesPerSecond float64

	Accepted, Sent, Dropped uint64 // items of all signals since the start
	DroppedBy               [NumReasons]uint64
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
		Name: d.config.Name, Endpoint: d.config.Endpoint, State: d.state(),
		LastError: d.lastError, LastErrorAt: d.lastErrorAt, NoAnswerSince: d.noAnswerSince(now),
		InFlight: d.circuit.inFlight, Concurrency: d.circuit.allowed, MaxConcurrency: d.config.Concurrency,
		Latency:        time.Duration(d.latency * float64(time.Second)),
		ItemsPerSecond: d.items.get(now), BytesPerSecond: d.requestBytes.get(now),
	}
	switch s.State {
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
			s.Dropped += n
			s.DroppedBy[reason] += n
		}
		s.Oldest = max(s.Oldest, d.oldest(signal, now))
		if d.support[signal].off {
			s.Unsupported = append(s.Unsupported, signal)
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
