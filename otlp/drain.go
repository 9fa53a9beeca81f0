package otlp

import "time"

// drain begins the shutdown of a destination: it sends on until the queue is empty. If it waits, it gets one
// more attempt at once, unless the receiver asked for the wait.
func (p *destinationState) drain(now time.Time) {
	p.draining = true
	p.finishDrain(now)
}

// settle gives up the queue of a destination that is drained and had its chance.
func (p *destinationState) finishDrain(now time.Time) {
	if !p.draining || p.circuit.state != circuitWaiting {
		return
	}
	if p.finalAttempt != finalAttemptUsed && p.circuit.interrupt(now) {
		p.finalAttempt = finalAttemptGiven
		return
	}
	p.abandon()
}

// stop ends the shutdown: what waits is lost, and what is in flight unless it was delivered.
func (p *destinationState) stop() {
	p.draining, p.stopped = true, true
	p.abandon()
}

func (p *destinationState) abandon() {
	for p.queue.front != nil {
		p.discard(p.queue.front, Shutdown)
	}
}

// drained: nothing is left to send or to wait for.
func (p *destinationState) drained() bool {
	return p.draining && p.queue.length == 0 && p.circuit.inFlight == 0
}
