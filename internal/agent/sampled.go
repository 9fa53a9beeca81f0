package agent

import (
	"time"

	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/messaging"
)

// This file is a process as the receiver of the samples that are taken of it.

// Sampled queues samples of which all is known. They may tell that it is time to look at the process.
func (p *program) Sampled(sample sampling.Sample) {
	if sample.TraceID != [16]byte{} {
		key := messaging.Key{TraceID: sample.TraceID, TransactionID: sample.TransactionID, StackTraceID: sample.Stack}
		p.sender.Add(key, sample.Samples, sample.At)
	}
	p.export(&sample) // which has time
	p.watched.sampled.Store(true)
	if program := p.follower.Program(); program != nil && program.LookDue() {
		p.Stir()
	}
}

// Hold passes samples on to the goroutine that may look at the process, as long as not too many wait.
// It gives up those that became late meanwhile: the goroutine cannot while the process makes it hang,
// and many processes that do so would make us keep gigabytes.
func (p *servedProcess) Hold(held []sampling.PendingSample) int {
	n, late := p.held.Add(held, time.Now().Add(-p.agent.config.SamplesDelay))
	for i := range late {
		p.agent.sampling.Refuse(&late[i], process.OutcomeStale)
	}
	return n
}

// Refused counts samples that the sender is not given.
func (p *servedProcess) Refused(outcome process.SampleOutcome, samples uint64) {
	p.refused.Add(outcome, samples)
}

// report hands on samples that were held, unless they became late meanwhile.
func (p *servedProcess) report(held []sampling.PendingSample) {
	p.busySince.Store(p.agent.uptime())
	defer p.busySince.Store(0)
	p.follower.Report(held, p.agent.config.SamplesDelay)
}

// refuseSamples gives the samples that still wait for a process that is gone their outcome. None
// come any more: the process is off the registry and forgotten as a receiver.
func (p *servedProcess) refuseSamples() {
	for {
		select {
		case waiting := <-p.samples:
			p.refuseAll(waiting, process.OutcomeUnknownProcess)
		default:
			held := p.held.Take()
			for i := range held {
				p.agent.sampling.Refuse(&held[i], process.OutcomeUnknownProcess)
			}
			return
		}
	}
}

// unfollow ends the sampling of the process.
func (p *servedProcess) unfollow() {
	if err := p.follower.Unfollow(); err != nil {
		p.trouble(err)
	}
}
