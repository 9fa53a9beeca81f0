package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

var endToEndFlavors = []demo.Flavor{demo.Glibc, demo.GlibcDynamic, demo.Musl}

// The whole of it, with each way to place the variable that a kernel could treat differently, and
// without regard to speed: internal/lab/kernels runs it under emulation, where samples are late and
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
	a := startRaced(t, nil, "--samples-per-second", "97", "--admin-socket", socket)
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
	tls := make(map[int]string)
	// On a slow machine a process is in state error for as long as looking at it takes too long.
	testenv.Poll(t, deadline, "all processes being registered", func() bool {
		registered := make(map[int]bool)
		for _, view := range statusAt(t, socket).Processes {
			registered[view.PID], tls[view.PID] = view.State == process.StateRegistered, view.TLS
		}
		return !slices.ContainsFunc(processes, func(p *demo.Process) bool { return !registered[p.PID] })
	})
	assert.Check(t, tls[processes[0].PID] == "static" && tls[processes[1].PID] == "dynamic", "variables are %v", tls)
	counted := a.end()
	counted.addUp(t)
	var arrived uint64
	for _, p := range processes {
		report := p.Report()
		clean(t, report)
		arrived += report.Samples + report.LateSamples
	}
	assert.Check(t, counted["samples_sent"] == arrived,
		"%d samples arrived of %d sent", arrived, counted["samples_sent"])
}

// endToEndRecord checks that recordings have samples of the transactions of all processes, and of no
// others. On a slow machine it takes more than one, or a long one, until all take part.
func endToEndRecord(t *testing.T, processes []*demo.Process) {
	t.Helper()
	want := make(map[string]string) // service by trace
	for i, p := range processes {
		p.End(1)
		want[p.Begin(1).TraceID.String()] = endToEndFlavors[i].String()
	}
	got := make(map[string]string)
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	recordUntil(t, nil, func(string, string) bool {
		maps.Copy(got, servicesByTrace(t, readProfile(t, path)))
		t.Logf("recorded services by trace: %v, want %v", got, want)
		return maps.Equal(got, want)
	}, "--rate", "49", "-o", path)
}

// servicesByTrace returns the services of the samples in transactions.
func servicesByTrace(t *testing.T, recorded *pprof.Profile) map[string]string {
	t.Helper()
	services := make(map[string]string)
	for _, sample := range recorded.Sample {
		for _, trace := range sample.Label["trace_id"] {
			service := strings.Join(sample.Label["service"], ",")
			before, seen := services[trace]
			assert.Check(t, !seen || before == service, "trace %s is of service %q and of %q", trace, before, service)
			services[trace] = service
		}
	}
	return services
}
