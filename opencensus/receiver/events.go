package receiver

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"correlator/internal/host/share"
	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
)

const (
	// eventInterval is the time from one event of a connection to the next: counters have the rest.
	eventInterval = time.Minute
	// maxEvents limits the events of all connections, at once and in an interval. Otherwise a client could have
	// as many as it likes by connecting anew.
	maxEvents = 60
	// maxEventsOfUser leaves some of them to others.
	maxEventsOfUser = 15
	// maxEventUsers is how many users have a limit of their own; others share one.
	maxEventUsers = 256
	// waitingEvents is how many events wait for a slow observer before others are left out.
	waitingEvents = 16
)

// EventKind is what has happened on a connection.
type EventKind uint8

const (
	// BadData: something was lost of what was received.
	BadData EventKind = iota
	// NotProtocol: the connection was closed, for what came was not this protocol.
	NotProtocol
	// UnknownVersion: a client has announced another version of the protocol, for the first time of
	// this receiver. It is served as if it were the known one.
	UnknownVersion
	// Conflict: a view was registered with two definitions.
	Conflict
)

// Event is something that an operator may want to know of a connection.
type Event struct {
	Kind EventKind
	UID  uint32 // who has connected
	PID  int    // of the process that has connected; 0: unknown, as always with Conflict
	// Losses are those of the connection since its last event, and Reason and Err the first of them.
	Losses  uint64
	Reason  wire.Reason // 0: there is none
	Err     error       // may be nil
	Version uint8       // of the protocol
	// Conflict is that of a view. There is one a minute of each user at most.
	Conflict stats.Conflict
}

// losses are those of a connection since its last event.
type losses struct {
	count    uint64
	first    wire.Loss
	reported time.Time // when the last event was
}

func (l *losses) note(loss wire.Loss) {
	if l.count == 0 {
		l.first = loss
	}
	l.count++
}

// events passes events on to an observer, which does not keep connections waiting.
type events struct {
	observe func(Event)
	queue   chan Event
	served  sync.WaitGroup
	version atomic.Bool // an unknown one was reported

	all   *rate.Limiter
	users *share.Rates[uint32]
}

func newEvents(observe func(Event)) *events {
	e := &events{
		observe: observe, queue: make(chan Event, waitingEvents),
		all:   rate.NewLimiter(rate.Every(eventInterval/maxEvents), maxEvents),
		users: share.NewRates[uint32](rate.Every(eventInterval/maxEventsOfUser), maxEventsOfUser, maxEventUsers),
	}
	if observe != nil {
		e.served.Go(func() {
			for event := range e.queue {
				observe(event)
			}
		})
	}
	return e
}

// close waits until the last event has been observed. There must be no connections any more.
func (e *events) close() {
	close(e.queue)
	e.served.Wait()
}

// report reports what was lost on a connection, unless there was a report not long ago; at its end,
// whether it was closed for that.
func (e *events) report(s *stream, now time.Time, notProtocol bool) {
	l := &s.lost
	if !notProtocol && l.count == 0 || now.Sub(l.reported) < eventInterval {
		return
	}
	event := Event{Kind: BadData, Losses: l.count, Reason: l.first.Reason, Err: l.first.Err}
	if notProtocol {
		event.Kind = NotProtocol
	}
	*l = losses{reported: now}
	e.emit(s.event(event), now)
}

// unknownVersion reports the first one that is observed.
func (e *events) unknownVersion(s *stream, version uint8) {
	if e.version.CompareAndSwap(false, true) &&
		!e.emit(s.event(Event{Kind: UnknownVersion, Version: version}), s.reader.now) {
		e.version.Store(false)
	}
}

// event returns an event with who has connected.
func (s *stream) event(event Event) Event {
	event.UID, event.PID = s.senders.peer.uid, s.senders.peer.pid
	return event
}

// emit has an event observed, unless there were many not long ago, of its user or of all. It does not
// wait. It reports whether the event will be observed.
func (e *events) emit(event Event, now time.Time) bool {
	if e.observe == nil || !e.users.Allow(event.UID, 1, now) || !e.all.AllowN(now, 1) {
		return false
	}
	select {
	case e.queue <- event:
		return true
	default:
		return false
	}
}
