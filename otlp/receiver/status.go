package receiver

import "correlator/otlp"

// Status is the state of a receiver. Its JSON is an interface.
type Status struct {
	Address            string `json:"address"`             // a path, or an address and port
	Connections        int    `json:"connections"`         // open, at most 128
	RefusedConnections uint64 `json:"refused_connections"` // closed because there were too many, since the start
	InWork             int    `json:"in_work"`             // requests that are being received or checked, at most 64

	// LastError is the last error because of which a client could not connect: of accept, or of
	// reading certificates.
	LastError *otlp.Failure `json:"last_error,omitempty"`
	Signals   []Signal      `json:"signals"`
}

// Signal counts the items of one signal since the start: Received = PassedOn + Rejected + Refused.
type Signal struct {
	Signal   string `json:"signal"`
	Received uint64 `json:"received"`  // a request that could not be read counts as one
	PassedOn uint64 `json:"passed_on"` // accepted by the queue
	Rejected uint64 `json:"rejected"`  // left out of what was passed on
	Refused  uint64 `json:"refused"`   // in requests that were not accepted, whether their senders keep them or not
}

// Status returns the current state. The counts of a signal are of one moment.
func (r *Receiver) Status() Status {
	conns, failures := r.listener.conns.Counts(), r.listener.Failures()
	inWork, _ := r.slots.counts()
	s := Status{
		Address: r.Addr().String(), Connections: conns.Open,
		RefusedConnections: conns.MadeRoom + conns.Refused,
		InWork:             inWork, LastError: otlp.NewFailure(failures.Last, failures.At),
	}
	all := r.counters.snapshot()
	for signal := range all {
		c := &all[signal]
		to := Signal{Signal: otlp.Signal(signal).String(), Received: c.received, PassedOn: c.passed}
		for _, n := range c.rejected {
			to.Rejected += n
		}
		for _, n := range c.refused {
			to.Refused += n
		}
		s.Signals = append(s.Signals, to)
	}
	return s
}
