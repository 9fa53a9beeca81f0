package otlp

import (
	"time"

	"google.golang.org/grpc/codes"

	"correlator/internal/host/label"
)

// EventKind is what an Event reports.
type EventKind uint8

const (
	// EventWaiting: the destination accepts nothing and is waited for. Emitted when that begins.
	EventWaiting EventKind = iota
	// EventRecovered: after EventWaiting, the destination accepts requests again.
	EventRecovered
	// EventRefused: a batch was dropped because of the status code of the response. At most once a
	// minute and code.
	EventRefused
	// EventPartial: a response had a partial success or a warning. When the text changes, at most
	// once a minute.
	EventPartial
	// EventUnsupported: the destination does not know the signal, which is switched off there. Once
	// each time.
	EventUnsupported
	// EventSupported: a signal that was switched off is accepted again.
	EventSupported
	// EventLost: the exporter was shut down with undelivered items. Once per destination.
	EventLost
)

var eventNames = [...]string{
	EventWaiting: "waiting", EventRecovered: "recovered", EventRefused: "refused",
	EventPartial: "partial success", EventUnsupported: "unsupported", EventSupported: "supported",
	EventLost: "lost",
}

func (k EventKind) String() string { return label.Of(eventNames[:], k) }

// Event is something that an operator should know. Fields that do not apply to its kind are zero.
type Event struct {
	Kind        EventKind
	Destination string
	Signal      Signal // Refused, Partial, Unsupported, Supported
	Code        string // name of the status code: Waiting, Refused, Unsupported
	Message     string // of the receiver or of the connection; one line of at most 1 KiB
	Hint        string // a possible remedy, if one is known

	Wait    time.Duration // Waiting: until the next attempt. Unsupported: until the next trial
	Items   uint64        // Refused, Partial, Lost
	Batches uint64        // Lost
}

// emit queues an event for Options.Observe.
func (d *destinationState) emit(e Event) {
	e.Destination = d.config.Name
	d.scheduler.events = append(d.scheduler.events, e)
}

// emitOutage reports when an outage begins and ends. Of a destination that goes up and down all the
// time, some outages are left out, or reported late if they last.
func (d *destinationState) emitOutage(r *result, now time.Time) {
	switch {
	case d.circuit.state == circuitWaiting && !d.outageEmitted && r.code != codes.OK:
		if d.outageEmitted = d.outages.allow(now); d.outageEmitted {
			d.emit(Event{
				Kind: EventWaiting, Code: statusCodes[r.code].name, Message: r.message,
				Wait: d.circuit.end().Sub(now),
			})
		}
	case d.circuit.state == circuitOpen && d.outageEmitted:
		d.outageEmitted = false
		d.emit(Event{Kind: EventRecovered})
	}
}

// emitPartial reports the text of a partial success when it changes.
func (d *destinationState) emitPartial(b *Batch, r *result, rejected uint64, now time.Time) {
	text := r.partial.message
	if text != "" && text == d.partialText || !d.partial.allow(now) {
		return
	}
	d.partialText = text
	d.emit(Event{Kind: EventPartial, Signal: b.signal, Message: text, Items: rejected})
}

const (
	// quiet is the mean time between two events of a kind, at the least.
	quiet = time.Minute
	// outageBurst is how many outages may be reported in quick succession.
	outageBurst = 3
)

// limiter allows one event per quiet, and a burst of them after a time without any. The zero value
// has a burst of one.
type limiter struct {
	burst int
	spent time.Time // events up to now use up the rate until then
}

func (l *limiter) allow(now time.Time) bool {
	if l.spent.Before(now) {
		l.spent = now
	}
	if l.spent.Sub(now) > time.Duration(max(l.burst, 1)-1)*quiet {
		return false
	}
	l.spent = l.spent.Add(quiet)
	return true
}

// sizeHint returns a remedy for RESOURCE_EXHAUSTED without RetryInfo in response to a large
// request.
func sizeHint(code codes.Code, size int) string {
	const small = 64 << 10 // every receiver accepts such a request
	if code != codes.ResourceExhausted || size <= small {
		return ""
	}
	return "the receiver probably limits the size of requests: set max-request-bytes below its limit, or raise that"
}
