package otlp

import (
	"time"

	"google.golang.org/grpc/codes"
)

// notePartial tells the text of a partial success when it changes.
func (p *pipeline) notePartial(b *Batch, a *answer, rejected uint64, now time.Time) {
	if news := a.partial.message == "" || a.partial.message != p.partialText; !news || !p.partial.allow(now) {
		return
	}
	p.partialText = a.partial.message
	p.tell(Event{Kind: EventPartial, Signal: b.signal, Message: a.partial.message, Items: rejected})
}

// noteGate tells when an outage begins and ends. One that begins within a minute of another is told when it
// outlasts that minute.
func (p *pipeline) noteGate(a *answer, now time.Time) {
	switch {
	case p.gate.state == gateWaiting && !p.told && a.code != codes.OK:
		if p.told = p.waiting.allow(now); p.told {
			p.tell(Event{
				Kind: EventWaiting, Code: statusCodes[a.code].name, Message: a.message, Wait: p.gate.end().Sub(now),
			})
		}
	case p.gate.state == gateOpen && p.told:
		p.told = false
		p.tell(Event{Kind: EventRecovered})
	}
}

func (p *pipeline) tell(e Event) {
	e.Destination = p.conf.Name
	p.core.events = append(p.core.events, e)
}
