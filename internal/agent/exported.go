package agent

import (
	"path"
	"time"

	"correlator/internal/sampling"
	"correlator/otlp/profiles"
)

// An Exporter takes what was sampled, besides the senders. It must not block.
type Exporter interface {
	// Sampled takes samples of which all is known; they stay the caller's, but for the Resource.
	Sampled(sample *profiles.Sample)
	// TakesUntraced says whether samples of threads that worked on no trace are wanted, too.
	TakesUntraced() bool
}

// program is a process, from one exec and registration to the next, as the receiver of its samples.
type program struct {
	*servedProcess
	resource *profiles.Resource // nil: its samples are not exported
	names    *threadNames
}

// newProgram is for the goroutine of the process. What it publishes was read before the program is sampled, so it
// is of the same or, if it was just replaced, of one of which no sample comes.
func (p *servedProcess) newProgram() *program {
	if p.agent.exporter == nil {
		return &program{servedProcess: p}
	}
	p.names = newThreadNames() // the threads of another program are others, though the first has the same number
	storage := p.target.Storage()
	resource := profiles.Resource{
		ServiceName: storage.ServiceName, Environment: storage.ServiceEnvironment,
		ContainerID: p.target.Cgroup().ContainerID, PID: p.id.PID,
	}
	if executable, err := p.target.Handle().Executable(); err == nil && path.IsAbs(executable) {
		resource.ExecutablePath, resource.ExecutableName = executable, path.Base(executable)
	}
	return &program{servedProcess: p, resource: &resource, names: p.names}
}

// export hands samples to the exporter, with the frames behind their id.
func (p *program) export(sample *sampling.Sample) {
	if p.resource == nil {
		return
	}
	frames, _ := p.agent.sampling.Stack(sample.Stack) // without any, the exporter counts them as lost
	exported := profiles.Sample{
		Process: p.resource, Stack: sample.Stack, Frames: frames,
		TraceID: sample.TraceID, SpanID: sample.SpanID, TransactionID: sample.TransactionID,
		TID: sample.TID, Count: sample.Samples, Start: sample.Start, End: sample.End,
	}
	if sample.TID != 0 {
		exported.Thread = p.names.get(sample.TID, time.Now())
	}
	p.agent.exporter.Sampled(&exported)
}
