package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

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

// Samples that are taken have their thread's trace.
func TestSampled(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Busy: 2, Manual: true})
	a := startAgent(t, nil, "--samples-per-second", "997", "--kernel-stacks")
	p.Registration(1)
	first, second := p.Begin(1), p.Begin(2)
	report := p.ReportWhen("samples of both transactions", func(report demo.Report) bool {
		one, _ := report.Transaction(first.TraceID)
		two, _ := report.Transaction(second.TraceID)
		return one.Samples >= 10 && two.Samples >= 10
	})
	clean(t, report)
	counted := a.end()
	counted.addUp(t)
	if report := p.Quit(); counted["samples_sent"] < report.Samples {
		t.Errorf("%d samples arrived of %d sent", report.Samples, counted["samples_sent"])
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

	datagrams := uint64(0)
	without := fmt.Sprintf("%d %d 60b420bb3851d9d47acb933dbe70399b\n", p.PID, context.Thread.TID)
	with := fmt.Sprintf("%d %d TJMmu5gF-o-FiCwS6uckzg 2 %s %s\n", p.PID, context.Thread.TID, context.TraceID,
		context.TransactionID)
	warnings := func() []logEntry { return a.logged("samples fed without context cannot be used") }
	testenv.Poll(t, deadline, "a record that is examined", func() bool { // on a busy machine some are too old
		datagrams++
		command(t, without+with, "feed", "--socket", socket)
		return len(warnings()) > 0
	})
	report := p.ReportWhen("samples with their trace",
		func(report demo.Report) bool { return report.Samples >= 2*datagrams })
	clean(t, report)
	transaction, _ := report.Transaction(context.TraceID)
	assert.Check(t, transaction.Stacks["TJMmu5gF-o-FiCwS6uckzg"] == 2*datagrams && len(transaction.Stacks) == 1,
		"the transaction has %+v", transaction)

	counted := a.end()
	counted.addUp(t)
	unsupported, stale := counted["fed_unsupported"], counted["fed_stale"]
	assert.Check(t, unsupported != 0 && unsupported+stale == datagrams && counted["samples_sent"] == 2*datagrams,
		"counters %v", counted)
	if w := warnings(); len(w) != 1 || w[0].Level != "warn" || !strings.Contains(w[0].Error, "missing ") {
		t.Errorf("warnings %+v", w)
	}
}
