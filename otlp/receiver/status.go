package receiver

import (
	"time"

	"correlator/otlp"
)

// Status is the state of a receiver.
type Status struct {
	Address string    // a path, or an address and port
	Since   time.Time // when it began to listen

	Connections        int    // open, at most 128
	RefusedConnections uint64 // closed because there were too many
	InWork             int    // requests that are being received or checked, at most 64

	// The last error because of which a client could not connect: of accept, or of reading
	// certificates. Empty, with the zero time, if there was none.
	LastError   string
	LastErrorAt time.Time

	Signals [otlp.NumSignals]signalStatus
}

// signalStatus counts the items of one signal since then: Received = PassedOn + Rejected + Refused.
type signalStatus struct {
	Received uint64 // a request that could not be read counts as one
	PassedOn uint64 // accepted by the queue
	Rejected uint64 // left out of what was passed on
	Refused  uint64 // in requests that were not accepted, whether their senders keep them or not
}

// Status returns the current state. The counts of a signal are of one moment.
func (r *Receiver) Status() Status {
	conns, failures := r.listener.conns.Counts(), r.listener.Failures()
	inWork, _ := r.slots.counts()
	s := Status{
		Address: r.Addr().String(), Since: r.since, Connections: conns.Open,
		RefusedConnections: conns.MadeRoom + conns.Refused,
		InWork:             inWork, LastError: failures.Last, LastErrorAt: failures.At,
	}
	all := r.counters.snapshot()
	for signal := range all {
		c, to := &all[signal], &s.Signals[signal]
		to.Received, to.PassedOn = c.received, c.passed
		for _, n := range c.rejected {
			to.Rejected += n
		}
		for _, n := range c.refused {
			to.Refused += n
		}
	}
	return s
}
