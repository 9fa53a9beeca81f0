package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

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
			pid := startBinary(b, binary, "--samples-per-second", strconv.Itoa(perSecond), "--scan-interval", "30s")
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

// startBinary starts the agent, with a feed, until the benchmark ends.
func startBinary(b testing.TB, binary string, flags ...string) (pid int) {
	b.Helper()
	agent := exec.Command(binary, slices.Concat([]string{"run", "--log-level", "error", "--feed-socket",
		filepath.Join(b.TempDir(), "feed")}, flags)...)
	agent.Stderr = os.Stderr
	assert.NilError(b, agent.Start())
	b.Cleanup(func() {
		agent.Process.Signal(syscall.SIGTERM)
		err := agent.Wait()
		assert.Check(b, err, "the agent ended with %v", err)
	})
	return agent.Process.Pid
}

// measure measures the agent for a while.
func measure(b *testing.B, pid int, busy *demo.Process) {
	b.Helper()
	cpuBefore, userBefore, samplesBefore, programBefore := cpuTime(b, pid), userTime(b,
		pid), busy.Report().Samples, program(b)
	time.Sleep(running)
	cpu, user, samples := cpuTime(b, pid)-cpuBefore, userTime(b, pid)-userBefore, busy.Report().Samples-samplesBefore
	ran := program(b)
	b.ReportMetric(100*cpu.Seconds()/running.Seconds(), "%core")
	b.ReportMetric(residentMB(b, pid), "RSS-MB")
	if samples > 0 {
		b.ReportMetric(float64(samples), "samples")
		b.ReportMetric(float64(cpu.Microseconds())/float64(samples), "cpu-µs/sample")
		b.ReportMetric(float64(user.Microseconds())/float64(samples), "user-µs/sample")
		b.ReportMetric(float64(ran.time-programBefore.time)/float64(ran.count-programBefore.count), "kernel-ns/tick")
	}
}

// cpuTime returns the CPU time of the threads of a process, in nanoseconds. (The time of threads
// that end is not included; those of a Go program do not end.)
func cpuTime(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		b.Fatal("no threads", err)
	}
	for _, file := range files {
		ns, _, _ := strings.Cut(readText(b, file), " ")
		sum += time.Duration(number(b, ns))
	}
	return sum
}

// userTime returns how much of it was outside the kernel, in ticks of 10 ms. The kernel samples
// that at its own ticks.
func userTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	_, stat, _ := strings.Cut(readText(b, fmt.Sprintf("/proc/%d/stat", pid)), ") ")
	return time.Duration(number(b, strings.Fields(stat)[11])) * 10 * time.Millisecond
}

func residentMB(b *testing.B, pid int) float64 {
	b.Helper()
	status := bufio.NewScanner(strings.NewReader(readText(b, fmt.Sprintf("/proc/%d/status", pid))))
	for status.Scan() {
		if kilobytes, ok := strings.CutPrefix(status.Text(), "VmRSS:"); ok {
			return float64(number(b, strings.TrimSuffix(strings.TrimSpace(kilobytes), " kB"))) / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

type programStats struct{ time, count int64 }

// program returns the run time of the sampling programs of this machine: there should be one.
func program(b *testing.B) (sum programStats) {
	b.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return sum
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // unloaded meanwhile
		}
		info, err := p.Info()
		if err == nil && info.Type == ebpf.PerfEvent && info.Name == "sample" {
			if stats, err := p.Stats(); err == nil {
				sum.time += int64(stats.Runtime)
				sum.count += int64(stats.RunCount)
			}
		}
		p.Close()
	}
}

func readText(b *testing.B, path string) string {
	b.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

func number(b *testing.B, text string) int64 {
	b.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
