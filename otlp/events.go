package otlp

import (
	"time"

	"google.golang.org/grpc/codes"
)

// EventKind says what an Event is about, and when it comes.
type EventKind uint8

const (
	// EventWaiting: the destination takes nothing and is waited for. Once per outage, at most once a minute.
	EventWaiting EventKind = iota
	// EventRecovered: after EventWaiting, the destination takes requests again.
	EventRecovered
	// EventRefused: a batch was dropped because of the code of the answer. At most once a minute and code.
	EventRefused
	// EventPartial: an answer came with a partial success, or a warning. When the text changes, at most once
	// a minute.
	EventPartial
	// EventUnsupported: the destination does not know the signal, which is switched off there. Once each time.
	EventUnsupported
	// EventSupported: a signal that was switched off is taken again.
	EventSupported
	// EventLost: the exporter was shut down with undelivered items. Once per destination.
	EventLost
)

var eventNames = [...]string{
	EventWaiting: "waiting", EventRecovered: "recovered", EventRefused: "refused", EventPartial: "partial success",
	EventUnsupported: "unsupported", EventSupported: "supported", EventLost: "lost",
}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// Event is something that an operator should hear of. Fields that say nothing about the kind are zero.
type Event struct {
	Kind        EventKind
	Destination string
	Signal      Signal // Refused, Partial, Unsupported, Supported
	Code        string // name of the status code: Waiting, Refused, Unsupported
	Message     string // of the receiver, or of the connection; at most 1 KiB, one line
	Hint        string // what may be done about it, if that is known

	Wait    time.Duration // Waiting: until the next attempt. Unsupported: until the signal is tried again
	Items   uint64        // Refused, Partial, Lost: how many items
	Batches uint64        // Lost: how many batches
}

// quiet is the least time between two events of a kind.
const quiet = time.Minute

// limiter lets an event through at most once per quiet.
type limiter struct{ next time.Time }

func (l *limiter) allow(now time.Time) bool {
	if now.Before(l.next) {
		return false
	}
	l.next = now.Add(quiet)
	return true
}

// sizeHint is for a receiver that is out of something, without saying until when, and got a large batch.
func sizeHint(code codes.Code, size int) string {
	const small = 64 << 10 // every receiver takes such a request
	if code != codes.ResourceExhausted || size <= small {
		return ""
	}
	return "the receiver probably limits the size of requests: set max-request-bytes below its limit, or raise that"
}

// notePartial tells the text of a partial success when it changes.
func (p *destinationState) notePartial(b *Batch, a *answer, rejected uint64, now time.Time) {
	if news := a.partial.message == "" || a.partial.message != p.partialText; !news || !p.partial.allow(now) {
		return
	}
	p.partialText = a.partial.message
	p.emit(Event{Kind: EventPartial, Signal: b.signal, Message: a.partial.message, Items: rejected})
}

// noteGate tells when an outage begins and ends. One that begins within a minute of another is told when it
// outlasts that minute.
func (p *destinationState) noteGate(a *answer, now time.Time) {
	switch {
	case p.circuit.state == circuitWaiting && !p.told && a.code != codes.OK:
		if p.told = p.waiting.allow(now); p.told {
			p.emit(Event{
				Kind: EventWaiting, Code: statusCodes[a.code].name, Message: a.message, Wait: p.circuit.end().Sub(now),
			})
		}
	case p.circuit.state == circuitOpen && p.told:
		p.told = false
		p.emit(Event{Kind: EventRecovered})
	}
}

func (p *destinationState) emit(e Event) {
	e.Destination = p.conf.Name
	p.scheduler.events = append(p.scheduler.events, e)
}
