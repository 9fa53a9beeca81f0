package otlp

import "time"

// State is what a destination does, or does with one signal.
type State uint8

const (
	StateOpen        State = iota
	StateWaiting           // for the next attempt, after an error
	StateProbing           // one attempt is out
	StateRejected          // answers that our credentials are not good
	StateUnsupported       // does not know the signal
	NumStates
)

var stateNames = [NumStates]string{
	StateOpen: "open", StateWaiting: "waiting", StateProbing: "probing", StateRejected: "rejected",
	StateUnsupported: "unsupported",
}

func (s State) String() string {
	if s < NumStates {
		return stateNames[s]
	}
	return "unknown"
}

// Status is how a destination does.
type Status struct {
	Name, Endpoint string
	State          State
	Unsupported    []Signal  // switched off here
	Until          time.Time // StateWaiting: the next attempt
	LastError      string    // code and text of the last answer that was no success, at most 1 KiB and a bit
	LastErrorAt    time.Time

	QueuedBatches int
	QueuedItems   uint64
	QueuedBytes   int64         // memory
	Oldest        time.Duration // age of the oldest batch that is queued
	InFlight      int

	// What is sent cannot be more than Concurrency × size of a request / Latency.
	Concurrency    int           // requests that may be in flight now
	MaxConcurrency int           // and when it has not waited of late
	Latency        time.Duration // of a request, smoothed
	ItemsPerSecond float64       // sent, over half a minute
	BytesPerSecond float64

	Accepted, Sent, Dropped uint64 // items of all signals since the start
	DroppedBy               [NumReasons]uint64
}

// Status is how each destination does, in the order of Options.
func (x *Exporter) Status() []Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	all := make([]Status, 0, len(x.scheduler.destinations))
	for _, p := range x.scheduler.destinations {
		all = append(all, p.status(now))
	}
	return all
}

func (p *destinationState) status(now time.Time) Status {
	s := Status{
		Name: p.conf.Name, Endpoint: p.conf.Endpoint, State: p.state(), LastError: p.lastError, LastErrorAt: p.lastErrorAt,
		InFlight: p.circuit.inFlight, Concurrency: p.circuit.allowed, MaxConcurrency: p.conf.Concurrency, Latency: time.Duration(p.latency * float64(time.Second)),
		ItemsPerSecond: p.items.get(now), BytesPerSecond: p.requestBytes.get(now),
	}
	if s.State == StateWaiting {
		s.Until, s.Concurrency = p.circuit.end(), 0
	} else if s.State == StateProbing {
		s.Concurrency = 1
	}
	for signal := range NumSignals {
		c := &p.counters[signal]
		s.QueuedBatches += c.queued.batches
		s.QueuedItems += c.queued.items
		s.QueuedBytes += c.queued.bytes
		s.Accepted += c.accepted
		s.Sent += c.sent
		for reason, n := range c.dropped {
			s.Dropped += n
			s.DroppedBy[reason] += n
		}
		s.Oldest = max(s.Oldest, p.oldest(signal, now))
		if p.support[signal].off {
			s.Unsupported = append(s.Unsupported, signal)
		}
	}
	return s
}

// state is that of the destination, whatever it knows.
func (p *destinationState) state() State {
	switch {
	case p.circuit.state == circuitWaiting:
		return StateWaiting
	case p.circuit.state == circuitProbing:
		return StateProbing
	case p.rejected:
		return StateRejected
	default:
		return StateOpen
	}
}

// oldest is the age of the oldest batch of a signal in the queue.
func (p *destinationState) oldest(signal Signal, now time.Time) time.Duration {
	if p.counters[signal].queued.batches == 0 {
		return 0
	}
	e := p.queue.front
	for e.batch.signal != signal {
		e = e.next
	}
	return max(now.Sub(e.batch.created), 0)
}
