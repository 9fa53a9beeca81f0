package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/cost"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

const (
	// warmUp is how long the agent is given to load the engine and a JVM to compile its methods.
	warmUp = 10 * time.Second
	// unwoundFor is how long it is measured.
	unwoundFor = 15 * time.Second
)

// BenchmarkUnwinding measures the agent with all its workers, with each setting of the unwinder,
// beside two busy CPUs: in a JVM without flags that handles requests, in one that loops, so that its
// stacks repeat, or in C with frame pointers. One round takes half a minute: -benchtime 1x.
func BenchmarkUnwinding(b *testing.B) {
	testenv.NeedRoot(b)
	binary := demo.Agent(b, b.TempDir())
	stats, err := ebpf.EnableStats(0) // BPF_STATS_RUN_TIME
	assert.NilError(b, err)
	defer stats.Close()
	for _, what := range []string{"C", "JVM loop", "JVM"} {
		for _, perSecond := range []int{20, 97} {
			for _, unwinder := range []string{"frame-pointers", "auto"} {
				b.Run(fmt.Sprintf("%s/%d Hz/%s", what, perSecond, unwinder), func(b *testing.B) {
					busy := startBusy(b, what)
					socket := filepath.Join(b.TempDir(), "admin")
					pid, _ := startBinary(b, binary, "--admin-socket", socket, "--scan-interval", "30s",
						"--samples-per-second", strconv.Itoa(perSecond), "--unwinder", unwinder)
					busy.Registration(1)
					serveBusy(b, busy, what)
					for b.Loop() {
						time.Sleep(warmUp)
						measureFamily(b, pid, binary, socket)
					}
				})
			}
		}
	}
}

// startBusy starts a process that keeps two CPUs busy in transactions; JVMs do with serveBusy.
func startBusy(b *testing.B, what string) *demo.Process {
	b.Helper()
	switch what {
	case "JVM":
		return demo.StartJVM(b, demo.JVMOptions{Threads: 2})
	case "JVM loop":
		return demo.StartJVM(b, demo.JVMOptions{Threads: 2, Busy: true})
	}
	return demo.Start(b, demo.Options{Busy: 2, Transaction: 500 * time.Millisecond, Gap: 50 * time.Millisecond})
}

func serveBusy(b *testing.B, busy *demo.Process, what string) {
	b.Helper()
	for thread := 1; thread <= 2; thread++ {
		switch what {
		case "JVM loop":
			busy.Begin(thread)
		case "JVM":
			assert.NilError(b, busy.Command(nil, "serve", strconv.Itoa(thread)))
		}
	}
}

func measureFamily(b *testing.B, pid int, binary, socket string) {
	b.Helper()
	before, samplesBefore, programBefore := cost.RunTime(cost.Family(pid)), correlated(b, binary, socket), sampler(pid)
	time.Sleep(unwoundFor)
	members := cost.Family(pid)
	used, samples := cost.RunTime(members)-before, correlated(b, binary, socket)-samplesBefore
	for i, member := range members {
		b.Logf("process %d: %.1f MB", i, cost.ProportionalMB([]int{member}))
	}
	ran := sampler(pid)
	ranFor, ticks := float64(ran.Runtime-programBefore.Runtime), float64(max(ran.RunCount-programBefore.RunCount, 1))
	b.ReportMetric(100*used.Seconds()/unwoundFor.Seconds(), "%core")
	b.ReportMetric(cost.ProportionalMB(members), "PSS-MB")
	b.ReportMetric(float64(len(members)), "processes")
	b.ReportMetric(float64(samples), "samples")
	b.ReportMetric(float64(used.Microseconds())/float64(max(samples, 1)), "cpu-µs/sample")
	b.ReportMetric(ranFor/ticks, "kernel-ns/tick")
	b.ReportMetric(ranFor/float64(max(samples, 1)), "kernel-ns/sample")
}

// correlated returns how many samples of transactions an agent has taken.
func correlated(b *testing.B, binary, socket string) uint64 {
	b.Helper()
	out, err := exec.Command(binary, "status", "-o", "json", "--admin-socket", socket).Output()
	assert.NilError(b, err)
	var status struct{ Counters map[string]uint64 }
	assert.NilError(b, json.Unmarshal(out, &status))
	return status.Counters["kernel_correlated"]
}
