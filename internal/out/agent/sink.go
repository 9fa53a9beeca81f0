package agent

import (
	"correlator/internal/attach/process"
	"correlator/messaging"
	"correlator/profile"
)

// program is the sink of a program's samples: they go to the sender of its process, and to the
// exporter.
type program struct {
	*registration
	resource *profile.Resource // nil: its samples are not exported
}

// Sampled queues complete samples. Those in a context of OpenTelemetry's, or in none, are for the exporter alone:
// the agent in the process does not know their ids.
func (p *program) Sampled(sample profile.Sample) {
	if ours := sample.HasTrace() && sample.Context != profile.OTelContext; !ours && p.resource != nil {
		p.exported.Add(sample.Count)
		if !sample.HasTrace() {
			p.untraced.Add(sample.Count)
		}
	} else if ours {
		key := messaging.Key{TraceID: sample.TraceID, TransactionID: sample.TransactionID,
			StackTraceID: sample.Stack.ID}
		p.sender.Queue(key, sample.Count, sample.At)
	}
	if p.resource != nil && p.agent.exporter.TakesSamples() {
		p.export(sample)
	}
}

// export hands samples to the exporter. It is apart from Sampled, so that only samples that are
// exported are moved to the heap.
func (p *program) export(sample profile.Sample) {
	sample.Resource = p.resource
	p.agent.exporter.Sampled(&sample)
}

func (p *program) Accounted(account *profile.Account) {
	if p.resource != nil && p.agent.exporter.TakesAccounts() {
		account.Resource = p.resource
		p.agent.exporter.Accounted(account)
	}
}

// Waited hands a wait to the exporter. The agent in the process takes samples of threads that run.
func (p *program) Waited(sample profile.Sample) {
	if p.resource != nil && p.agent.exporter.TakesAccounts() {
		p.waited(sample)
	}
}

// waited is apart from Waited for the reason that export is from Sampled.
func (p *program) waited(sample profile.Sample) {
	sample.Resource = p.resource
	if waker := &sample.Wait.Waker; waker.PID != 0 {
		if of, known := p.agent.resources.Load(waker.PID); known {
			waker.Service = of.(*profile.Resource).Name
		}
	}
	p.agent.exporter.Waited(&sample)
}

// Refused counts samples that the sender is not given.
func (p *program) Refused(outcome process.SampleOutcome, samples uint64) {
	p.refused.Add(outcome, samples)
}

func (p *program) Flush() { p.sender.Flush() }
