package demo

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
)

func TestJVM(t *testing.T) {
	needLittleEndian(t)
	p := StartJVM(t, JVMOptions{Threads: 2, Service: "shop"})
	contexts := []Context{p.Begin(0), p.Begin(1)}
	threads := p.Threads()
	if len(threads) != 3 || threads[2].Variable != 0 || threads[0].TID == p.PID {
		t.Fatalf("threads %+v", threads)
	}
	for i, context := range contexts {
		if context.Thread != threads[i] || !context.TraceID.Whole() ||
			context.TransactionID != context.TraceID.TransactionID() ||
			context.SpanID != context.TraceID.SpanID() {
			t.Errorf("context %+v of thread %+v", context, threads[i])
		}
		verifySlot(t, p, context)
		if err := unix.Access("/proc/"+strconv.Itoa(p.PID)+"/task/"+strconv.Itoa(threads[i].TID),
			unix.F_OK); err != nil {
			t.Errorf("thread %d: %v", i, err)
		}
	}
	published, loaded := p.Published(), p.Loaded()
	pointer := func() uint64 { return readWord(t, p.PID, loaded.StoragePointer) }
	want := unhex(t, "0100 04000000") + "shop" + unhex(t, "04000000") + "test"
	if got := readMemory(t, p.PID, published.Storage, len(want)); string(got) != want ||
		pointer() != published.Storage {
		t.Errorf("storage %x, want %x", got, want)
	}
	if p.Withdraw(); pointer() != 0 {
		t.Error("withdrawn, and still published")
	}
	if again := p.Publish(); pointer() != again.Storage {
		t.Error("published again, but not there")
	}
	send(t, connect(t, p), unhex(t, registration),
		unhex(t, correlation(contexts[1].TraceID, contexts[1].TransactionID, stackA, "0200")),
		unhex(t, correlation(contexts[1].TraceID, contexts[0].TransactionID, stackA, "0200")))
	if r := p.Registration(1); r.HostID != "ab" {
		t.Errorf("registration %+v", r)
	}
	p.ReportWhen("all messages", func(r Report) bool { return r.Messages == 3 })
	p.End(1)
	if slot := readMemory(t, p.PID, threads[1].Slot, 4); slot[2] != 1 || slot[3] != 0 {
		t.Errorf("after the end, the slot begins %x", slot)
	}
	if err := p.Command(nil, "begin", "9"); err == nil {
		t.Error("began a transaction on a thread that does not exist")
	}
	report := p.Quit()
	transaction, _ := report.Transaction(contexts[1].TraceID)
	if transaction.Samples != 2 || transaction.Stacks["YLQguzhR2dR6y5M9vnA5mw"] != 2 || transaction.EndNs == 0 ||
		report.Torn != 1 || report.InTime != 1 {
		t.Errorf("report %+v", report)
	}
}

func TestBusyJVMInItsOwnPlace(t *testing.T) {
	testenv.NeedRoot(t)
	p := StartJVM(t, JVMOptions{Threads: 1, Busy: true, Placement: Placement{PrivateTmp: true, UID: 12345, GID: 12346}})
	p.Begin(1)
	p.Begin(1)
	p.End(1)
	report := p.Quit()
	if len(report.Transactions) != 2 || report.CPUInTransactions == 0 {
		t.Errorf("report %+v", report)
	}
}
