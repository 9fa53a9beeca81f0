package agent

import (
	"encoding/base64"
	"flag"
	"math"
	"testing"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// atRate has the agent take so many samples a second.
func atRate(perSecond int) func(*Config) {
	return func(c *Config) { c.SamplesPerSecond, c.ReportInterval = perSecond, 100*time.Millisecond }
}

// sampledAdded checks, after the end, that every sample that was taken ended as exactly one thing,
// and that every one that the kernel handed over did so again.
func (r *running) sampledAdded() {
	r.t.Helper()
	c := r.Counters()
	kernel := func(o bpf.KernelOutcome) uint64 { return c.Sampling.Kernel[o].Load() }
	handed := kernel(bpf.Correlated) + kernel(bpf.TableFull) + kernel(bpf.Unreadable)
	if r.config.Unsampled {
		handed += kernel(bpf.Unsampled)
	}
	if r.exporter != nil && r.exporter.TakesUntraced() {
		handed += kernel(bpf.NoTrace) + kernel(bpf.NoSlot) + kernel(bpf.NotValid) + kernel(bpf.ZeroIDs)
	}
	if sum := c.Sampling.Outcomes.Sum(); sum != handed {
		r.t.Errorf("the kernel handed over %d samples, %d outcomes", handed, sum)
	}
	var dropped uint64
	for i := range c.Messages.Dropped {
		dropped += c.Messages.Dropped[i].Load()
	}
	correlated := c.Sampling.Outcomes[process.OutcomeCorrelated].Load() + c.Fed[process.OutcomeCorrelated].Load()
	queued, sent := c.Messages.Added.Load(), c.Messages.Sent.Load()
	if correlated != queued || queued != sent+dropped {
		r.t.Errorf("%d samples correlated, %d queued, %d sent and %d dropped", correlated, queued, sent, dropped)
	}
	if troubles := c.Sampling.Errors.Load(); troubles != 0 {
		r.t.Errorf("sampling was in trouble %d times", troubles)
	}
}

// sampledReport waits for samples of a process, and returns its report. It asks rarely: a report is
// work, on CPUs that the process is to burn.
func (r *running) sampledReport(p *demo.Process, samples uint64) (report demo.Report) {
	r.t.Helper()
	var asked time.Time
	testenv.Poll(r.t, deadline, "samples", func() bool {
		if time.Since(asked) < 50*time.Millisecond {
			return false
		}
		report, asked = p.Report(), time.Now()
		return report.Samples >= samples
	})
	return report
}

// stacks are the frames of all stacks that a process was sent, by their ids.
func (r *running) stacks(report demo.Report) map[string][]profile.Frame {
	r.t.Helper()
	found := make(map[string][]profile.Frame)
	for _, transaction := range report.Transactions {
		for text := range transaction.Stacks {
			if found[text] == nil {
				found[text] = r.frames(text)
			}
		}
	}
	return found
}

// frames are those of a stack.
func (r *running) frames(text string) []profile.Frame {
	r.t.Helper()
	id, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		r.t.Fatal(err)
	}
	r.kept.mu.Lock()
	defer r.kept.mu.Unlock()
	stack := r.kept.stacks[profile.StackTraceID(id)]
	if stack == nil {
		r.t.Fatalf("no sample had stack %s", text)
	}
	if profile.TraceID(stack.Frames) != stack.ID {
		r.t.Errorf("stack %s has frames with id %s", text, profile.TraceID(stack.Frames))
	}
	return stack.Frames
}

// stacksTrue checks that each stack of each transaction is one of what the process did in it, and
// not of what it does between transactions, and that the frames of all stacks are known. What a
// thread does at the borders of a transaction is neither: switching takes microseconds of it.
func (r *running) stacksTrue(p *demo.Process, report demo.Report) {
	r.t.Helper()
	code, stacks := p.Functions(), r.stacks(report)
	var samples, inWork uint64
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			for _, kind := range []string{"checkout", "search", "browse", "housekeeping"} {
				worked := code[kind].In(stacks[text])
				if worked && kind != transaction.Kind {
					r.t.Errorf("a transaction %q has a stack of %q", transaction.Kind, kind)
				}
				if worked {
					inWork += n
				}
			}
			samples += n
		}
	}
	least := samples * 9 / 10
	if testing.Short() { // emulated CPUs spend more of the time on beginning and ending transactions
		least = samples * 3 / 4
	}
	if inWork < least || samples == 0 {
		r.t.Errorf("of %d samples, %d have a stack of the transaction's work", samples, inWork)
	}
}

// kernel is how many samples ended so in the kernel, as of a second ago at most.
func (r *running) kernel(o bpf.KernelOutcome) uint64 { return r.Counters().Sampling.Kernel[o].Load() }

// recounted waits until the kernel's counters were read again, so many times: after the second, all
// that had happened before is in them. There are samples at any time, if only of idle CPUs.
func (r *running) recounted(times int) {
	r.t.Helper()
	taken := func() (sum uint64) {
		for o := range len(bpf.Counters{}) {
			sum += r.kernel(bpf.KernelOutcome(o))
		}
		return sum
	}
	for range times {
		before := taken()
		testenv.Poll(r.t, deadline, "the kernel's counters to be read", func() bool { return taken() != before })
	}
}

// ofTargets is how many samples were of threads of targets.
func (r *running) ofTargets() (sum uint64) {
	for o := range len(bpf.Counters{}) {
		if outcome := bpf.KernelOutcome(o); outcome != bpf.NoTarget && outcome != bpf.Idle {
			sum += r.kernel(outcome)
		}
	}
	return sum
}

// notSampled makes sure that no process is sampled, though there is one that burns CPU.
func (r *running) notSampled() {
	r.t.Helper()
	r.recounted(2)
	before, others := r.ofTargets(), r.kernel(bpf.NoTarget)
	r.recounted(1)
	if now := r.ofTargets(); now != before {
		r.t.Errorf("%d samples of a process that is not to be sampled", now-before)
	}
	if r.kernel(bpf.NoTarget) == others {
		r.t.Error("nothing burnt CPU")
	}
}

// samplesAreCPU checks that a process got as many samples as its transactions burnt CPU from a time
// on, CLOCK_MONOTONIC in ns. It must have burnt none since the agent's end. The samples of each CPU
// come at even intervals, so their number is closer to the truth than that of as many independent
// ones; 5 times the deviation of the latter is never exceeded by chance.
func (r *running) samplesAreCPU(report demo.Report, fromNs uint64) {
	r.t.Helper()
	var cpu time.Duration
	var samples, late uint64
	for _, transaction := range report.Transactions {
		if transaction.BeginNs > fromNs && transaction.EndNs != 0 {
			cpu += transaction.CPU
			samples += transaction.Samples
			late += transaction.LateSamples
		}
	}
	want := cpu.Seconds() * float64(r.config.SamplesPerSecond)
	r.t.Logf("%d Hz: %d samples, %.1f expected of %v CPU; late %d", r.config.SamplesPerSecond, samples, want, cpu, late)
	if want < 40 {
		r.t.Errorf("%.1f samples expected: too few to tell anything", want)
	}
	if math.Abs(float64(samples)-want) > 5*math.Sqrt(want) {
		r.t.Errorf("%d Hz: %d samples, %.1f expected of %v CPU", r.config.SamplesPerSecond, samples, want, cpu)
	}
}

var long = flag.Bool("long", false, "take the samples that docs/benchmarks.md reports")

// What arrives is what was burnt, and nothing of the gaps.
func TestSamplesAreCPUSeconds(t *testing.T) {
	for _, c := range []struct {
		perSecond int
		samples   uint64
	}{{20, 100}, {97, 400}, {997, 2000}} {
		p := demo.Start(t, demo.Options{Busy: 2, Transaction: 500 * time.Millisecond, Gap: 50 * time.Millisecond})
		r := run(t, atRate(c.perSecond), roomy)
		registered := p.Registration(1).ReadNs
		if *long {
			c.samples *= 10
		}
		r.sampledReport(p, c.samples)
		r.stacksTrue(p, p.Report())
		p.StopThreads() // all that was burnt is sampled
		r.end()
		report := p.Quit()
		clean(t, report)
		r.sampledAdded()
		r.samplesAreCPU(report, registered)
	}
}
