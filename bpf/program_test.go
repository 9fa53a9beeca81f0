package bpf

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/self"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// compileProgram compiles testdata/NAME.bpf.c as another project would, unless that was done.
func compileProgram(t testing.TB, name string) *ebpf.CollectionSpec {
	t.Helper()
	testenv.NeedRoot(t)
	program := "bpf-" + name
	return loadSpec(t, filepath.Join(demo.BuildWith(t, []string{"clang"}, program), program+".o"))
}

// sampleThread runs a program whenever a thread has used a CPU for a period, until the test ends.
func sampleThread(t testing.TB, program *ebpf.Program, tid int, period time.Duration) {
	t.Helper()
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(period.Nanoseconds()),
	}, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	assert.NilError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	assert.NilError(t, unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD()))
}

// enableStats makes the kernel measure the run time of programs until the test ends.
func enableStats(t testing.TB) {
	t.Helper()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	assert.NilError(t, err)
	t.Cleanup(func() { stats.Close() })
}

func runs(t testing.TB, program *ebpf.Program) *ebpf.ProgramStats {
	t.Helper()
	stats, err := program.Stats()
	assert.NilError(t, err)
	return stats
}

// benchmarkPeriod is between samples: with a longer one, less of what they need is in the CPU's
// caches.
const benchmarkPeriod = time.Millisecond

// BenchmarkSample compares the kernel's time for a sample of a thread of a target and of another
// process with that of a program that walks the stack and does nothing else.
func BenchmarkSample(b *testing.B) {
	p := demo.Start(b, demo.Options{Busy: 1, Gap: -1, Transaction: 20 * time.Millisecond})
	tid := p.Threads()[1].TID
	enableStats(b)

	var programs struct {
		GetStack *ebpf.Program `ebpf:"get_stack"`
		Nothing  *ebpf.Program `ebpf:"nothing"`
	}
	assert.NilError(b, compileProgram(b, "getstack").LoadAndAssign(&programs, nil))
	defer programs.GetStack.Close()
	defer programs.Nothing.Close()
	measure(b, "nothing", programs.Nothing, tid, 0, nil)
	walking := measure(b, "get_stack", programs.GetStack, tid, 0, nil)

	s := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
	measure(b, "other", s.objects.Sample, tid, walking, nil)
	addDemo(b, s, p)
	measure(b, "target", s.objects.Sample, tid, walking, s)
	bare := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
	addRules(b, bare, p.PID, func() TargetRules { return TargetRules{} })
	measure(b, "bare", bare.objects.Sample, tid, walking, bare)
	contexts := putOBI(b, bare)
	measure(b, "bare/obi", bare.objects.Sample, tid, walking, bare)
	stop := putOBIContexts(b, bare, contexts, p.PID)
	testenv.Poll(b, waiting, "contexts", func() bool { return readSide(b, bare).OfOBI > 0 })
	stop()
	measure(b, "obi", bare.objects.Sample, tid, walking, bare)
	bySpan := openSampler(b, SamplerOptions{SamplesPerSecond: 1, BySpan: true})
	addDemo(b, bySpan, p)
	measure(b, "target+span", bySpan.objects.Sample, tid, walking, bySpan)
	withKernel := openSampler(b, SamplerOptions{SamplesPerSecond: 1, KernelStacks: true})
	addDemo(b, withKernel, p)
	measure(b, "target+kernel", withKernel.objects.Sample, tid, walking, withKernel)

	withRecord := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
	record, rules := startRecords(b, "still")
	record.ask("record "+recordOf(entry(0, 16, "ab")+entry(1, 8, "cd"), 0), "done")
	worker := slices.Max(taskNumbers(b, record.pid))
	for _, keys := range [][]uint8{nil, {0, 1}} {
		addRules(b, withRecord, record.pid, func() TargetRules {
			return TargetRules{OTel: rules.OTel, Keys: keys, KnownKeys: 2}
		})
		measure(b, fmt.Sprintf("record/keys=%d", len(keys)), withRecord.objects.Sample, worker, walking, withRecord)
	}

	// With the chain, whose time includes that of the last program: what it finds costs nearly nothing.
	for _, words := range []uint32{1, 160} {
		unwinding := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
		c := openChain(b)
		c.ask(asked{Words: words})
		setUnwinder(b, unwinding, c.unwinder())
		unwind(b, unwinding, addDemo(b, unwinding, p))
		measure(b, fmt.Sprintf("unwound/words=%d", words), unwinding.objects.Sample, tid, walking, unwinding)
	}
}

// measure samples a thread until the program has run b.N times, and returns its mean time. Counts
// are drained every 100 ms, as they would be.
func measure(b *testing.B, name string, program *ebpf.Program, tid int, walking float64, s *Sampler) (mean float64) {
	b.Run(name, func(b *testing.B) {
		before := runs(b, program)
		sampleThread(b, program, tid, benchmarkPeriod)
		for {
			if done := runs(b, program); done.RunCount-before.RunCount >= uint64(b.N) {
				mean = float64(done.Runtime-before.Runtime) / float64(done.RunCount-before.RunCount)
				break
			}
			time.Sleep(min(time.Duration(b.N)*time.Millisecond, 100*time.Millisecond))
			if s != nil {
				drainAll(b, s)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(mean, "kernel-ns/sample")
		if walking > 0 {
			b.ReportMetric(mean/walking, "×get_stack")
		}
	})
	return mean
}

// BenchmarkDrain drains the counts of 100 ms at 97 samples per second of two busy threads, and
// reports the CPU time, in the kernel and here.
func BenchmarkDrain(b *testing.B) {
	p := demo.Start(b, demo.Options{Busy: 2, Gap: -1})
	s := openSampler(b, SamplerOptions{SamplesPerSecond: 97})
	addDemo(b, s, p)
	b.ReportAllocs()
	var samples uint64
	var waited time.Duration
	var used time.Duration
	for b.Loop() {
		time.Sleep(100 * time.Millisecond)
		before, start := self.Clock(unix.CLOCK_PROCESS_CPUTIME_ID), time.Now()
		assert.NilError(b, s.Drain(func(c Count) { samples += uint64(c.Samples) }))
		waited += time.Since(start)
		used += self.Clock(unix.CLOCK_PROCESS_CPUTIME_ID) - before
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(waited.Nanoseconds())/float64(b.N), "wait-ns/drain")
	b.ReportMetric(float64(used)/float64(samples), "cpu-ns/sample")
}
