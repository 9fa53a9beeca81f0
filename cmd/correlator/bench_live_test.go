package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/client"
	"correlator/internal/lab/cost"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/live/types"
)

const (
	// liveFor is how long the agent is measured: its CPU time is a few thousandths of that.
	liveFor = time.Minute

	// hosted is how many processes take part, working how many of them have threads in transactions.
	hosted, working = 500, 20
	threadsEach     = 10
)

// BenchmarkLiveView measures the agent with all its workers beside 500 processes that take part, in 20
// of which ten threads each wait in transactions: without a live view, with one that nobody has
// joined, and while a guest has joined what the page does, by dots-json, and the stacks of one
// transaction. "idle" is that alone; "busy" with another thread that uses a CPU in transactions of
// half a second. One round takes four minutes: -benchtime 1x, and -count for others.
func BenchmarkLiveView(b *testing.B) {
	testenv.NeedRoot(b)
	binary := demo.Agent(b, b.TempDir())
	for _, what := range []string{"idle", "busy"} {
		b.Run(what, func(b *testing.B) {
			h := startHosted(b, what == "busy")
			for b.Loop() {
				without := h.measure(b, binary, "none")
				with := h.measure(b, binary, "unwatched", "watched")
				b.ReportMetric(without[0], "none-%core")
				b.ReportMetric(with[0], "unwatched-%core")
				b.ReportMetric(with[1], "watched-%core")
			}
		})
	}
}

type hostedProcesses struct {
	crowd   *demo.Crowd
	working []*demo.Process
	agents  int // that were started so far
}

func startHosted(b *testing.B, busy bool) *hostedProcesses {
	b.Helper()
	h := &hostedProcesses{}
	files := demo.NewFiles(b, demo.Glibc)
	for i := range working {
		o := demo.Options{Files: files, Service: fmt.Sprint("shop-", i), Idle: threadsEach, ReadAtOnce: true,
			Transaction: time.Second, Gap: 100 * time.Millisecond}
		if busy && i == 0 {
			o.Busy, o.Transaction, o.Gap = 1, 500*time.Millisecond, 50*time.Millisecond
		}
		h.working = append(h.working, demo.Start(b, o))
	}
	h.crowd = demo.StartMany(b, hosted-working, demo.Options{Files: files})
	return h
}

// measure returns how much of a core an agent uses that was started for it, in one state after the
// other.
func (h *hostedProcesses) measure(b *testing.B, binary string, states ...string) (percent []float64) {
	b.Helper()
	uri := "ws://" + newLoopback() + ":11233"
	flags := []string{"--admin-socket", filepath.Join(b.TempDir(), "admin")}
	if states[0] != "none" {
		flags = append(flags, "--live-listen", uri)
	}
	pid, end := startBinary(b, binary, flags...)
	defer end()
	h.agents++
	for _, p := range h.working {
		p.Registration(h.agents)
	}
	h.crowd.Registered()
	time.Sleep(settling)
	for _, state := range states {
		var c *client.Client
		if state == "watched" {
			c = watchAsPage(b, uri)
			time.Sleep(settling)
		}
		before := cost.RunTime(cost.Family(pid))
		time.Sleep(liveFor)
		used := cost.RunTime(cost.Family(pid)) - before
		percent = append(percent, 100*used.Seconds()/liveFor.Seconds())
		b.Logf("%s: %.2f %% of a core, %.1f MB", state, percent[len(percent)-1], residentMB(b, pid))
		if c != nil {
			b.Logf("received: %d bytes", c.Counters().ReceivedBytes)
			c.Close()
		}
	}
	return percent
}

// watchAsPage joins what the page does when a transaction was clicked.
func watchAsPage(b *testing.B, uri string) *client.Client {
	b.Helper()
	c := client.New(client.Options{Name: "benchmark"})
	_, errHosts := client.Subscribe[*types.CorrelatorHost](c, nil)
	_, errProcesses := client.Subscribe[*types.CorrelatorProcess](c, nil)
	_, errThreads := client.Subscribe[*types.CorrelatorThread](c, nil)
	_, errTransactions := client.Subscribe[*types.CorrelatorTransaction](c, nil)
	_, errTimes := client.Subscribe[*types.CorrelatorTransactionStack](c, nil)
	_, errStacks := client.Subscribe[*types.CorrelatorStack](c, nil)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	assert.NilError(b, errors.Join(errHosts, errProcesses, errThreads, errTransactions, errTimes, errStacks,
		c.Connect(ctx, uri)))
	return c
}
