package receiver

import (
	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
	"correlator/otlp"
)

// Status is the state of a receiver. Its JSON is an interface. Counts are since the start.
type Status struct {
	Path                string `json:"socket"`
	Connections         int    `json:"connections"` // open
	MaxConnections      int    `json:"max_connections"`
	AcceptedConnections uint64 `json:"accepted_connections"`
	ClosedConnections   uint64 `json:"closed_connections"` // there were too many, or it was not the protocol

	// LastError is the last error because of which a client could not connect.
	LastError *otlp.Failure `json:"last_error,omitempty"`

	// Messages are traces, with spans, stats, about measures and views, and other: of requests and
	// processes, and what is no message.
	Messages      map[string]Messages `json:"messages"`
	ClientLost    uint64              `json:"client_lost_messages"` // and spans that clients could not encode
	BufferedBytes int64               `json:"buffered_bytes"`       // of what waits, or is not received whole yet

	// Spans and points are encoded: those that the queues of destinations accepted, and those that
	// these did not, or that are invalid.
	Spans         uint64 `json:"spans"`
	SpansDropped  uint64 `json:"spans_dropped"`
	Points        uint64 `json:"points"`
	PointsDropped uint64 `json:"points_dropped"`

	Measures               int    `json:"measures"`
	Views                  int    `json:"views"`
	Series                 int    `json:"series"`
	Measurements           uint64 `json:"measurements"`
	NoView                 uint64 `json:"measurements_without_view"` // of these: no view was registered
	ConflictingDefinitions uint64 `json:"conflicting_definitions"`   // of views and measures, not taken
}

// Messages counts messages: Received = Processed + the sum of Dropped + Waiting.
type Messages struct {
	Received  uint64            `json:"received"`
	Processed uint64            `json:"processed"`
	Dropped   map[string]uint64 `json:"dropped"` // by name of a Drop, if not 0
	Waiting   uint64            `json:"waiting"`
}

// Status returns the current state.
func (r *Receiver) Status() Status {
	conns := r.listener.conns.Counts()
	failed := r.listener.accepting.Failures()
	c, definitions, measured := r.counters.snapshot(), r.stats.Status(), r.stats.Counts()
	s := Status{
		Path: r.Path(), Connections: conns.Open, MaxConnections: r.config.MaxConnections,
		AcceptedConnections: conns.Added,
		ClosedConnections:   conns.MadeRoom + conns.Refused + r.counters.notProtocol.Load(),
		LastError:           otlp.NewFailure(failed.Last, failed.At), Messages: make(map[string]Messages),
		ClientLost: c.gaps + c.empty, BufferedBytes: int64(r.budget.used()),
		Spans: c.spans.exported, SpansDropped: c.spans.dropped(),
		Points: c.points.exported, PointsDropped: c.points.dropped(),
		Measures: definitions.Measures, Views: definitions.Views, Series: definitions.Series,
		Measurements: measured.Measurements, NoView: measured.Lost[stats.NoView],
		ConflictingDefinitions: measured.Lost[stats.ViewConflict] + measured.Lost[stats.CreateConflict],
	}
	for _, n := range c.spansDropped {
		s.SpansDropped += n
	}
	for i := range c.messages {
		name := kindOf(i)
		m, known := s.Messages[name]
		if !known {
			m.Dropped = make(map[string]uint64)
		}
		m.add(&c.messages[i])
		s.Messages[name] = m
	}
	return s
}

// kindOf returns the key of Status.Messages for the type with an index.
func kindOf(index int) string {
	switch wire.TypeAt(index) {
	case wire.TraceExport:
		return "traces"
	case wire.MeasureCreate, wire.ReportingPeriod, wire.ViewRegister, wire.ViewUnregister, wire.StatsRecord:
		return "stats"
	default:
		return "other"
	}
}

func (m *Messages) add(c *messageCounts) {
	m.Received += c.received
	m.Processed += c.processed
	m.Waiting += c.received - c.done()
	for why, n := range c.dropped {
		if n > 0 {
			m.Dropped[Drop(why).String()] += n
		}
	}
}

// dropped returns how many were not accepted.
func (c *itemCounts) dropped() (n uint64) {
	for _, refused := range c.refused {
		n += refused
	}
	return n
}
