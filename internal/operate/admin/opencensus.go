package admin

import (
	"fmt"
	"strings"

	"correlator/internal/host/terminal"
	"correlator/opencensus/receiver"
)

// OpenCensus is the state of the receiver of PHP's OpenCensus clients. Counts are since the start.
type OpenCensus struct {
	Socket            string     `json:"socket"`
	Connections       int        `json:"connections"` // open
	MaxConnections    int        `json:"max_connections"`
	Accepted          uint64     `json:"accepted_connections"`
	ClosedConnections uint64     `json:"closed_connections"` // there were too many, or it was not the protocol
	LastError         *otlpError `json:"last_error,omitempty"`

	Messages        map[string]Messages `json:"messages"`             // traces, stats, other
	ClientLost      uint64              `json:"client_lost_messages"` // and traces that clients could not encode
	BufferedBytes   int64               `json:"buffered_bytes"`
	Spans           uint64              `json:"spans"` // queued for destinations
	SpansDropped    uint64              `json:"spans_dropped"`
	Points          uint64              `json:"points"`
	PointsDropped   uint64              `json:"points_dropped"`
	Measures        int                 `json:"measures"`
	Views           int                 `json:"views"`
	Series          int                 `json:"series"`
	Measurements    uint64              `json:"measurements"`
	WithoutView     uint64              `json:"measurements_without_view"` // of these: no view was registered
	ConflictingDefs uint64              `json:"conflicting_definitions"`   // of views and measures, not taken
}

// Messages is the outcome of messages.
//
//	Received = Processed + Dropped (all reasons) + Waiting
type Messages struct {
	Received  uint64            `json:"received"`
	Processed uint64            `json:"processed"`
	Dropped   map[string]uint64 `json:"dropped"` // by name of a receiver.Drop, if not 0
	Waiting   uint64            `json:"waiting"`
}

func newMessages(m *receiver.Messages) Messages {
	all := Messages{
		Received: m.Received, Processed: m.Processed, Dropped: make(map[string]uint64), Waiting: m.Waiting,
	}
	for why, n := range m.DroppedBy {
		if n > 0 {
			all.Dropped[receiver.Drop(why).String()] = n
		}
	}
	return all
}

func newOpenCensus(s *receiver.Status) *OpenCensus {
	o := &OpenCensus{
		Socket: s.Path, Connections: s.Connections, MaxConnections: s.MaxConnections, Accepted: s.AcceptedConnections,
		ClosedConnections: s.ClosedConnections + s.NotProtocol, LastError: newOTLPError(s.LastError, s.LastErrorAt),
		Messages: make(map[string]Messages), ClientLost: s.ClientLost, BufferedBytes: s.BufferedBytes,
		Spans: s.Spans.Exported, SpansDropped: s.Spans.Dropped,
		Points: s.Points.Exported, PointsDropped: s.Points.Dropped,
		Measures: s.Measures, Views: s.Views, Series: s.Series, Measurements: s.Measurements, WithoutView: s.NoView,
		ConflictingDefs: s.ConflictingDefinitions,
	}
	for name, m := range map[string]*receiver.Messages{"traces": &s.Traces, "stats": &s.Stats, "other": &s.Other} {
		o.Messages[name] = newMessages(m)
	}
	return o
}

// lines describe the receiver: what is connected, what came, and what was lost.
func (o *OpenCensus) lines(s *Status) []string {
	var came []string
	for _, name := range []string{"traces", "stats", "other"} {
		m := o.Messages[name]
		if m.Received == 0 {
			continue
		}
		text := name + " " + number(m.Received)
		if len(m.Dropped) > 0 {
			text += fmt.Sprintf(" (dropped: %s)", dropped(m.Dropped))
		}
		came = append(came, text)
	}
	if len(came) == 0 {
		came = []string{"nothing yet"}
	}
	lines := []string{fmt.Sprintf("receiving OpenCensus at %s: %d of %d connections, messages: %s",
		terminal.Escape(o.Socket), o.Connections, o.MaxConnections, strings.Join(came, ", "))}
	if o.Spans+o.SpansDropped+o.Measurements > 0 {
		lines = append(lines, fmt.Sprintf("spans: %s, dropped: %s; measurements: %s in %d series of %d views, "+
			"without a view: %s; data points: %s, dropped: %s; lost by clients: %s messages",
			number(o.Spans), number(o.SpansDropped), number(o.Measurements), o.Series, o.Views,
			number(o.WithoutView), number(o.Points), number(o.PointsDropped), number(o.ClientLost)))
	}
	if o.ClosedConnections > 0 {
		lines = append(lines, fmt.Sprintf("closed connections of OpenCensus clients: %s", number(o.ClosedConnections)))
	}
	if o.LastError != nil && s.At.Sub(o.LastError.At) <= recent {
		lines = append(lines, o.LastError.line(s.At, o.Socket))
	}
	return lines
}
