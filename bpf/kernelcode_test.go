package bpf

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// inSystemCalls are threads that are in system calls most of the time: their slots are resident now and then.
var inSystemCalls = demo.Options{Busy: 1, Rewrite: demo.RewriteCycle, PageOut: true}

// A thread that is in a system call has the callers of that on its stack, also with a C library that has no
// frame pointers.
func TestStacksInSystemCalls(t *testing.T) {
	testenv.NeedRoot(t)
	if err := features.HaveProgramHelper(ebpf.PerfEvent, asm.FnTaskPtRegs); err != nil {
		testenv.Missing(t, "needs Linux 5.15: the eBPF helper bpf_task_pt_regs")
	}
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.Musl} {
		o := inSystemCalls
		o.Flavor = flavor
		s := openSampler(t, SamplerOptions{KernelStacks: true, SamplesPerSecond: 5000})
		p := demo.Start(t, o)
		addDemo(t, s, p)
		code := executableMappings(t, p.PID)
		file := func(addr uint64) string {
			at := slices.IndexFunc(code, func(m procscan.Mapping) bool { return m.Start <= addr && addr < m.End })
			if at < 0 {
				return ""
			}
			return path.Base(code[at].Path)
		}
		whole := uint32(0)
		testenv.Poll(t, waiting, "samples in system calls, with callers in the program", func() bool {
			for _, c := range drainAll(t, s) {
				stack := stack(t, s, c.Stack)
				if len(stack.Kernel) == 0 || !strings.HasPrefix(file(stack.User[0]), "libc.so") {
					continue
				}
				if slices.ContainsFunc(stack.User[1:], func(addr uint64) bool { return file(addr) == "demo" }) {
					whole += c.Samples
				}
			}
			return whole >= 10
		})
	}
}

// On kernels that can freeze, no memory of a thread that is in the kernel is read, whether of its context or
// of its stack, not later either. Samples of its user code are as ever.
func TestKernelThatFreezes(t *testing.T) {
	s := openSampler(t, SamplerOptions{
		KernelStacks: true, KeepUntraced: true, SamplesPerSecond: 2000, DeferredBytes: 1 << 24, freezes: true,
	})
	p := demo.Start(t, inSystemCalls)
	untraced := demo.Start(t, inSystemCalls)
	addDemo(t, s, p)
	without := addRules(t, s, untraced.PID, func() TargetRules { return TargetRules{} })
	testenv.Poll(t, waiting, "samples of user code and in the kernel", func() bool {
		counters := readCounters(t, s)
		return counters[Correlated] >= 10 && counters[NoSlot] >= 10 && counters[InKernel] >= 20
	})
	stop(t, s)
	ofUntraced := false
	for _, c := range drainAll(t, s) {
		ofUntraced = ofUntraced || c.Stack.Target == without
		stack := stack(t, s, c.Stack)
		assert.Check(t, len(stack.Kernel) == 0, "counted in the kernel: %#x", stack)
	}
	assert.Check(t, ofUntraced, "no samples of the process without rules")
	verifyDeferred(t, s, readCounters(t, s)[Unreadable], func(d deferredSample) {
		assert.Check(t, len(d.Frames.Kernel) == 0, "deferred in the kernel: %#x", d.Frames)
	})
}

// A program that the kernel's verifier refuses is loaded without what finds callers that are not in the chain of
// frame pointers: samples are counted, and no caller is said to be unknown.
func TestChainOnly(t *testing.T) {
	s := openSampler(t, SamplerOptions{SamplesPerSecond: 2000, ChainOnly: true})
	p := demo.Start(t, inSystemCalls)
	addDemo(t, s, p)
	testenv.Poll(t, waiting, "samples", func() bool { return readCounters(t, s)[Correlated] >= 10 })
	stop(t, s)
	for _, c := range drainAll(t, s) {
		stack := stack(t, s, c.Stack)
		assert.Check(t, len(stack.User) > 0 && !slices.Contains(stack.User, UnknownCaller), "%#x", stack)
	}
}
