package sampling

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/profile"
)

// A context that is read from outside, by way of the thread pointer of a sample whose thread has ended since,
// is not the sample's: the pointer may be that of another thread by now.
func TestProcessSamplerThreadEnded(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true, PageOut: true})
	thread := p.Begin(1).Thread
	ended := os.Getpid() // as good as a thread that has ended: none of the process
	s := open(t, bpf.SamplerOptions{})
	r := newReceiver(t, 1<<20)
	f := NewProcessSampler(s.Sampling, openTarget(t, p), func(bpf.ExecID) Sink { return r }, new(atomic.Bool),
		time.Hour)
	assert.NilError(t, f.Start())
	s.end()
	f.Serve()
	s.poll("a context that was read in time", func() bool {
		p.Span(1, 2) // not in memory again
		f.inbox.held.Add(1)
		f.report([]pendingSample{{
			program: f.program.Load(), sample: profile.Sample{Count: 1, At: time.Now()}, needsContext: true,
			tid: ended, threadPointer: thread.ThreadPointer,
		}})
		return r.refused[process.OutcomeNoThread].Load() > 0
	})
}
