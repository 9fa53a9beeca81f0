package receiver

import (
	"time"

	"correlator/otlp"
)

// Status is how a receiver does.
type Status struct {
	Address string    // a path, or an address and port
	Since   time.Time // it listens

	Connections        int    // open, at most 128
	RefusedConnections uint64 // closed at once, because there were too many
	InWork             int    // requests that are being received or checked, at most 64

	// What kept somebody from connecting last: an error of accept, or certificates that cannot be read. Empty,
	// and the zero time, if there was nothing.
	LastError   string
	LastErrorAt time.Time

	Signals [otlp.NumSignals]SignalStatus
}

// SignalStatus is what came of one signal since then, in items: Received = PassedOn + Rejected + Refused.
type SignalStatus struct {
	Received uint64 // a request that could not be read counts as one
	PassedOn uint64 // taken by the queue
	Rejected uint64 // left out of what was passed on
	Refused  uint64 // in requests that were not taken, whether their senders still have them or not
}

// Status is how it does now. The figures of a signal are of one moment.
func (r *Receiver) Status() Status {
	conns := r.listener.counts()
	s := Status{
		Address: r.Addr().String(), Since: r.since, Connections: conns.open, RefusedConnections: conns.refused,
		InWork: len(r.slots), LastError: conns.err, LastErrorAt: conns.errAt,
	}
	all := r.counters.read()
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
