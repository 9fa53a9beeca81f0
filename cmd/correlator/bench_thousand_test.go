package main

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/cost"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// BenchmarkThousand measures the cost of the agent beside a thousand idle processes that take part,
// the additional cost of a busy one, and how exact the samples of that one are; for comparison also
// beside no idle process. One round takes a minute: -benchtime 1x.
func BenchmarkThousand(b *testing.B) {
	testenv.NeedRoot(b)
	binary := demo.Agent(b, b.TempDir())
	for _, idle := range []int{0, 1000} {
		for _, perSecond := range []int{20, 0} {
			b.Run(fmt.Sprintf("%d idle at %d Hz", idle, perSecond),
				func(b *testing.B) { thousand(b, binary, idle, perSecond) })
		}
	}
}

func thousand(b *testing.B, binary string, idle, perSecond int) {
	busy := demo.Start(b, demo.Options{Transaction: 500 * time.Millisecond, Gap: 50 * time.Millisecond})
	var crowd *demo.Crowd
	if idle > 0 {
		crowd = demo.StartMany(b, idle, demo.Options{})
	}
	begin := time.Now()
	pid, _ := startBinary(b, binary, "--samples-per-second", strconv.Itoa(perSecond))
	busy.Registration(1)
	if crowd != nil {
		crowd.Registered()
	}
	registered := time.Since(begin)
	time.Sleep(settling)
	for b.Loop() {
		cpuBefore := cost.RunTime([]int{pid})
		time.Sleep(running)
		b.ReportMetric(100*(cost.RunTime([]int{pid})-cpuBefore).Seconds()/running.Seconds(), "idle-%core")
		if perSecond > 0 {
			exactness(b, pid, busy, perSecond)
		}
		b.ReportMetric(registered.Seconds(), "s-to-register")
		b.ReportMetric(residentMB(b, pid), "RSS-MB")
		b.ReportMetric(float64(entries(b, pid, "fd")), "descriptors")
		b.ReportMetric(float64(entries(b, pid, "task")), "threads")
	}
	if crowd == nil {
		return
	}
	for pid, report := range crowd.Quit() {
		if report.Registrations != 1 || report.Messages != 1 {
			b.Errorf("process %d: %d registrations, %d messages: want one registration alone", pid,
				report.Registrations, report.Messages)
		}
	}
}

// settling is how long an agent gets after it has registered with a thousand processes, to release
// memory and to reduce its polling of idle processes.
const settling = 15 * time.Second

// exactness has the process use CPU for a while and compares the samples with that. All CPU time
// until it is told to stop is sampled and sent within the samples-delay.
func exactness(b *testing.B, pid int, busy *demo.Process, perSecond int) {
	b.Helper()
	before, cpuBefore := busy.Report(), cost.RunTime([]int{pid})
	busy.StartThreads(1, "busy")
	time.Sleep(running)
	busy.StopThreads()
	cpu := cost.RunTime([]int{pid}) - cpuBefore
	time.Sleep(time.Second)
	after := busy.Report()
	burnt := after.CPUInTransactions - before.CPUInTransactions
	samples := after.Samples - before.Samples
	b.ReportMetric(100*cpu.Seconds()/running.Seconds(), "busy-%core")
	b.ReportMetric(float64(samples), "samples")
	b.ReportMetric(100*float64(samples)/(burnt.Seconds()*float64(perSecond)), "%delivered")
	if wrong := after.Torn + after.Foreign + after.Malformed + after.Late; wrong != 0 {
		b.Errorf("%d messages were wrong or late", wrong)
	}
}

func entries(b *testing.B, pid int, directory string) int {
	b.Helper()
	found, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, directory))
	assert.NilError(b, err)
	return len(found)
}
