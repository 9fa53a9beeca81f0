package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/cost"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// running is how long the agent is measured: one that does next to nothing needs a long time.
const running = 30 * time.Second

// BenchmarkRun measures the cost of the agent beside three processes that take part, one of which
// keeps two CPUs busy in transactions. One round takes half a minute: -benchtime 1x.
func BenchmarkRun(b *testing.B) {
	testenv.NeedRoot(b)
	binary := demo.Agent(b, b.TempDir())
	stats, err := ebpf.EnableStats(0) // BPF_STATS_RUN_TIME
	assert.NilError(b, err)
	defer stats.Close()
	for _, perSecond := range []int{0, 20, 97, 997} {
		b.Run(fmt.Sprintf("%d Hz", perSecond), func(b *testing.B) {
			busy := demo.Start(b, demo.Options{Busy: 2, Transaction: 500 * time.Millisecond,
				Gap: 50 * time.Millisecond})
			idle := []*demo.Process{demo.Start(b, demo.Options{Idle: 2}), demo.Start(b, demo.Options{Idle: 2})}
			pid, _ := startBinary(b, binary, "--samples-per-second", strconv.Itoa(perSecond), "--scan-interval", "30s")
			for _, p := range append(idle, busy) {
				p.Registration(1)
			}
			b.ResetTimer()
			for b.Loop() {
				measure(b, pid, busy)
			}
		})
	}
}

// startBinary starts the agent, with a feed, until end is called, or the benchmark ends.
func startBinary(b testing.TB, binary string, flags ...string) (pid int, end func()) {
	b.Helper()
	agent := exec.Command(binary, slices.Concat([]string{"run", "--log-level", "error", "--feed-socket",
		filepath.Join(b.TempDir(), "feed")}, flags)...)
	agent.Stderr = os.Stderr
	assert.NilError(b, agent.Start())
	end = sync.OnceFunc(func() {
		agent.Process.Signal(syscall.SIGTERM)
		err := agent.Wait()
		assert.Check(b, err, "the agent ended with %v", err)
	})
	b.Cleanup(end)
	return agent.Process.Pid, end
}

func measure(b *testing.B, pid int, busy *demo.Process) {
	b.Helper()
	cpuBefore, userBefore := cost.RunTime([]int{pid}), userTime(b, pid)
	samplesBefore, programBefore := busy.Report().Samples, sampler(pid)
	time.Sleep(running)
	cpu, user := cost.RunTime([]int{pid})-cpuBefore, userTime(b, pid)-userBefore
	samples, ran := busy.Report().Samples-samplesBefore, sampler(pid)
	b.ReportMetric(100*cpu.Seconds()/running.Seconds(), "%core")
	b.ReportMetric(residentMB(b, pid), "RSS-MB")
	if samples > 0 {
		b.ReportMetric(float64(samples), "samples")
		b.ReportMetric(float64(cpu.Microseconds())/float64(samples), "cpu-µs/sample")
		b.ReportMetric(float64(user.Microseconds())/float64(samples), "user-µs/sample")
		spent, ticks := ran.Runtime-programBefore.Runtime, ran.RunCount-programBefore.RunCount
		assert.Assert(b, ticks > 0)
		b.ReportMetric(float64(spent)/float64(ticks), "kernel-ns/tick")
	}
}

// userTime returns how much of it was outside the kernel, in ticks of 10 ms. The kernel samples
// that at its own ticks.
func userTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	process, err := procfs.NewProc(pid)
	assert.NilError(b, err)
	stat, err := process.Stat()
	assert.NilError(b, err)
	return time.Duration(stat.UTime) * 10 * time.Millisecond
}

// memoryOf says how much memory a process has.
func memoryOf(t testing.TB, pid int) procfs.ProcStatus {
	t.Helper()
	process, err := procfs.NewProc(pid)
	assert.NilError(t, err)
	status, err := process.NewStatus()
	assert.NilError(t, err)
	return status
}

func residentMB(b *testing.B, pid int) float64 {
	b.Helper()
	return float64(memoryOf(b, pid).VmRSS) / (1 << 20)
}

// sampler returns what the sampling programs of an agent have run, with the programs that they call.
func sampler(pid int) (ran ebpf.ProgramStats) {
	for _, stats := range cost.Programs([]int{pid}, "sample") {
		ran.Runtime += stats.Runtime
		ran.RunCount += stats.RunCount
	}
	return ran
}
