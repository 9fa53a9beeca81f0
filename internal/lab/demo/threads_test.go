package demo

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestThreadsSwitchByThemselves(t *testing.T) {
	p := Start(t, Options{Busy: 1, Idle: 1, Transaction: time.Millisecond, Gap: time.Millisecond})
	p.ReportWhen("transactions of both threads", func(r Report) bool {
		var ended [3]int
		for _, transaction := range r.Transactions {
			if transaction.EndNs > transaction.BeginNs {
				ended[transaction.Thread]++
			}
		}
		return ended[1] > 3 && ended[2] > 3
	})
	threads := p.StartThreads(2, "untouched")
	assert.Check(t, len(threads) == 5 && threads[4].Kind == "untouched" && threads[4].Name == "untouched-4",
		"threads %+v", threads)
	for _, thread := range threads {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", p.PID, thread.TID))
		assert.Check(t, err == nil && strings.TrimSpace(string(name)) == thread.Name,
			"thread %+v is called %q, %v", thread, name, err)
	}
	p.StopThreads()
	if threads := p.Threads(); len(threads) != 1 {
		t.Errorf("threads after stopping: %+v", threads)
	}
	report := p.Quit()
	kinds := map[string]bool{}
	var cpu time.Duration
	for _, transaction := range report.Transactions {
		assert.Check(t, transaction.TraceID.Whole() &&
			transaction.TransactionID == transaction.TraceID.TransactionID() && transaction.EndNs != 0,
			"transaction %+v", transaction)
		kinds[transaction.Kind] = true
		cpu += transaction.CPU
	}
	assert.Check(t, len(kinds) == 3 && cpu != 0 && report.CPUInGaps != 0 &&
		report.TransactionsBegun >= uint64(len(report.Transactions)),
		"kinds %v, CPU %v, report %+v", kinds, cpu, report)
	assert.Check(t, len(report.Transactions) != int(report.TransactionsBegun) || cpu == report.CPUInTransactions,
		"transactions had %v of CPU, in all %v", cpu, report.CPUInTransactions)
}

func TestAutoFillsNoSlotBeforeTheRegistration(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Auto: true, Busy: 1, Idle: 1, Transaction: time.Millisecond})
	assert.Check(t, p.Command(nil, "begin", "0") != nil, "began a transaction before the registration")
	for _, thread := range p.Threads() {
		assert.Check(t, thread.Variable == 0, "thread %+v", thread)
	}
	report := p.Report()
	assert.Check(t, report.TransactionsBegun == 0, "%d transactions", report.TransactionsBegun)
	send(t, connect(t, p), unhex(t, registration))
	p.ReportWhen("transactions after the registration", func(r Report) bool { return r.TransactionsBegun > 3 })
	p.Begin(0)
}

func TestRun(t *testing.T) {
	assert.Check(t, Run(func(t testing.TB) {
		p := Start(t, Options{})
		t.Cleanup(func() {
			assert.Check(t, !p.Ended(), "ended before its cleanup")
		})
	}))
	reached := false
	err := Run(func(t testing.TB) {
		Start(t, Options{Service: "x"}).Begin(77)
		reached = true
	})
	assert.Check(t, err != nil && !reached && strings.Contains(err.Error(), "no such thread"),
		"a program with an error: %v", err)
	err = Run(func(t testing.TB) {
		assert.Check(t, false)
		assert.NilError(t, os.ErrExist)
		reached = true
	})
	assert.Check(t, err != nil && !reached, "a program with an assertion that fails: %v", err)
}
