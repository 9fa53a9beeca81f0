package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// BenchmarkWork is what it costs to know, all the time, what the threads of 500 processes work on, beside
// what the agent does anyway: the CPU time of the agent and its workers in a few seconds with and
// without. Ten processes have 50 threads each, all in transactions; the others have none.
func BenchmarkWork(b *testing.B) {
	testenv.NeedRoot(b)
	const few, crowd = 10, 490
	for range few {
		p := demo.Start(b, demo.Options{Manual: true, Idle: 50})
		for i := range 50 {
			p.Begin(i + 1)
		}
	}
	members := demo.StartMany(b, crowd, demo.Options{})
	a, err := New(Config{ProcRoot: "/proc", SamplesDelay: time.Second, ScanInterval: time.Minute,
		MaxProcesses: DefaultMaxProcesses, AcceptPartialView: true, FeedSocket: b.TempDir() + "/feed",
	}, nil, zap.NewNop())
	assert.NilError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	members.Registered()
	testenv.Poll(b, deadline, "all processes", func() bool { return a.counters.Connections.Load() >= few+crowd })
	for _, asks := range []bool{false, true} {
		b.Run(map[bool]string{false: "nobody asks", true: "asked"}[asks], func(b *testing.B) {
			const seconds = 20
			for b.Loop() {
				threads, reads := make(map[int]int), 0
				before := usedByAgent(b)
				for range seconds {
					time.Sleep(time.Second) // that is what is measured
					if !asks {
						continue
					}
					found, _, err := a.Work()
					if err != nil {
						b.Fatal(err)
					}
					reads += len(found)
					for _, p := range found {
						threads[p.Process.PID] = len(p.Threads)
					}
				}
				b.ReportMetric(100*(usedByAgent(b)-before).Seconds()/seconds, "%core")
				b.ReportMetric(float64(len(threads)), "processes_known")
				b.ReportMetric(float64(reads)/seconds, "of_them_read/s")
				b.ReportMetric(float64(wereRead(a)), "processes_read")
			}
		})
	}
}

// wereRead returns how many processes were read at least once.
func wereRead(a *Agent) (n int) {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	for _, r := range a.registrations.All() {
		if !r.work.readAt.IsZero() {
			n++
		}
	}
	return n
}

// usedByAgent returns the CPU time that the agent, which this process is, and its workers have used:
// all threads of processes that run this program.
func usedByAgent(b *testing.B) (used time.Duration) {
	b.Helper()
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		b.Fatal(err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		if program, err := os.Readlink(file); err != nil || program != own {
			continue
		}
		threads, err := filepath.Glob(filepath.Join(filepath.Dir(file), "task/*/schedstat"))
		if err != nil || len(threads) == 0 {
			b.Fatal("no threads", err)
		}
		for _, thread := range threads {
			var ns int64
			if _, err := fmt.Sscan(string(testenv.ReadFile(b, thread)), &ns); err != nil {
				b.Fatal(err)
			}
			used += time.Duration(ns)
		}
	}
	return used
}
