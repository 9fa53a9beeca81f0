package sampling

import (
	"errors"
	"os"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/profile"
)

// takeDeferred hands on the samples that found no place in the kernel's tables, or whose context could
// not be read there, until the ring buffer was flushed.
func (s *Sampling) takeDeferred(reader *bpf.DeferredReader) {
	var frames []profile.Frame
	for {
		d, err := reader.Read()
		if errors.Is(err, bpf.ErrFlushed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if errors.Is(err, bpf.ErrMalformed) {
			s.check("decoding a deferred sample", err)
			s.counters.Outcomes.Add(process.OutcomeUnreadable, 1)
			continue
		}
		if err != nil {
			s.check("reading the ring buffer", err)
			return
		}
		program := s.program(d.Count.Stack.Target)
		if program == nil {
			s.counters.Outcomes.Add(process.OutcomeUnknownProcess, 1)
			continue
		}
		now, named := newInstant(), false
		at := now.at(d.Time)
		h := PendingSample{
			program: program, sample: newSample(&d.Count, at), key: d.Count.Stack, stack: d.Frames,
			needsContext: d.Outcome == bpf.Unreadable, tid: d.TID, threadPointer: d.ThreadPointer,
		}
		h.sample.Start, h.sample.End = at, at
		if !h.needsContext {
			frames, named = s.takeStack(&h, now.Time, frames)
		}
		if !named {
			s.hold(program, []PendingSample{h})
		}
	}
}
