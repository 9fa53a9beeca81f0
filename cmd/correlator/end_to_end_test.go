package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"correlator/internal/demo"
	"correlator/internal/process"
)

var endToEndFlavors = []demo.Flavor{demo.Glibc, demo.GlibcDynamic, demo.Musl}

// The whole of it, with each way to place the variable that a kernel could treat differently, and
// without regard to speed: internal/kernels runs it under emulation, where samples are late and
// dropped. What arrives is right, and the counts add up.
func TestEndToEnd(t *testing.T) {
	needSampler(t)
	command(t, "", "check")

	var processes []*demo.Process
	for _, flavor := range endToEndFlavors {
		processes = append(processes, demo.Start(t, demo.Options{
			Flavor: flavor, Busy: 1, Manual: true, Service: flavor.String()}))
	}
	endToEndRun(t, processes)
	endToEndRecord(t, processes)
	for _, p := range processes {
		clean(t, p.Quit())
	}
}

// endToEndRun checks that samples of all processes are delivered, and what status says of them.
func endToEndRun(t *testing.T, processes []*demo.Process) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	a := startAgent(t, nil, "--samples-per-second", "97", "--admin-socket", socket)
	begun := make(map[int]demo.Context)
	for _, p := range processes {
		p.Registration(1)
		begun[p.PID] = p.Begin(1)
	}
	const several = 5
	for _, p := range processes {
		p.ReportWhen("samples of its transaction", func(report demo.Report) bool {
			transaction, _ := report.Transaction(begun[p.PID].TraceID)
			return transaction.Samples >= several
		})
	}
	var status struct{ Processes []process.View }
	if err := json.Unmarshal(command(t, "", "status", "-o", "json", "--admin-socket", socket), &status); err != nil {
		t.Fatal(err)
	}
	var registered []int
	for _, view := range status.Processes {
		if view.State == process.StateRegistered {
			registered = append(registered, view.PID)
		}
	}
	counted := a.end()
	counted.addUp(t)
	var arrived uint64
	for _, p := range processes {
		if !slices.Contains(registered, p.PID) {
			t.Errorf("process %d is not registered: %+v", p.PID, status.Processes)
		}
		report := p.Report()
		clean(t, report)
		arrived += report.Samples + report.LateSamples
	}
	if counted["samples_sent"] != arrived {
		t.Errorf("%d samples arrived of %d sent", arrived, counted["samples_sent"])
	}
}

// endToEndRecord checks that a recording has samples of the transactions of all processes, and of
// no others.
func endToEndRecord(t *testing.T, processes []*demo.Process) {
	t.Helper()
	want := make(map[string]string) // service by trace
	for i, p := range processes {
		p.End(1)
		want[p.Begin(1).TraceID.String()] = endToEndFlavors[i].String()
	}
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	recording := exec.Command(installed(t), "record", "-d", "3s", "--rate", "97", "-o", path)
	if output, err := recording.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	samples := make(map[string]int) // by trace
	for _, sample := range readProfile(t, path).Sample {
		for _, trace := range sample.Label["trace_id"] {
			samples[trace]++
			if service := sample.Label["service"]; !slices.Equal(service, []string{want[trace]}) {
				t.Errorf("a sample of trace %s is of service %q, not %q", trace, service, want[trace])
			}
		}
	}
	for trace, service := range want {
		if samples[trace] == 0 {
			t.Errorf("no sample of %s, trace %s: %v", service, trace, samples)
		}
	}
}
