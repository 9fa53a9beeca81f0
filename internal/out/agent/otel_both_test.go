package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// awaitSamples waits until so many more samples of a process were exported for which a function returns
// true.
func (x *exporting) awaitSamples(pid int, more uint64, what string, is func(backend.Sample) bool) {
	x.t.Helper()
	count := func() (sum uint64) {
		for sample, n := range x.backend.Profiles().Samples {
			if sample.PID == fmt.Sprint(pid) && is(sample) {
				sum += n
			}
		}
		return sum
	}
	before := count()
	testenv.Poll(x.t, deadline, what, func() bool { return count() >= before+more })
}

// contexts waits until a process is in a state and publishes by these standards.
func (x *exporting) contexts(p *demo.Process, want process.State, kinds ...string) {
	x.t.Helper()
	testenv.Poll(x.t, deadline, fmt.Sprintf("state %s, contexts %v", want, kinds), func() bool {
		for _, status := range x.Status().Processes {
			if status.PID == p.PID {
				return status.State == want && slices.Equal(status.Contexts, kinds)
			}
		}
		return false
	})
}

// A process with both kinds of contexts: while a thread's slot has a trace, that counts, for messages
// and for the exporter; while it has none, the record, for the exporter alone. Either is of use
// without the other.
func TestBothContexts(t *testing.T) {
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.Musl} {
		t.Run(flavor.String(), func(t *testing.T) { testBothContexts(t, flavor) })
	}
}

func testBothContexts(t *testing.T, flavor demo.Flavor) {
	p := demo.Start(t, demo.Options{Flavor: flavor, Service: "both", Busy: 1, Transaction: 50 * time.Millisecond,
		Gap: 50 * time.Millisecond, OTel: true})
	record := newRecord(1, "/a")
	p.SetOTelRecord(1, &record)
	x := runExporting(t, false, contextAttributes)
	inRecord := func(s backend.Sample) bool { return s.TraceID == record.TraceID.String() }
	inTransaction := func(s backend.Sample) bool { return !inRecord(s) }
	x.sampledReport(p, 100)
	x.awaitSamples(p.PID, 50, "samples between transactions", inRecord)
	x.contexts(p, process.StateRegistered, "elastic", "opentelemetry")

	p.WithdrawOTel()
	x.contexts(p, process.StateRegistered, "elastic")
	x.sampledReport(p, p.Report().Samples+100)

	p.PublishOTel("other")
	x.contexts(p, process.StateRegistered, "elastic", "opentelemetry")
	x.awaitSamples(p.PID, 20, "samples of the other service", func(s backend.Sample) bool {
		return inRecord(s) && s.Service == "other"
	})
	report := p.Report()
	assert.Check(t, report.Registrations == 1, "%d registrations", report.Registrations)

	p.Withdraw()
	x.contexts(p, process.StateAttached, "opentelemetry")
	x.awaitSamples(p.PID, 50, "samples without a slot", inRecord)

	p.Publish()
	x.contexts(p, process.StateRegistered, "elastic", "opentelemetry")
	p.SetOTelRecord(1, nil)
	x.sampledReport(p, p.Report().Samples+50)

	exported := x.ended()
	x.exportedAdded(exported, 0)
	x.contextsTrue(p, exported, record, inTransaction)
}

// contextsTrue checks that samples that were exported with the ids of transactions are those that the
// agent in the process was sent, and that all others are of the record.
func (x *exporting) contextsTrue(p *demo.Process, exported backend.Profiles, record demo.OTelRecord,
	inTransaction func(backend.Sample) bool) {
	x.t.Helper()
	code, report := p.Functions(), p.Quit()
	clean(x.t, report)
	byTrace := make(map[string]uint64)
	var ofRecord, betweenTransactions uint64
	for sample, n := range exported.Samples {
		byTrace[sample.TraceID] += n
		if inTransaction(sample) {
			if sample.Route != "" || sample.TransactionID == "" {
				x.t.Errorf("of a transaction: %+v", sample)
			}
			continue
		}
		if sample.SpanID != record.SpanID.String() || sample.TransactionID != fmt.Sprintf("%016x", 1) ||
			sample.Route != "/a" || sample.Service != "both" && sample.Service != "other" {
			x.t.Errorf("of the record: %+v", sample)
		}
		ofRecord += n
		if in(code["housekeeping"], exported.Stacks[sample.Stack]) {
			betweenTransactions += n
		}
	}
	var notSent, dropped uint64
	for _, transaction := range report.Transactions {
		trace := transaction.TraceID.String()
		got, sent := byTrace[trace], transaction.Samples+transaction.LateSamples
		if got < sent {
			x.t.Errorf("%d samples of transaction %s exported, its agent was sent %d", got, trace, sent)
		}
		notSent += got - sent
		delete(byTrace, trace)
	}
	for i := range x.Counters().Messages.Dropped { // when there was no socket
		dropped += x.Counters().Messages.Dropped[i].Load()
	}
	if notSent != dropped {
		x.t.Errorf("%d samples exported and not sent, %d dropped", notSent, dropped)
	}
	delete(byTrace, record.TraceID.String())
	if len(byTrace) > 0 {
		x.t.Errorf("samples of traces that are none of the process: %v", byTrace)
	}
	if got := x.Counters().Sampling.Outcomes[process.OutcomeOTel].Load(); got != ofRecord {
		x.t.Errorf("%d samples in records, %d exported", got, ofRecord)
	}
	if betweenTransactions < 50 {
		x.t.Errorf("of %d samples of the record, %d are of what the process does between transactions", ofRecord,
			betweenTransactions)
	}
}
