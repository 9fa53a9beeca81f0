package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// clean checks that a process received nothing wrong.
func clean(t *testing.T, report demo.Report) {
	t.Helper()
	assert.Check(t, report.Torn == 0 && report.Foreign == 0 && report.Malformed == 0 && report.Unregistered == 0,
		"torn %d, foreign %d, malformed %d, before a registration %d: want none of these", report.Torn, report.Foreign,
		report.Malformed, report.Unregistered)
}

// Samples have their thread's trace, with both kinds of thread-local storage.
func TestSampled(t *testing.T) {
	needSampler(t)
	for _, c := range []struct {
		flavor demo.Flavor
		tls    string
	}{{demo.Glibc, "static"}, {demo.GlibcDynamic, "dynamic"}} {
		t.Run(c.tls, func(t *testing.T) {
			p := demo.Start(t, demo.Options{Flavor: c.flavor, Busy: 2, Manual: true})
			a := startAgent(t, nil, "--samples-per-second", "997", "--kernel-stacks")
			p.Registration(1)
			first, second := p.Begin(1), p.Begin(2)
			report := p.ReportWhen("samples of both transactions", func(report demo.Report) bool {
				one, _ := report.Transaction(first.TraceID)
				two, _ := report.Transaction(second.TraceID)
				return one.Samples >= 10 && two.Samples >= 10
			})
			clean(t, report)

			var processes []process.View
			assert.NilError(t, json.Unmarshal(command(t, "", "scan", "-o", "json"), &processes))
			i := slices.IndexFunc(processes, func(v process.View) bool { return v.PID == p.PID })
			if i < 0 || processes[i].TLS != c.tls {
				t.Errorf("process %d is not listed with %s TLS: %+v", p.PID, c.tls, processes)
			}

			counted := a.end()
			counted.addUp(t)
			if report := p.Quit(); counted["samples_sent"] < report.Samples {
				t.Errorf("%d samples arrived of %d sent", report.Samples, counted["samples_sent"])
			}
		})
	}
}

// nestedVariable is set for a test binary that runs in a pid namespace of its own.
const nestedVariable = "CORRELATOR_TEST_NESTED"

// Everything works in a pid namespace below the initial one, for the processes in it. They, the
// correlator and /proc use the pids of that namespace.
func TestInNestedNamespace(t *testing.T) {
	if os.Getenv(nestedVariable) != "" {
		t.Skip("this is the nested namespace")
	}
	needSampler(t)
	self, err := os.Executable()
	assert.NilError(t, err)
	tests := []string{"TestRun", "TestSampled"}
	cmd := exec.Command(testenv.NeedTool(t, "unshare"), "--pid", "--fork", "--kill-child", "--mount-proc",
		self, "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), nestedVariable+"=1")
	output, err := cmd.CombinedOutput()
	for _, test := range tests {
		assert.Assert(t, err == nil && strings.Contains(string(output), "--- PASS: "+test+" "),
			"%s in a nested namespace: %v\n%s", test, err, output)
	}
}

// Without any capability that eBPF needs, samples that are fed with their trace arrive.
func TestFeedWithoutEBPF(t *testing.T) {
	testenv.NeedRoot(t)
	const rights = "-sys_admin,-bpf,-perfmon" // CAP_SYS_ADMIN includes the others
	setpriv := []string{testenv.NeedTool(t, "setpriv"), "--bounding-set", rights, "--inh-caps", rights}
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	socket := filepath.Join(t.TempDir(), "feed")
	a := startAgent(t, setpriv, "--samples-per-second", "0", "--samples-delay", "30s", "--feed-socket", socket)
	p.Registration(1)
	context := p.Begin(1)

	const datagrams = 5
	without := fmt.Sprintf("%d %d 60b420bb3851d9d47acb933dbe70399b\n", p.PID, context.Thread.TID)
	with := fmt.Sprintf("%d %d TJMmu5gF-o-FiCwS6uckzg 2 %s %s\n", p.PID, context.Thread.TID, context.TraceID,
		context.TransactionID)
	for range datagrams {
		command(t, without+with, "feed", "--socket", socket)
	}
	report := p.ReportWhen("samples with their trace",
		func(report demo.Report) bool { return report.Samples >= 2*datagrams })
	clean(t, report)
	transaction, _ := report.Transaction(context.TraceID)
	assert.Check(t, transaction.Stacks["TJMmu5gF-o-FiCwS6uckzg"] == 2*datagrams && len(transaction.Stacks) == 1,
		"the transaction has %+v", transaction)

	counted := a.end()
	counted.addUp(t)
	// Records that became too old on a busy machine are not examined.
	unsupported, stale := counted["fed_unsupported"], counted["fed_stale"]
	assert.Check(t, unsupported != 0 && unsupported+stale == datagrams && counted["samples_sent"] == 2*datagrams,
		"counters %v", counted)
	warnings := a.logged("samples fed without context cannot be used")
	if len(warnings) != 1 || warnings[0].Level != "warn" || !strings.Contains(warnings[0].Error, "missing ") {
		t.Errorf("warnings %+v", warnings)
	}
}

// What is queued when the agent is terminated is sent, or counted as dropped.
func TestTerminatedWithSamplesQueued(t *testing.T) {
	needSampler(t)
	deaf := demo.Start(t, demo.Options{Busy: 1, Transaction: time.Millisecond, Gap: -1, NeverRead: true})
	healthy := demo.Start(t, demo.Options{Busy: 1, Transaction: 500 * time.Millisecond})
	a := startAgent(t, nil, "--samples-per-second", "997")
	a.registered(deaf.PID)
	// A second of CPU time is a thousand samples of as many transactions, the last third of them in
	// time. The queue of the socket holds eleven.
	before := deaf.Report().CPUInTransactions
	deaf.ReportWhen("a second of CPU time", func(report demo.Report) bool {
		return report.CPUInTransactions-before > time.Second
	})
	healthy.ReportWhen("samples", func(report demo.Report) bool { return report.Samples > 100 })
	counted := a.end()

	counted.addUp(t)
	report := healthy.Quit()
	clean(t, report)
	sent := counted["samples_sent"]
	assert.Check(t, report.Samples != 0 && sent > report.Samples && counted["waits_for_room"] != 0,
		"%d samples arrived at the healthy process: %v", report.Samples, counted)
	assert.Check(t, counted.sum("samples_dropped_") != 0, "a process that never reads took all samples: %v", counted)
}
