package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/agent"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// otlpLines returns a table of the destinations, their errors and what is received, or nothing when
// nothing is exported.
func otlpLines(s *Status, columns int) []string {
	if s.OTLP == nil {
		return nil
	}
	var lines []string
	if len(s.OTLP.Destinations) > 0 {
		lines = destinationTable(s).Lines(columns)
	}
	for i := range s.OTLP.Destinations {
		d := &s.OTLP.Destinations[i]
		if e := d.LastError; e != nil && (d.State != otlp.StateOpen.String() || s.At.Sub(e.At) <= recent) {
			lines = append(lines, errorLine(e, s.At, d.Name))
		}
	}
	for i := range s.OTLP.Destinations {
		if d := &s.OTLP.Destinations[i]; limited(d) {
			lines = append(lines, fmt.Sprintf("%s gets no more than %s/s by %d requests at a time of %v each, while "+
				"%d batches wait: a higher concurrency sends more",
				terminal.Escape(d.Name), size(d.BytesPerSecond), d.InFlight, latencyOf(d), d.QueuedBatches))
		}
	}
	if s.OTLP.Samples+s.OTLP.Lost > 0 {
		lines = append(lines, fmt.Sprintf("samples in profiles: %d, lost: %d", s.OTLP.Samples, s.OTLP.Lost))
	}
	if r := s.OTLP.Receiver; r != nil {
		lines = append(lines, receiverLine(r))
		if r.LastError != nil && s.At.Sub(r.LastError.At) <= recent {
			lines = append(lines, errorLine(r.LastError, s.At, r.Address))
		}
	}
	if o := s.OTLP.OpenCensus; o != nil {
		lines = append(lines, openCensusLines(s, o)...)
	}
	return lines
}

func errorLine(e *otlp.Failure, now time.Time, of string) string {
	return fmt.Sprintf("last error of %s, %s ago: %s", terminal.Escape(of), age(now.Sub(e.At)),
		terminal.Cut(terminal.Escape(e.Message), maxMessage))
}

// maxMessage is how many columns of an error are shown: two lines of a terminal. A receiver may
// send a thousand.
const maxMessage = 160

func destinationTable(s *Status) *terminal.Table {
	table := terminal.NewTable(
		terminal.Column{Title: "DESTINATION", Shrink: true},
		terminal.Column{Title: "STATE", Shrink: true},
		terminal.Column{Title: "QUEUED", Right: true},
		terminal.Column{Title: "BATCHES", Right: true, Spare: 3},
		terminal.Column{Title: "OLDEST", Right: true, Spare: 1},
		terminal.Column{Title: "IN FLIGHT", Right: true, Spare: 4},
		terminal.Column{Title: "LATENCY", Right: true, Spare: 2},
		terminal.Column{Title: "ITEMS/S", Right: true},
		terminal.Column{Title: "SENT", Right: true},
		terminal.Column{Title: "DROPPED", Shrink: true},
	)
	for i := range s.OTLP.Destinations {
		d := &s.OTLP.Destinations[i]
		oldest, latency := "", ""
		if d.QueuedBatches > 0 {
			oldest = age(time.Duration(d.Oldest))
		}
		if d.Latency > 0 {
			latency = latencyOf(d).String()
		}
		table.Row(d.Name, stateText(d, s.At), size(float64(d.QueuedBytes)), strconv.Itoa(d.QueuedBatches), oldest,
			fmt.Sprintf("%d/%d", d.InFlight, d.Concurrency), latency, fmt.Sprintf("%.1f", d.ItemsPerSecond),
			number(d.Sent), dropped(d.Dropped))
	}
	return table
}

// stateText returns the state and until when it lasts, since when nothing is answered, and the
// signals that the destination does not know.
func stateText(d *otlp.Status, now time.Time) string {
	text := d.State
	if !d.Until.IsZero() {
		text += " " + age(d.Until.Sub(now))
	}
	if !d.NoAnswerSince.IsZero() {
		silence := "no answer for " + age(now.Sub(d.NoAnswerSince))
		if text += ", " + silence; d.State == otlp.StateOpen.String() {
			text = silence
		}
	}
	if len(d.Unsupported) > 0 {
		text += ", no " + strings.Join(d.Unsupported, ", ")
	}
	return text
}

// limited reports whether concurrency limits the throughput: all requests are in flight, they are
// answered, and batches have waited for longer than two responses take. (Throughput is concurrency
// × size of a request / latency.)
func limited(d *otlp.Status) bool {
	return d.State == otlp.StateOpen.String() && d.NoAnswerSince.IsZero() && d.QueuedBatches > 0 &&
		d.InFlight >= d.MaxConcurrency && d.Oldest > max(2*d.Latency, minWaited)
}

// minWaited is longer than a burst of a few requests takes, for instance one with metrics.
const minWaited = agent.Seconds(2 * time.Second)

func latencyOf(d *otlp.Status) time.Duration {
	latency := time.Duration(d.Latency)
	if latency >= time.Millisecond {
		return latency.Round(time.Millisecond)
	}
	return latency.Round(10 * time.Microsecond)
}

// receiverLine describes the receiver with the items of each signal.
func receiverLine(r *receiver.Status) string {
	var signals []string
	for _, s := range r.Signals {
		if s.Received == 0 {
			continue
		}
		text := s.Signal + " " + number(s.Received)
		if s.Refused+s.Rejected > 0 {
			text += fmt.Sprintf(" (refused %d, rejected %d)", s.Refused, s.Rejected)
		}
		signals = append(signals, text)
	}
	if len(signals) == 0 {
		signals = []string{"nothing yet"}
	}
	return fmt.Sprintf("receiving at %s: %d connections, %d requests in work, items: %s",
		terminal.Escape(r.Address), r.Connections, r.InWork, strings.Join(signals, ", "))
}

func size(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		switch {
		case bytes < 10 && unit != "B":
			return fmt.Sprintf("%.1f %s", bytes, unit)
		case bytes < 1000:
			return fmt.Sprintf("%.0f %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.1f GB", bytes)
}
