package agent

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
	"correlator/profile"
)

// However the variable was placed (TestSampledWhileRewritten has the other flavors), samples come to
// the transactions that they were taken in, with the stacks of what these did. The processes run
// beside each other, and each knows its own traces.
// What runs the same code has the same id, in whatever process and at whatever addresses it runs.
func TestSampledFlavors(t *testing.T) {
	r := run(t, atRate(997))
	// In a pid namespace of its own a process calls itself and its threads by other numbers than we do.
	apart := demo.Start(t, demo.Options{Busy: 1, Placement: demo.Placement{PIDNamespace: true}})
	var first, again *demo.Process // the same program at different addresses
	reports := make(map[*demo.Process]demo.Report)
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.GlibcDynamic, demo.MuslPreloaded, demo.Glibc} {
		p := demo.Start(t, demo.Options{Flavor: flavor, Busy: 2, Gap: -1})
		if flavor == demo.Glibc {
			first, again = cmp.Or(first, p), p
		}
		t.Run(flavor.String(), func(t *testing.T) {
			r := r.in(t)
			threads := make(map[int]uint64)
			report := p.ReportWhen("samples of both threads", func(report demo.Report) bool {
				clear(threads)
				for _, transaction := range report.Transactions {
					threads[transaction.Thread] += transaction.Samples
				}
				return threads[1] > 50 && threads[2] > 50
			})
			reports[p] = report
			r.stacksTrue(p, report)
			clean(t, report)
			if p != again {
				p.StopThreads() // the others have the CPUs
			}
		})
	}
	assert.Check(t, first.Loaded().Base != again.Loaded().Base, "two processes have the same layout")
	ids := frequentIDs(t, reports[first])
	again.ReportWhen("the ids of the other process", func(report demo.Report) bool { return haveIDs(report, ids) })
	r.stacksTrue(apart, r.sampledReport(apart, 20))
	clean(t, apart.Quit())
	first.Kill()
	r.stacks(reports[first]) // outlive their process
	r.end()
	r.added()

	r = run(t, atRate(997)) // another agent computes the same ids
	restarted := again.Registration(2).ReadNs
	again.ReportWhen("the same ids", func(later demo.Report) bool {
		later.Transactions = slices.DeleteFunc(later.Transactions, func(t demo.Transaction) bool {
			return t.BeginNs < restarted
		})
		return haveIDs(later, ids)
	})
}

// kindID is a stack of a kind of transaction.
type kindID struct{ kind, id string }

// samplesByID returns how many samples each stack of each kind of transaction has.
func samplesByID(report demo.Report) map[kindID]uint64 {
	samples := make(map[kindID]uint64)
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			samples[kindID{transaction.Kind, text}] += n
		}
	}
	return samples
}

// frequentIDs returns the stacks that have more than a few samples: where the same is done for long, there are some of
// each soon.
func frequentIDs(t *testing.T, report demo.Report) (ids []kindID) {
	t.Helper()
	for of, n := range samplesByID(report) {
		if n >= 5 {
			ids = append(ids, of)
		}
	}
	assert.Check(t, len(ids) > 0, "%+v", report.Transactions)
	return ids
}

func haveIDs(report demo.Report, ids []kindID) bool {
	samples := samplesByID(report)
	return !slices.ContainsFunc(ids, func(of kindID) bool { return samples[of] == 0 })
}

// Whatever threads do to their slots, no sample comes to a trace that its thread was not working on
// at that instant. There are more traces than can be sent, so many samples come to nothing; none
// comes to something wrong.
func TestSampledWhileRewritten(t *testing.T) {
	r := run(t, atRate(bpf.MaxSamplesPerSecond), patient) // else on a busy machine all may be late
	for _, o := range []demo.Options{
		{Flavor: demo.Glibc, Rewrite: demo.RewriteNew, Swap: true},
		{Flavor: demo.Musl, Rewrite: demo.RewriteNew},
		{Flavor: demo.GlibcDTPMod, Rewrite: demo.RewriteCycle, Swap: true},
	} {
		o.Busy = 4
		p := demo.Start(t, o)
		p.Registration(1)
		correlated, sent := r.kernel(bpf.Correlated), r.Counters().Messages.SamplesSent.Load()
		p.ReportWhen("samples", func(report demo.Report) bool {
			clean(t, report)
			return t.Failed() || r.kernel(bpf.Correlated) >= correlated+2500 && report.Rewrites > 100*2500 &&
				r.Counters().Messages.SamplesSent.Load() > sent
		})
		clean(t, p.Quit())
	}
	r.end()
	r.added()
	wrong := r.kernel(bpf.Malformed) + r.kernel(bpf.Stale)
	assert.Check(t, wrong == 0, "%d samples malformed or of another program", wrong)
}

// A slot that is not resident when a sample is taken is read by the agent: then the sample comes to
// its transaction like the others, or it has an outcome of its own. A sample of a gap comes to
// none, also when the slot is read in the transaction after.
func TestSampledSlotsNotResident(t *testing.T) {
	const phase = 4 * process.MaxContextAge // there is time to page out what was written, and little more
	r := run(t, atRate(997))
	outcomes := &r.Counters().Sampling.Outcomes
	var processes []*demo.Process
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.GlibcDynamic, demo.Musl} {
		p := demo.Start(t, demo.Options{Flavor: flavor, Busy: 1, PageOut: true, Transaction: phase, Gap: phase})
		processes = append(processes, p)
		without := r.statusOf(p).WithoutTrace
		// What the kernel could not read is all that is handed over without a trace. Some of it has arrived
		// when there was more of it a second ago than has ended otherwise since: how much is too old before
		// the agent has read it is up to the machine.
		testenv.Poll(t, deadline, "slots read by the agent, with a trace and without", func() bool {
			otherwise := outcomes.Sum() - outcomes[process.OutcomeCorrelated].Load()
			return r.statusOf(p).WithoutTrace > without && r.kernel(bpf.Unreadable) > otherwise &&
				p.Report().Samples > 100
		})
		r.stacksTrue(p, p.Report())
	}
	r.end()
	r.added()
	for _, p := range processes {
		clean(t, p.Quit())
	}
	unreadable := r.kernel(bpf.Unreadable)
	arrived := outcomes[process.OutcomeCorrelated].Load() - r.kernel(bpf.Correlated)
	assert.Check(t, arrived > 0 && arrived+outcomes[process.OutcomeNoTrace].Load() <= unreadable,
		"%d of %d samples that were unreadable in the kernel arrived", arrived, unreadable)
}

// What happens to processes that are sampled, one after the other, is followed by one agent.
func TestSampled(t *testing.T) {
	r := run(t, atRate(997), func(c *Config) { c.MetricsServices = 10 })
	r.parts(map[string]func(*running){
		"hostile slots":        (*running).hostileSlots,
		"library reloaded":     (*running).libraryReloaded,
		"library loaded later": (*running).libraryLoadedLater,
		"services":             (*running).servicesOfProcesses,
		"JVM, static":          func(r *running) { r.jvm(demo.JVMOptions{FramePointers: true}) },
		"JVM, dynamic without frame pointers": func(r *running) {
			r.jvm(demo.JVMOptions{
				Placement: demo.Placement{Env: []string{"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"}},
			})
		},
	})
}

// Slots that no agent wrote: samples of such a thread, taken or fed, have an outcome, and come to nothing.
func (r *running) hostileSlots() {
	t := r.t
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	p.Registration(1)
	c := r.Counters()
	outcomes := &c.Sampling.Outcomes
	for kind, want := range map[string]struct {
		fed     process.SampleOutcome
		sampled *atomic.Uint64
	}{
		"slot-null":     {process.OutcomeNoSlot, &c.Sampling.Kernel[bpf.NoSlot]},
		"slot-updating": {process.OutcomeUpdating, &c.Sampling.Kernel[bpf.Updating]},
		"slot-version":  {process.OutcomeUnreadable, &c.Sampling.Kernel[bpf.Malformed]},
		"slot-unmapped": {process.OutcomeUnreadable, &outcomes[process.OutcomeUnreadable]},
		"slot-edge":     {process.OutcomeUnreadable, &outcomes[process.OutcomeUnreadable]},
		"slot-wild":     {process.OutcomeUnreadable, &outcomes[process.OutcomeUnreadable]},
	} {
		context := p.Begin(1)
		before := want.sampled.Load()
		p.Spoil(1, kind)
		testenv.Poll(t, deadline, "the outcome of "+kind, func() bool { return want.sampled.Load() > before })
		r.comesTo(p.PID, context.Thread.TID, want.fed)
	}
	trace := p.Begin(1).TraceID
	p.ReportWhen("samples of a slot that is well again", func(report demo.Report) bool {
		transaction, _ := report.Transaction(trace)
		return transaction.Samples > 0
	})
	r.served(p, 1, [16]byte{2})
	clean(t, p.Quit())
}

// A process that blocks the reader of its slot, and one that does so with its storage, lose samples
// of their own, as soon as these are older than the samples-delay, and none of their neighbor's.
func TestSampledNeighborHangs(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 200 * time.Millisecond})
	slot := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	storage := demo.Start(t, demo.Options{Busy: 1, PageOut: true, Gap: -1})
	r := run(t, atRate(997))
	slot.Registration(1)
	slot.Begin(1)
	slot.Spoil(1, "slot-hangs")
	r.sampledReport(storage, 1)
	storage.Hostile("storage-hangs", "")
	for _, p := range []*demo.Process{slot, storage} {
		r.state(p, process.StateError, process.ReasonTimeout.String())
	}
	outcomes := &r.Counters().Sampling.Outcomes
	stale := outcomes[process.OutcomeStale].Load()
	testenv.Poll(t, deadline, "samples that waited too long", func() bool {
		return outcomes[process.OutcomeStale].Load() > stale
	})
	r.sampledReport(neighbor, neighbor.Report().Samples+100)
	neighbor.StopThreads()
	for _, p := range []*demo.Process{slot, storage} {
		p.Kill()
		r.gone(p)
	}
	sender := r.registration(neighbor).sender
	r.end()
	r.arrived(sender, neighbor.Quit())
	r.added()
	full := outcomes[process.OutcomeBacklog].Load()
	assert.Check(t, full == 0, "there was no room for %d samples", full)
}

// Sampling begins when a process has published and ends when it has withdrawn, and of what was
// taken in between nothing is lost: what waits without a socket goes to the next one.
func TestSampledStorageComesAndGoes(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Busy: 1, Gap: -1})
	r := run(t, atRate(997), patient)
	p.Load()
	r.state(p, process.StateNoStorage, "")
	messages := &r.Counters().Messages
	registrations := 0
	testenv.Poll(t, deadline, "samples that wait for a socket", func() bool { // none may be taken at the end
		registrations++
		p.Publish()
		p.Registration(registrations)
		r.sampledReport(p, p.Report().Samples+100)
		p.Withdraw()
		r.state(p, process.StateNoStorage, "")
		r.recounted()
		return messages.SamplesQueued.Load() > messages.SamplesSent.Load()
	})
	r.notSampled()
	before := p.Report()
	p.Republish(filepath.Join(p.Dir, "second.socket"), "")
	p.Registration(registrations + 1)
	r.sampledReport(p, before.Samples+100)
	r.stacksTrue(p, p.Report())
	r.end()
	report := p.Quit()
	clean(t, report)
	r.added()
	sent := messages.SamplesSent.Load()
	assert.Check(t, sent == report.Samples+report.LateSamples && sent == messages.SamplesQueued.Load(),
		"%d samples correlated, %d sent, %d arrived", messages.SamplesQueued.Load(), sent, report.Samples)
}

// A library that was loaded again needs another rule. It can be another library, whose variable is
// placed otherwise, and nobody may have seen the moment at which there was none.
func (r *running) libraryReloaded() {
	t := r.t
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	for n, fixture := range []string{"", "glibc-dtpmod-local", "glibc-tlsdesc-local"} {
		if fixture != "" {
			p.Unload()
			addLibrary(t, p, demo.Fixture(t, demo.Machine+"-"+fixture))
			p.Publish()
		}
		p.Registration(n + 1)
		r.state(p, process.StateRegistered, "")
		r.sampledReport(p, p.Report().Samples+100)
		r.stacksTrue(p, p.Report())
	}
	clean(t, p.Quit())
}

// What a process is after an exec is not sampled by the rule of what it was before. When it takes
// part again it is sampled again, by a rule of its own.
func TestSampledExec(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := run(t, atRate(997), sweepOnce)
	r.sampledReport(p, 100)
	testenv.Poll(t, 4*deadline, "a sample to be found to be of another program", func() bool {
		p.Restart(false)
		p.Registration(1)
		r.stacksTrue(p, r.sampledReport(p, 100))
		r.recounted()
		return r.kernel(bpf.Stale) > 0
	})
	harmless(t, p.Report())

	loop := filepath.Join(p.Dir, "loop")
	testenv.WriteFile(t, loop, "while :; do :; done\n")
	p.Exec("sh", loop)
	r.gone(p)
	r.notSampled()
	p.Kill()
	r.end()
	r.added()
}

// Code of a library that was loaded after the process was probed has the id of the library's from
// the first sample on.
func (r *running) libraryLoadedLater() {
	t := r.t
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	r.sampledReport(p, 300) // a look that was made before is no hindrance to another
	assert.Assert(t, len(executable(t, p, "libm.so.6")) == 0, "the library is there already")
	p.Borrow("libm.so.6", "erfc")
	var named uint64
	report := p.ReportWhen("samples in the library", func(report demo.Report) bool {
		ranges, stacks := executable(t, p, "libm.so.6"), r.stacks(report)
		for text, frames := range stacks {
			for _, frame := range frames {
				if frame.Kind() == profile.NativeFrame && filepath.Base(frame.File.Path) == "libm.so.6" {
					named++
				}
				inside := slices.ContainsFunc(ranges, func(r [2]uint64) bool {
					return r[0] <= frame.Address && frame.Address < r[1]
				})
				assert.Check(t, frame.Kind() != profile.AnonymousFrame || !inside, "stack %s: %v", text, frames)
			}
		}
		return named > 0
	})
	r.stacksTrue(p, report)
}

// executable is where a process has mapped the code of a file.
func executable(t *testing.T, p *demo.Process, name string) (found [][2]uint64) {
	t.Helper()
	maps := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/maps", p.PID))
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		var rights string
		_, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &rights)
		assert.NilError(t, err)
		if strings.Contains(rights, "x") && strings.Contains(line, name) {
			found = append(found, [2]uint64{start, end})
		}
	}
	return found
}

// The threads of a real JVM: what Java code burns in a transaction comes to that transaction,
// however the variable was placed, and whether or not the stacks of that code can be walked.
func (r *running) jvm(o demo.JVMOptions) {
	o.Busy, o.Threads = true, 2
	p := demo.StartJVM(r.t, o)
	p.Registration(1)
	r.state(p, process.StateRegistered, "")
	r.recounted()
	wrong := func() uint64 { return r.kernel(bpf.UnwindingFailed) + r.kernel(bpf.Malformed) }
	before := wrong()
	// Until the loop that burns CPU is compiled, some of its callers do not show.
	for transactions, rooted := 0, false; transactions < 2 || !rooted; transactions++ {
		assert.Assert(r.t, transactions < 1000, "most stacks do not reach the beginning of their thread")
		traces := []demo.TraceID{p.Begin(1).TraceID, p.Begin(2).TraceID}
		rooted = r.javaStacks(p.ReportWhen("samples of both threads", func(report demo.Report) bool {
			first, _ := report.Transaction(traces[0])
			second, _ := report.Transaction(traces[1])
			return first.Samples >= 50 && second.Samples >= 50
		}), traces[0]) || !o.FramePointers
	}
	p.End(1)
	p.End(2)
	sender := r.registration(p).sender
	p.ReportWhen("all that was sent", func(report demo.Report) bool {
		stats := sender.Stats()
		return stats.Queued == 0 && report.Samples+report.LateSamples == stats.Sent
	})
	report := p.Quit()
	r.gone(p)
	clean(r.t, report)
	assert.Check(r.t, report.Samples+report.LateSamples <= sender.Stats().Sent, "more arrived than was sent")
	n := wrong() - before
	assert.Check(r.t, n == 0, "%d samples without stack, or malformed", n)
}

// javaStacks reports whether of the samples of a transaction of a JVM nine tenths have stacks that reach the
// thread's beginning, by frame pointers. The code of the loop that burns CPU is made at run time and lies in
// no file; it leads back to the JVM itself, and from there to where the thread began.
func (r *running) javaStacks(report demo.Report, trace demo.TraceID) bool {
	r.t.Helper()
	var compiled, rooted uint64
	stacks := r.stacks(report)
	transaction, _ := report.Transaction(trace)
	for text, n := range transaction.Stacks {
		if frames := stacks[text]; frames[0].Kind() == profile.AnonymousFrame {
			compiled += n
			if root := frames[len(frames)-1]; len(frames) > 5 && root.Kind() == profile.NativeFrame {
				rooted += n
			}
		}
	}
	assert.Check(r.t, compiled > 0, "no stack is in code without a file")
	return rooted >= compiled*9/10
}

// Where there is nothing to sample, there is no engine, which takes memory, and nothing is amiss. An
// agent that must have it is ready when it runs; then the stacks of a JVM without frame pointers are
// unwound and named.
func TestSampledUnwound(t *testing.T) {
	testenv.NeedUnwinding(t)
	r := run(t, atRate(97), func(c *Config) { c.Unwinder = sampling.AutoUnwinder })
	r.swept(3)
	u, started := r.Unwinding(), r.Counters().Sampling.Unwinding.Started.Load()
	assert.Check(t, !u.Needed && !u.Loaded && u.Err() == nil && started == 0, "no process: %+v", u)
	r.end()

	p := demo.StartJVM(t, demo.JVMOptions{Busy: true, Threads: 2})
	r = run(t, atRate(97), func(c *Config) { c.Unwinder = sampling.FullUnwinder })
	counters := &r.Counters().Sampling.Unwinding
	p.Registration(1)
	testenv.Poll(t, deadline, "the engine", func() bool { return r.Ready() == nil })
	u = r.Unwinding()
	assert.Check(t, u.Needed && u.Loaded && u.Err() == nil, "ready with %+v", u)
	testenv.Poll(t, deadline, "an unwound process", func() bool { return r.Unwinding().Unwound == 1 })
	p.Begin(1)
	report := p.ReportWhen("a whole stack", func(report demo.Report) bool {
		_, whole := r.whole(report)
		return whole > 0
	})
	s := r.Status()
	assert.Check(t, s.Unwinder == sampling.FullUnwinder && s.Unwinding != nil && s.NotReady == "", "%+v", s.Unwinding)
	p.End(1)
	r.end()
	r.added()
	clean(t, report)
	clean(t, p.Quit())
	assert.Check(t, counters.Started.Load() == 1 && counters.Synchronized.Load() > 0 && counters.Stacks.Load() > 0)
}

// A sampler that finds no callers outside of the chain of frame pointers is said in the status, with the reason.
func TestStatusOfChainOnly(t *testing.T) {
	r := run(t, atRate(20), func(c *Config) { c.chainOnly = true })
	said := r.Status().ChainOnly
	assert.Check(t, said == bpf.ErrChainOnly.Error(), "%q", said)
	r.end()
}

// whole returns how many samples a report has, and how many of these have a whole stack with Java frames
// of the demo.
func (r *running) whole(report demo.Report) (samples, whole uint64) {
	r.t.Helper()
	stacks := r.stacks(report)
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			samples += n
			frames := stacks[text]
			java := slices.ContainsFunc(frames, func(f profile.Frame) bool {
				return f.Kind() == profile.JVMFrame && f.Line > 0 && f.Function.SourceFile == "Demo.java"
			})
			if root := frames[len(frames)-1]; java && root.Kind() == profile.NativeFrame {
				whole += n
			}
		}
	}
	return samples, whole
}
