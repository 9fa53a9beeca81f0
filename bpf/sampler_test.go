package bpf

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/memread"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// waiting is how long a test waits for a state; only a failing test takes that long.
const waiting = 60 * time.Second

func openSampler(t testing.TB, options SamplerOptions) *Sampler {
	t.Helper()
	testenv.NeedRoot(t)
	if options.SamplesPerSecond == 0 {
		options.SamplesPerSecond = 1000
	}
	// The kernel writes all of a table first.
	setDefault(&options.MaxUnwound, 256)
	if !options.KernelStacks {
		setDefault(&options.MaxStacks, 2048)
	}
	s, err := OpenSampler(options)
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, s.Close())
	})
	return s
}

// needSampler ends the test where no sampler can be opened.
func needSampler(t testing.TB) {
	t.Helper()
	testenv.NeedRoot(t)
	err := trySampler()
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
}

var trySampler = sync.OnceValue(func() error {
	s, err := OpenSampler(SamplerOptions{SamplesPerSecond: 1})
	if err != nil {
		return err
	}
	return s.Close()
})

// demoRule returns the rule of a demo process.
func demoRule(t testing.TB, p *demo.Process) tlsdesc.Rule {
	t.Helper()
	library, err := os.Open(p.HostPath(p.Library))
	assert.NilError(t, err)
	defer library.Close()
	info, err := library.Stat()
	assert.NilError(t, err)
	parsed, err := elfsym.ParseLibrary(library, info.Size())
	assert.NilError(t, err)
	memory := memread.Open("/proc", p.PID)
	defer memory.Close()
	rule, err := tlsdesc.Resolve(&parsed.Variable, p.Loaded().Base, memory, executableMappings(t, p.PID))
	assert.NilError(t, err)
	return rule
}

func executableMappings(t testing.TB, pid int) (mappings []procscan.Mapping) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	assert.NilError(t, err)
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.Contains(fields[1], "x") {
			continue
		}
		m := procscan.Mapping{Path: fields[5]}
		_, err := fmt.Sscanf(fields[0], "%x-%x", &m.Start, &m.End)
		assert.NilError(t, err)
		mappings = append(mappings, m)
	}
	return mappings
}

// addDemo makes a demo process a target.
func addDemo(t testing.TB, s *Sampler, p *demo.Process) Target {
	t.Helper()
	return addTarget(t, s, p.PID, func() tlsdesc.Rule { return demoRule(t, p) })
}

func addTarget(t testing.TB, s *Sampler, pid int, rule func() tlsdesc.Rule) Target {
	t.Helper()
	return addRules(t, s, pid, func() TargetRules { return TargetRules{Elastic: rule()} })
}

func addRules(t testing.TB, s *Sampler, pid int, rules func() TargetRules) Target {
	t.Helper()
	identity, err := s.Identify(pid)
	assert.NilError(t, err)
	target, err := s.SetTarget(identity, rules())
	assert.NilError(t, err)
	return target
}

func drainAll(t testing.TB, s *Sampler) (counts []Count) {
	t.Helper()
	assert.NilError(t, s.Drain(func(c Count) { counts = append(counts, c) }))
	return counts
}

func readCounters(t testing.TB, s *Sampler) Counters {
	t.Helper()
	counters, err := s.Counters()
	assert.NilError(t, err)
	return counters
}

func readSide(t testing.TB, s *Sampler) SideCounters {
	t.Helper()
	side, err := s.SideCounters()
	assert.NilError(t, err)
	return side
}

func stop(t testing.TB, s *Sampler) {
	t.Helper()
	assert.NilError(t, s.Stop())
}

func stack(t testing.TB, s *Sampler, key StackKey) Stack {
	t.Helper()
	stack, err := s.Stack(key)
	assert.NilError(t, err)
	return stack
}

// whole checks that the ids of a count belong together, with the span only with BySpan.
func whole(t testing.TB, s *Sampler, c Count) {
	t.Helper()
	trace, span := demo.TraceID(c.TraceID), 0
	if s.options.BySpan {
		span = 1
	}
	assert.Check(t, trace.Whole() && trace.TransactionID() == c.TransactionID && trace.Span(span) == c.SpanID,
		"ids that do not belong together: %+v", c)
	// Another CPU may count between the time of a sample and its count, so that two may have the time of one.
	assert.Check(t, c.First > 0 && (c.First == c.Last || c.First < c.Last && c.Samples > 1) && c.Last <= Now(),
		"taken from %d to %d: %+v", c.First, c.Last, c)
}

// The counts of every thread have the ids that the thread has begun, wherever the thread-local
// variable is placed.
func TestContexts(t *testing.T) {
	flavors := demo.Flavors()
	if os.Getenv(innerVariable) != "" { // there the pids are others, not the memory
		flavors = flavors[:1]
	}
	s := openSampler(t, SamplerOptions{BySpan: true})
	for _, flavor := range flavors {
		t.Run(flavor.String(), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Flavor: flavor, Busy: 3, Untouched: 1, Manual: true})
			target := addDemo(t, s, p)
			begun := make(map[[16]byte]demo.Context)
			for thread := 1; thread <= 3; thread++ {
				context := p.Begin(thread)
				begun[context.TraceID] = context
			}
			drainAll(t, s) // discards the counts of earlier contexts
			seen := make(map[[16]byte]uint32)
			deepest := 0
			testenv.Poll(t, waiting, "samples of three transactions, with callers", func() bool {
				for _, c := range drainAll(t, s) {
					context, ok := begun[c.TraceID]
					assert.Check(t, ok && c.TransactionID == context.TransactionID && c.SpanID == context.SpanID,
						"no thread began %+v", c)
					assert.Check(t, c.Stack.Target == target && c.TraceFlags == 1 && c.Samples != 0,
						"count %+v, target %d", c, target)
					stack := stack(t, s, c.Stack)
					verifyCode(t, p.PID, stack)
					deepest = max(deepest, len(stack.User))
					seen[c.TraceID] += c.Samples
				}
				return len(seen) == 3 && deepest >= 3 // work and its two callers
			})
		})
	}
}

// verifyCode checks that the frames next to the leaf are in code of the process: that of the demo
// has frame pointers, that with which the C library starts threads has none. Of a thread that is in
// the C library, as when the demo tells what it began, or in the vDSO, as when it looks at the time, only the
// leaf is certain.
func verifyCode(t *testing.T, pid int, stack Stack) {
	t.Helper()
	assert.Check(t, len(stack.User) != 0 && len(stack.User) <= MaxFrames, "%d frames", len(stack.User))
	mappings := executableMappings(t, pid)
	for i, addr := range stack.User[:min(3, len(stack.User))] {
		if i == 1 && addr == UnknownCaller {
			continue
		}
		at := slices.IndexFunc(mappings, func(m procscan.Mapping) bool { return m.Start <= addr && addr < m.End })
		if at < 0 {
			t.Errorf("frame %d of %#x is not in code", i, stack.User)
			continue
		}
		name := path.Base(mappings[at].Path)
		if i == 0 && (strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "ld-") || name == "[vdso]") {
			return
		}
	}
}

// waitForOutcome waits for some more samples with this outcome.
func waitForOutcome(t testing.TB, s *Sampler, outcome KernelOutcome) {
	t.Helper()
	waitForCounter(t, s, outcome, readCounters(t, s)[outcome]+5)
}

// waitForFirst waits until there were some samples with this outcome at any time so far. It is for deferred ones while
// nothing reads the ring buffer: once that is full, samples are lost instead.
func waitForFirst(t testing.TB, s *Sampler, outcome KernelOutcome) {
	t.Helper()
	waitForCounter(t, s, outcome, 5)
}

func waitForCounter(t testing.TB, s *Sampler, outcome KernelOutcome, count uint64) {
	t.Helper()
	testenv.Poll(t, waiting, "samples with outcome "+outcome.String(), func() bool {
		return readCounters(t, s)[outcome] >= count
	})
}

func TestUnsampled(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			s := openSampler(t, SamplerOptions{KeepUnsampled: keep})
			p := demo.Start(t, demo.Options{Busy: 1, Unsampled: true, Gap: -1})
			addDemo(t, s, p)
			waitForOutcome(t, s, Unsampled)
			stop(t, s)
			counters := readCounters(t, s)
			samples := uint64(0)
			for _, c := range drainAll(t, s) {
				whole(t, s, c)
				assert.Check(t, c.TraceFlags == 0, "trace flags %d", c.TraceFlags)
				samples += uint64(c.Samples)
			}
			want := counters[Unsampled]
			if !keep {
				want = 0
			}
			assert.Check(t, samples == want && counters[Correlated] == 0,
				"drained %d samples, counters %v", samples, counters)
		})
	}
}

var long = flag.Bool("long", false, "take 10⁶ samples where a test usually takes fewer")

// While slots are written without pause, and moved, no count has ids of two traces. Of samples
// counted at a high rate while tables are swapped without pause, each is drained once.
func TestRewriting(t *testing.T) {
	for _, swap := range []bool{false, true} {
		t.Run(fmt.Sprintf("swap=%v", swap), func(t *testing.T) {
			s := openSampler(t, SamplerOptions{SamplesPerSecond: MaxSamplesPerSecond, BySpan: swap})
			p := demo.Start(t, demo.Options{Busy: 2, Rewrite: demo.RewriteNew, Swap: swap})
			addDemo(t, s, p)
			wanted := uint64(2_000)
			if *long {
				wanted = 500_000
			}
			var drained uint64
			for drained < wanted {
				assert.NilError(t, s.Drain(func(c Count) {
					whole(t, s, c)
					drained += uint64(c.Samples)
				}))
			}
			stop(t, s)
			for _, c := range drainAll(t, s) {
				whole(t, s, c)
				drained += uint64(c.Samples)
			}
			counters := readCounters(t, s)
			assert.Check(t, drained == counters[Correlated],
				"drained %d samples, counted %d", drained, counters[Correlated])
			assert.Check(t, counters[TableFull]+counters[Lost]+counters[UnwindingFailed]+counters[Malformed] == 0,
				"counters %v", counters)
			t.Logf("%d samples, counters %v", drained, counters)
		})
	}
}

// The sum of all counters is how often the program ran, as counted by the kernel.
func TestEverySampleIsCounted(t *testing.T) {
	enableStats(t)
	s := openSampler(t, SamplerOptions{SamplesPerSecond: 5000, KernelStacks: true, MaxCounts: 2, MaxStacks: 2})
	p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond, Gap: time.Millisecond})
	addDemo(t, s, p)
	for _, outcome := range []KernelOutcome{NoTarget, NoTrace, TableFull} {
		// At any time so far: nothing reads the ring buffer, and when it is full samples are lost.
		testenv.Poll(t, waiting, "samples with outcome "+outcome.String(), func() bool {
			return readCounters(t, s)[outcome] > 0
		})
	}
	stop(t, s)
	counters := readCounters(t, s)
	if ran := runs(t, s.objects.Sample).RunCount; ran == 0 || counters.Taken() != ran {
		t.Errorf("%d samples counted, %d taken: %v", counters.Taken(), ran, counters)
	}
}

// Stacks have frames of the kernel only with KernelStacks. Those of the process are where it has entered
// the kernel.
func TestKernelStacks(t *testing.T) {
	t.Run("without", func(t *testing.T) { testKernelStacks(t, demo.Glibc, false) })
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.Musl} {
		t.Run(flavor.String(), func(t *testing.T) { testKernelStacks(t, flavor, true) })
	}
}

func testKernelStacks(t *testing.T, flavor demo.Flavor, kernel bool) {
	// Before Linux 5.15, the kernel walks them.
	walksItself := features.HaveProgramHelper(ebpf.PerfEvent, asm.FnTaskPtRegs) == nil
	s := openSampler(t, SamplerOptions{KernelStacks: kernel, SamplesPerSecond: 5000})
	p := demo.Start(t, demo.Options{Flavor: flavor, Busy: 1, Gap: -1, Transaction: time.Millisecond})
	addDemo(t, s, p)
	const kernelHalf = 1 << 63
	found := false
	enough := func() bool { counters := readCounters(t, s); return counters[Correlated] > 500 }
	testenv.Poll(t, waiting, "samples with and without frames of the kernel", func() bool {
		for _, c := range drainAll(t, s) {
			stack := stack(t, s, c.Stack)
			for _, addr := range stack.Kernel {
				found = true
				assert.Check(t, addr >= kernelHalf, "%#x is not in the kernel", addr)
			}
			for i, addr := range stack.User {
				assert.Check(t, addr < kernelHalf || i == 1 && addr == UnknownCaller, "%#x is in the kernel", addr)
			}
			if walksItself {
				verifyCode(t, p.PID, stack)
			}
		}
		return enough() && found == kernel
	})
}
