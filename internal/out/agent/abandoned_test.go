package agent

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// An end that waits no longer for the goroutine of a process leaves no sample without an outcome. What that
// goroutine holds is abandoned, and counted as nothing else when it goes on after all.
func TestAbandoned(t *testing.T) {
	// The kernel cannot read the slots, so the goroutine has to; and it finds more than the process reads.
	p := demo.Start(t, demo.Options{Busy: 2, Rewrite: demo.RewriteCycle, PageOut: true})
	r := run(t, atRate(997))
	r.sampledReport(p, 1)
	served := r.registrations.Find(p.PID)
	hangs, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	assert.Assert(t, served.process.Post(func() { close(hangs); <-goOn }), "the process's goroutine takes nothing more")
	<-hangs
	waiting := func() int {
		served.fed.Lock()
		defer served.fed.Unlock()
		return len(served.fed.waiting)
	}
	stale := &r.Counters().Fed[process.OutcomeStale]
	before := stale.Load()
	r.sample(p.PID, p.PID, [16]byte{1})
	testenv.Poll(t, deadline, "a sample that was fed", func() bool {
		if now := stale.Load(); now > before { // one that a busy machine made stale does not wait
			before = now
			r.sample(p.PID, p.PID, [16]byte{1})
		}
		return waiting() > 0
	})
	for range 2 { // the counter may be a second old: what is new the second time was taken after that
		before := r.kernel(bpf.Unreadable)
		testenv.Poll(t, deadline, "samples that wait", func() bool { return r.kernel(bpf.Unreadable) > before+10 })
	}
	r.end()
	warnings := r.logs.FilterMessage("not all processes were released in time").Len()
	r.sampledAdded()
	abandoned := func(o *process.SampleOutcomes) uint64 { return o[process.OutcomeAbandoned].Load() }
	sampled, fed := abandoned(&r.Counters().Sampling.Outcomes), abandoned(&r.Counters().Fed)
	if warnings != 1 || sampled == 0 || fed != 1 || abandoned(&served.refused) != sampled+fed {
		t.Errorf("%d warnings; %d samples abandoned, and %d fed ones, want 1; %d of the process", warnings, sampled, fed,
			abandoned(&served.refused))
	}
	// before the end of the goroutine, if not at once
	assert.Assert(t, served.process.Post(func() { close(over) }), "the process's goroutine takes nothing more")
	close(goOn)
	<-over
	testenv.Poll(t, deadline, "the end of the process's goroutine", func() bool { return len(r.registrations.All()) == 0 })
	r.sampledAdded()
	if fed, outcomes := r.Counters().FedSamples.Load(), r.Counters().Fed.Sum(); outcomes != fed {
		t.Errorf("%d outcomes of %d samples that were fed", outcomes, fed)
	}
}
