package admin

import (
	"time"

	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// Status is what `status` shows. Its JSON is an interface.
type Status struct {
	agent.Status
	OTLP *OTLP `json:"otlp,omitempty"` // absent when nothing is exported
}

// OTLP is what is sent and received by OTLP.
type OTLP struct {
	Destinations []Destination `json:"destinations"` // in the order in which they are configured
	Samples      uint64        `json:"samples"`      // of our own in profiles, since the start
	SamplesLost  uint64        `json:"samples_lost"` // of our own that could not be put into profiles
	Receiver     *Receiver     `json:"receiver,omitempty"`
	OpenCensus   *OpenCensus   `json:"opencensus,omitempty"` // what is received to be sent by OTLP
}

// Destination is the state of one destination. Items are spans, data points and samples, counted
// since the start.
//
//	Accepted = Sent + the sum of Dropped + QueuedItems + those in flight
type Destination struct {
	Name        string     `json:"name"`
	Endpoint    string     `json:"endpoint"`
	State       string     `json:"state"`                 // name of an otlp.State
	Until       *time.Time `json:"until,omitempty"`       // in state waiting: the next attempt
	Unsupported []string   `json:"unsupported,omitempty"` // signals that it does not know
	LastError   *otlpError `json:"last_error,omitempty"`  // kept when it is over
	// NoAnswerSince is when responses of any kind, even refusals, stopped.
	NoAnswerSince *time.Time `json:"no_answer_since,omitempty"`

	QueuedBatches int           `json:"queued_batches"`
	QueuedItems   uint64        `json:"queued_items"`
	QueuedBytes   int64         `json:"queued_bytes"`
	Oldest        agent.Seconds `json:"oldest_seconds"` // age of the oldest batch queued

	InFlight       int           `json:"in_flight"`       // requests
	Concurrency    int           `json:"concurrency"`     // requests that may be in flight now
	MaxConcurrency int           `json:"max_concurrency"` // the largest value of that
	Latency        agent.Seconds `json:"latency_seconds"`
	ItemsPerSecond float64       `json:"items_per_second"` // sent, over half a minute
	BytesPerSecond float64       `json:"bytes_per_second"`

	Accepted uint64            `json:"accepted"`
	Sent     uint64            `json:"sent"`
	Dropped  map[string]uint64 `json:"dropped"` // by name of an otlp.Reason, if not 0
}

// otlpError is the last error: of a destination, the last response that was no success, which
// begins with its status code.
type otlpError struct {
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

func newOTLPError(message string, at time.Time) *otlpError {
	if message == "" {
		return nil
	}
	return &otlpError{Message: message, At: at}
}

// Receiver is the state of the receiver.
type Receiver struct {
	Address            string     `json:"address"`
	Connections        int        `json:"connections"`         // open
	RefusedConnections uint64     `json:"refused_connections"` // since the start
	InWork             int        `json:"in_work"`             // requests
	LastError          *otlpError `json:"last_error,omitempty"`
	Signals            []Received `json:"signals"`
}

// Received is the outcome of the received items of a signal, counted since the start.
//
//	Received = PassedOn + Rejected + Refused
type Received struct {
	Signal   string `json:"signal"`
	Received uint64 `json:"received"`
	PassedOn uint64 `json:"passed_on"`
	Rejected uint64 `json:"rejected"` // left out of requests that were passed on
	Refused  uint64 `json:"refused"`  // in requests that were refused
}

// NewOTLP returns the JSON form of the status of an export.
func NewOTLP(s *export.Status) *OTLP {
	out := &OTLP{Destinations: newDestinations(s.Destinations), Samples: s.Samples, SamplesLost: s.Lost}
	if s.Receiver != nil {
		out.Receiver = newReceiver(s.Receiver)
	}
	if s.OpenCensus != nil {
		out.OpenCensus = newOpenCensus(s.OpenCensus)
	}
	return out
}

func newReceiver(s *receiver.Status) *Receiver {
	r := &Receiver{
		Address: s.Address, Connections: s.Connections, RefusedConnections: s.RefusedConnections, InWork: s.InWork,
		LastError: newOTLPError(s.LastError, s.LastErrorAt),
	}
	for signal, of := range s.Signals {
		r.Signals = append(r.Signals, Received{
			Signal: otlp.Signal(signal).String(), Received: of.Received, PassedOn: of.PassedOn,
			Rejected: of.Rejected, Refused: of.Refused,
		})
	}
	return r
}

// newDestinations returns the JSON form of the statuses of an exporter.
func newDestinations(statuses []otlp.Status) []Destination {
	destinations := make([]Destination, 0, len(statuses))
	for i := range statuses {
		destinations = append(destinations, newDestination(&statuses[i]))
	}
	return destinations
}

func newDestination(s *otlp.Status) Destination {
	d := Destination{
		Name: s.Name, Endpoint: s.Endpoint, State: s.State.String(),
		QueuedBatches: s.QueuedBatches, QueuedItems: s.QueuedItems, QueuedBytes: s.QueuedBytes,
		Oldest:   agent.Seconds(s.Oldest),
		InFlight: s.InFlight, Concurrency: s.Concurrency, MaxConcurrency: s.MaxConcurrency,
		Latency:        agent.Seconds(s.Latency),
		ItemsPerSecond: s.ItemsPerSecond, BytesPerSecond: s.BytesPerSecond,
		Accepted: s.Accepted, Sent: s.Sent, Dropped: make(map[string]uint64), LastError: newOTLPError(s.LastError,
			s.LastErrorAt),
	}
	if s.State == otlp.StateWaiting {
		d.Until = &s.Until
	}
	if !s.NoAnswerSince.IsZero() {
		d.NoAnswerSince = &s.NoAnswerSince
	}
	for _, signal := range s.Unsupported {
		d.Unsupported = append(d.Unsupported, signal.String())
	}
	for reason, items := range s.DroppedBy {
		if items > 0 {
			d.Dropped[otlp.Reason(reason).String()] = items
		}
	}
	return d
}
