//go:build guest

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

const (
	hotplugged = 1 // the CPU that goes offline and comes back
	several    = 5 // samples
	rate       = 97
)

// onCPU returns a new transaction of a thread that runs on the CPU only.
func onCPU(t *testing.T, p *demo.Process, thread int) demo.TraceID {
	t.Helper()
	p.End(thread)
	testenv.Pin(t, p.Threads()[thread].TID, hotplugged)
	return p.Begin(thread).TraceID
}

// hasSamples waits until samples of a transaction have arrived, in time or late.
func hasSamples(p *demo.Process, trace demo.TraceID) {
	p.ReportWhen("samples of transaction "+trace.String(), func(report demo.Report) bool {
		transaction, _ := report.Transaction(trace)
		return transaction.Samples+transaction.LateSamples >= several
	})
}

// While the agent runs, a CPU goes offline and comes back. What runs there is sampled again, and a
// process that starts there is found without a sweep of the interval.
func TestHotplug(t *testing.T) {
	needSampler(t)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	a := startAgent(t, nil, "--samples-per-second", strconv.Itoa(rate), "--admin-socket", socket,
		"--scan-interval", "1h")
	processes := []*demo.Process{demo.Start(t, demo.Options{Busy: 2, Manual: true})}
	for i, pause := range []bool{true, false} {
		p := processes[i]
		p.Registration(1)
		hasSamples(p, onCPU(t, p, 1))
		testenv.SetOnline(t, hotplugged, false)
		if pause {
			hasSamples(p, p.Begin(1).TraceID) // on CPU 0
		}
		testenv.SetOnline(t, hotplugged, true)
		hasSamples(p, onCPU(t, p, 1))
		testenv.OnCPU(t, hotplugged, func() {
			processes = append(processes, demo.Start(t, demo.Options{Busy: 1, Manual: true}))
		})
	}
	last := processes[len(processes)-1]
	last.Registration(1)
	hasSamples(last, last.Begin(1).TraceID)

	var status struct{ Processes []process.View }
	assert.NilError(t, json.Unmarshal(command(t, "", "status", "-o", "json", "--admin-socket", socket), &status))
	counted := a.end()
	counted.addUp(t)
	var arrived uint64
	for _, p := range processes {
		if !slices.ContainsFunc(status.Processes, func(v process.View) bool {
			return v.PID == p.PID && v.State == process.StateRegistered
		}) {
			t.Errorf("process %d is not registered: %+v", p.PID, status.Processes)
		}
		report := p.Quit()
		clean(t, report)
		if report.Registrations != 1 {
			t.Errorf("process %d was registered %d times", p.PID, report.Registrations)
		}
		arrived += report.Samples + report.LateSamples
	}
	assert.Check(t, counted["samples_sent"] == arrived,
		"%d samples arrived of %d sent", arrived, counted["samples_sent"])
	assert.Check(t, counted["events_failed"] == 0, "live events failed %d times", counted["events_failed"])
}

func perfEvents(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	assert.NilError(t, err)
	for _, file := range files {
		if target, _ := os.Readlink(file); target == "anon_inode:[perf_event]" {
			n++
		}
	}
	return n
}

// burn returns when a thread has used CPU time for ten times several samples: late interrupts are
// omitted by the kernel, and these CPUs are slow.
func burn(t *testing.T, pid, tid int) {
	t.Helper()
	used := func() (ns uint64) {
		// The first number: Documentation/scheduler/sched-stats.rst.
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
		if err == nil {
			_, err = fmt.Sscan(string(text), &ns)
		}
		assert.NilError(t, err)
		return ns
	}
	until := used() + 10*several*uint64(time.Second)/rate
	testenv.Poll(t, deadline, "CPU time to be used", func() bool { return used() >= until })
}

// A recording goes on when a CPU goes offline and comes back. What it may have missed is counted.
func TestHotplugWhileRecording(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Busy: 2, Manual: true, Service: "plugged"})
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	cmd := exec.Command(installed(t), "record", "-d", "1h", "--rate", strconv.Itoa(rate), "--unwinder",
		"frame-pointers", "-o", path)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	// Each CPU has an event that samples, and two that find processes (procscan/watch: perfRing).
	const events = 3
	covers := func(cpus int) {
		t.Helper()
		testenv.Poll(t, deadline, fmt.Sprintf("events of %d CPUs", cpus), func() bool {
			return perfEvents(t, cmd.Process.Pid) == events*cpus
		})
	}
	covers(2)
	want := make(map[string]string)
	for range 3 {
		testenv.SetOnline(t, hotplugged, false)
		covers(1)
		testenv.SetOnline(t, hotplugged, true)
		covers(2)
		want[onCPU(t, p, 1).String()] = "plugged"
		burn(t, p.PID, p.Threads()[1].TID)
	}
	p.End(1)
	assert.NilError(t, cmd.Process.Signal(os.Interrupt))
	assert.NilError(t, cmd.Wait(), "\n%s", &output)
	got := servicesByTrace(t, readProfile(t, path))
	assert.Check(t, maps.Equal(got, want), "sampled were %v, want %v\n%s", got, want, &output)
	assert.Check(t, regexp.MustCompile(`\nmissed: [1-9][0-9]* ticks?`).Match(output.Bytes()),
		"no ticks were missed:\n%s", &output)
	clean(t, p.Quit())
}
