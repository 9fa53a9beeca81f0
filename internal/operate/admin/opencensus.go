package admin

import (
	"fmt"
	"strings"

	"correlator/internal/host/terminal"
	"correlator/opencensus/receiver"
)

// openCensusLines describe the receiver: what is connected, what came, and what was lost.
func openCensusLines(s *Status, o *receiver.Status) []string {
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
		terminal.Escape(o.Path), o.Connections, o.MaxConnections, strings.Join(came, ", "))}
	if o.Spans+o.SpansDropped+o.Measurements > 0 {
		lines = append(lines, fmt.Sprintf("spans: %s, dropped: %s; measurements: %s in %d series of %d views, "+
			"without a view: %s; data points: %s, dropped: %s; lost by clients: %s messages",
			number(o.Spans), number(o.SpansDropped), number(o.Measurements), o.Series, o.Views,
			number(o.NoView), number(o.Points), number(o.PointsDropped), number(o.ClientLost)))
	}
	if o.ClosedConnections > 0 {
		lines = append(lines, fmt.Sprintf("closed connections of OpenCensus clients: %s", number(o.ClosedConnections)))
	}
	if o.LastError != nil && s.At.Sub(o.LastError.At) <= recent {
		lines = append(lines, errorLine(o.LastError, s.At, o.Path))
	}
	return lines
}
