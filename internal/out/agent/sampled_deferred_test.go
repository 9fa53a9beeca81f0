package agent

import (
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// A slot that is not resident when a sample is taken is read by the agent: then the sample comes to
// its transaction like the others, or it has an outcome of its own. A sample of a gap comes to
// none, also when the slot is read in the transaction after.
func TestSampledSlotsNotResident(t *testing.T) {
	const phase = 4 * process.MaxContextAge // there is time to page out what was written, and little more
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.GlibcDynamic, demo.Musl} {
		t.Run(flavor.String(), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Flavor: flavor, Busy: 1, PageOut: true, Transaction: phase, Gap: phase})
			r := run(t, atRate(997))
			outcomes := &r.Counters().Sampling.Outcomes
			// What the kernel could not read is all that is handed over without a trace. Some of it
			// has arrived when there was more of it a second ago than has ended otherwise since:
			// how much is too old before the agent has read it is up to the machine.
			testenv.Poll(t, deadline, "slots read by the agent, with a trace and without", func() bool {
				otherwise := outcomes.Sum() - outcomes[process.OutcomeCorrelated].Load()
				return outcomes[process.OutcomeNoTrace].Load() > 0 && r.kernel(bpf.Unreadable) > otherwise &&
					p.Report().Samples > 100
			})
			r.stacksTrue(p, p.Report())
			r.end()
			clean(t, p.Quit())
			r.sampledAdded()
			unreadable := r.kernel(bpf.Unreadable)
			arrived := outcomes[process.OutcomeCorrelated].Load() - r.kernel(bpf.Correlated)
			t.Logf("%d samples unreadable in the kernel: %d correlated, %d without trace, %d too old", unreadable,
				arrived,
				outcomes[process.OutcomeNoTrace].Load(), outcomes[process.OutcomeStale].Load())
			assert.Check(t, arrived != 0 && arrived+outcomes[process.OutcomeNoTrace].Load() <= unreadable,
				"%d of %d samples that were unreadable in the kernel arrived", arrived, unreadable)
		})
	}
}

// Slots that no agent wrote: samples of such a thread have an outcome, and come to nothing.
func TestSampledHostileSlots(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	r := run(t, atRate(997))
	p.Registration(1)
	outcomes := &r.Counters().Sampling.Outcomes
	for kind, counter := range map[string]*atomic.Uint64{
		"slot-null":     &r.Counters().Sampling.Kernel[bpf.NoSlot],
		"slot-updating": &r.Counters().Sampling.Kernel[bpf.Updating],
		"slot-version":  &r.Counters().Sampling.Kernel[bpf.Malformed],
		"slot-unmapped": &outcomes[process.OutcomeUnreadable],
		"slot-edge":     &outcomes[process.OutcomeUnreadable],
		"slot-wild":     &outcomes[process.OutcomeUnreadable],
	} {
		p.Begin(1)
		before := counter.Load()
		p.Spoil(1, kind)
		testenv.Poll(t, deadline, "the outcome of "+kind, func() bool { return counter.Load() > before })
	}
	trace := p.Begin(1).TraceID
	p.ReportWhen("samples of a slot that is well again", func(report demo.Report) bool {
		transaction, _ := report.Transaction(trace)
		return transaction.Samples > 0
	})
	r.end()
	clean(t, p.Quit())
	r.sampledAdded()
}

// A process that blocks the reader of its slot, and one that does so with its storage, lose samples
// of their own and none of their neighbor's.
func TestSampledNeighborHangs(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 200 * time.Millisecond})
	slot := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	storage := demo.Start(t, demo.Options{Busy: 1, PageOut: true, Gap: -1})
	r := run(t, atRate(997), patient)
	registered := neighbor.Registration(1).ReadNs
	slot.Registration(1)
	slot.Begin(1)
	slot.Spoil(1, "slot-hangs")
	r.sampledReport(storage, 1)
	storage.Hostile("storage-hangs", "")
	for _, p := range []*demo.Process{slot, storage} {
		r.state(p, process.StateError, process.ReasonTimeout.String())
	}
	stale := &r.Counters().Sampling.Outcomes[process.OutcomeStale]
	testenv.Poll(t, deadline, "samples that waited too long", func() bool { return stale.Load() > 0 })
	r.sampledReport(neighbor, 500)
	neighbor.StopThreads()
	for _, p := range []*demo.Process{slot, storage} {
		p.Kill()
		r.gone(p)
	}
	r.end()
	report := neighbor.Quit()
	clean(t, report)
	r.samplesAreCPU(report, registered)
	assert.Check(t, report.LateSamples == 0, "%d samples of the neighbor were late", report.LateSamples)
	r.sampledAdded()
}
