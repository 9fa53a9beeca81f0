package otlp

import "time"

// drain begins the shutdown of a destination: it sends on until the queue is empty. If it waits, it gets one
// more attempt at once, unless the receiver asked for the wait.
func (p *pipeline) drain(now time.Time) {
	p.draining = true
	p.settle(now)
}

// settle gives up the queue of a destination that is drained and had its chance.
func (p *pipeline) settle(now time.Time) {
	if !p.draining || p.gate.state != gateWaiting {
		return
	}
	if p.chance != chanceUsed && p.gate.interrupt(now) {
		p.chance = chanceGiven
		return
	}
	p.abandon()
}

// stop ends the shutdown: what waits is lost, and what is in flight unless it was delivered.
func (p *pipeline) stop() {
	p.draining, p.stopped = true, true
	p.abandon()
}

func (p *pipeline) abandon() {
	for p.queue.front != nil {
		p.discard(p.queue.front, Shutdown)
	}
}

// drained: nothing is left to send or to wait for.
func (p *pipeline) drained() bool {
	return p.draining && p.queue.length == 0 && p.gate.inFlight == 0
}
