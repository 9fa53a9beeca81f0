package receiver

import (
	"time"

	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
)

// Status is the state of a receiver.
type Status struct {
	Path  string    // of the socket
	Since time.Time // when it began to listen

	Connections         int    // open
	MaxConnections      int    // the limit
	AcceptedConnections uint64 // since it began to listen
	ClosedConnections   uint64 // because there were too many
	NotProtocol         uint64 // closed because of what they sent

	// The last error because of which a client could not connect. Empty, with the zero time, if
	// there was none.
	LastError   string
	LastErrorAt time.Time

	Stats, Traces Messages // messages about measures and views, and with spans
	Other         Messages // of requests and processes, and what is no message
	ClientLost    uint64   // messages that clients could not send, and spans that they could not encode
	BufferedBytes int64    // of what waits, or is not received whole yet

	Spans, Points          Items
	Measures, Views        int
	Series                 int
	Measurements, NoView   uint64 // received, and those for which no view was registered
	ConflictingDefinitions uint64 // of views and measures: not taken
}

// Messages counts messages: Received = Processed + Dropped + Waiting.
type Messages struct {
	Received, Processed, Dropped uint64
	Waiting                      uint64
	DroppedBy                    [NumDrops]uint64 // why: their sum is Dropped
}

// Items counts what was encoded.
type Items struct {
	Exported uint64 // accepted by the queues of destinations
	Dropped  uint64 // not accepted, or invalid
}

// Status returns the current state.
func (r *Receiver) Status() Status {
	conns := r.listener.conns.Counts()
	failed := r.listener.accepting.Failures()
	c, definitions, measured := r.counters.snapshot(), r.stats.Status(), r.stats.Counts()
	s := Status{
		Path: r.Path(), Since: r.since,
		Connections: conns.Open, MaxConnections: r.config.MaxConnections, AcceptedConnections: conns.Added,
		ClosedConnections: conns.MadeRoom + conns.Refused, NotProtocol: r.counters.notProtocol.Load(),
		LastError: failed.Last, LastErrorAt: failed.At,
		ClientLost: c.gaps + c.empty, BufferedBytes: int64(r.budget.used()),
		Spans: items(&c.spans), Points: items(&c.points),
		Measures: definitions.Measures, Views: definitions.Views, Series: definitions.Series,
		Measurements: measured.Measurements, NoView: measured.Lost[stats.NoView],
		ConflictingDefinitions: measured.Lost[stats.ViewConflict] + measured.Lost[stats.CreateConflict],
	}
	for _, n := range c.spansDropped {
		s.Spans.Dropped += n
	}
	for i := range c.messages {
		s.messages(i).add(&c.messages[i])
	}
	return s
}

// messages returns the counts to which the type with an index belongs.
func (s *Status) messages(index int) *Messages {
	switch wire.TypeAt(index) {
	case wire.TraceExport:
		return &s.Traces
	case wire.MeasureCreate, wire.ReportingPeriod, wire.ViewRegister, wire.ViewUnregister, wire.StatsRecord:
		return &s.Stats
	default:
		return &s.Other
	}
}

func (m *Messages) add(c *messageCounts) {
	m.Received += c.received
	m.Processed += c.processed
	m.Dropped += c.done() - c.processed
	m.Waiting += c.received - c.done()
	for why, n := range c.dropped {
		m.DroppedBy[why] += n
	}
}

func items(c *itemCounts) Items {
	i := Items{Exported: c.exported}
	for _, n := range c.refused {
		i.Dropped += n
	}
	return i
}
