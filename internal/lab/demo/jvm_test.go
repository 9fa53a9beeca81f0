package demo

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestJVM(t *testing.T) {
	needLittleEndian(t)
	p := StartJVM(t, JVMOptions{Threads: 2, Service: "shop"})
	contexts := []Context{p.Begin(0), p.Begin(1)}
	threads := p.Threads()
	assert.Assert(t, len(threads) == 3 && threads[2].Variable == 0 && threads[0].TID != p.PID, "threads %+v", threads)
	for i, context := range contexts {
		if context.Thread != threads[i] || !context.TraceID.Whole() ||
			context.TransactionID != context.TraceID.TransactionID() ||
			context.SpanID != context.TraceID.SpanID() {
			t.Errorf("context %+v of thread %+v", context, threads[i])
		}
		verifySlot(t, p, context)
		assert.Check(t, unix.Access("/proc/"+strconv.Itoa(p.PID)+"/task/"+strconv.Itoa(threads[i].TID),
			unix.F_OK), "thread %d", i)
	}
	published, loaded := p.Published(), p.Loaded()
	pointer := func() uint64 { return readWord(t, p.PID, loaded.StoragePointer) }
	want := unhex(t, "0100 04000000") + "shop" + unhex(t, "04000000") + "test"
	got := readMemory(t, p.PID, published.Storage, len(want))
	assert.Check(t, string(got) == want && pointer() == published.Storage, "storage %x, want %x", got, want)
	p.Withdraw()
	assert.Check(t, pointer() == 0, "withdrawn, and still published")
	again := p.Publish()
	assert.Check(t, pointer() == again.Storage, "published again, but not there")
	send(t, connect(t, p), unhex(t, registration),
		unhex(t, correlation(contexts[1].TraceID, contexts[1].TransactionID, stackA, "0200")),
		unhex(t, correlation(contexts[1].TraceID, contexts[0].TransactionID, stackA, "0200")))
	r := p.Registration(1)
	assert.Check(t, r.HostID == "ab", "registration %+v", r)
	p.ReportWhen("all messages", func(r Report) bool { return r.Messages == 3 })
	p.End(1)
	slot := readMemory(t, p.PID, threads[1].Slot, 4)
	assert.Check(t, slot[2] == 1 && slot[3] == 0, "after the end, the slot begins %x", slot)
	assert.Check(t, p.Command(nil, "begin", "9") != nil, "began a transaction on a thread that does not exist")
	report := p.Quit()
	transaction, _ := report.Transaction(contexts[1].TraceID)
	assert.Check(t, transaction.Samples == 2 && transaction.Stacks["YLQguzhR2dR6y5M9vnA5mw"] == 2 &&
		transaction.EndNs != 0 && report.Torn == 1 && report.InTime == 1,
		"report %+v", report)
}
