//go:build guest

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"correlator/internal/demo"
	"correlator/internal/process"
	"correlator/internal/testenv"
)

const (
	hotplugged = 1 // the CPU that goes offline and comes back
	several    = 5 // samples
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
	a := startAgent(t, nil, "--samples-per-second", "97", "--admin-socket", socket, "--scan-interval", "1h")
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
	if err := json.Unmarshal(command(t, "", "status", "-o", "json", "--admin-socket", socket), &status); err != nil {
		t.Fatal(err)
	}
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
	if counted["samples_sent"] != arrived {
		t.Errorf("%d samples arrived of %d sent", arrived, counted["samples_sent"])
	}
	if counted["events_failed"] != 0 {
		t.Errorf("live events failed %d times", counted["events_failed"])
	}
}

// A recording goes on when a CPU goes offline and comes back.
func TestHotplugWhileRecording(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Busy: 2, Manual: true})
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	p.Begin(2)
	testenv.SetOnline(t, hotplugged, false)
	cmd := exec.Command(installed(t), "record", "-d", "12s", "--rate", "97", "-o", path)
	ended := make(chan error, 1)
	var output []byte
	go func() {
		var err error
		output, err = cmd.CombinedOutput()
		ended <- err
	}()
	want := make(map[string]string)
	for running := true; running; {
		testenv.SetOnline(t, hotplugged, true)
		trace := onCPU(t, p, 1)
		select {
		case err := <-ended:
			running = false
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
		case <-time.After(3 * time.Second): // until the CPU is sampled, and for some samples
			want[trace.String()] = ""
			testenv.SetOnline(t, hotplugged, false)
		}
	}
	got := servicesByTrace(t, readProfile(t, path))
	found := 0
	for trace := range want {
		if _, sampled := got[trace]; sampled {
			found++
		}
	}
	if found < 2 {
		t.Errorf("%d of %d transactions on CPU %d were sampled: %v\n%s", found, len(want), hotplugged, got, output)
	}
	clean(t, p.Quit())
}
