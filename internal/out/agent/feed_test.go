package agent

import (
	"encoding/hex"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging/feed"
)

// Records with their context are sent as they are.
func TestFedContext(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, patient)
	p.Registration(1)
	context := p.Begin(1)
	record := feed.Record{
		PID: uint32(p.PID), TID: 1, StackTraceID: [16]byte{1}, Count: 40_000, HasContext: true,
		TraceID: context.TraceID, TransactionID: context.TransactionID,
	}
	r.send(record, record)
	report := p.ReportWhen("80000 samples", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return transaction.Samples == 80_000
	})
	clean(t, report)
	assert.Check(t, report.BadCount == 0, "%d messages with a count that is negative for the agent", report.BadCount)
	r.end()
	r.added()
}

// The worked example of the protocol: three messages for one transaction.
func TestWorkedExample(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	thread := p.Begin(1).Thread
	context := p.Begin(1)
	assert.Assert(t, thread.TID == context.Thread.TID, "another thread")
	for _, message := range []struct {
		stack string
		count uint16
	}{
		{"60b420bb3851d9d47acb933dbe70399b", 2},
		{"4c9326bb9805fa8f85882c12eae724ce", 1},
		{"60b420bb3851d9d47acb933dbe70399b", 1},
	} {
		record := feed.Record{PID: uint32(p.PID), TID: uint32(thread.TID), Count: message.count}
		_, err := hex.Decode(record.StackTraceID[:], []byte(message.stack))
		assert.NilError(t, err)
		r.sendInTime(record)
	}
	p.ReportWhen("the two stacks of the example", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return len(transaction.Stacks) == 2 && transaction.Stacks["YLQguzhR2dR6y5M9vnA5mw"] == 3 &&
			transaction.Stacks["TJMmu5gF-o-FiCwS6uckzg"] == 1
	})
}

// What is no feed datagram is counted by what is wrong with it, and hurts nothing.
func TestMalformedDatagrams(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	conn, err := net.Dial("unixgram", r.config.FeedSocket)
	assert.NilError(t, err)
	defer conn.Close()
	good, err := feed.AppendDatagram(nil, []feed.Record{{PID: uint32(p.PID), TID: 1, Count: 1}})
	assert.NilError(t, err)
	change := func(off int, value byte) []byte {
		bad := append([]byte(nil), good...)
		bad[off] = value
		return bad
	}
	for reason, datagram := range map[feed.RefusalReason][]byte{
		feed.RefusedMagic:    change(0, 'X'),
		feed.RefusedLength:   good[:len(good)-1],
		feed.RefusedCount:    change(8+32, 0),
		feed.RefusedFlags:    change(8+34, 2),
		feed.RefusedReserved: change(6, 1),
	} {
		_, err := conn.Write(datagram)
		assert.NilError(t, err)
		testenv.Poll(t, deadline, "datagram refused for "+reason.String(), func() bool {
			return r.Counters().Feed.Refused[reason].Load() == 1
		})
	}
	r.served(p, 1, [16]byte{1})
	r.end()
	r.added()
}

// A process whose goroutine is not there to take samples loses its own, with a count, and the feed
// goes on.
func TestBacklog(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	context := p.Begin(1)
	hanging := r.registrations.Find(p.PID).process
	begun, release := make(chan struct{}), make(chan struct{})
	hanging.Post(func() { close(begun); <-release })
	<-begun
	for hanging.Post(func() {}) { // until no more may wait
	}
	r.sampleInTime(p.PID, context.Thread.TID, [16]byte{1})
	r.outcome(process.OutcomeBacklog, 1)
	r.feedContext(p, context, 1)
	r.outcome(process.OutcomeCorrelated, 1)
	close(release)
	room := make(chan struct{})
	testenv.Poll(t, deadline, "room for a sample", func() bool { return hanging.Post(func() { close(room) }) })
	<-room
	r.served(p, 1, [16]byte{2})
	r.end()
	r.added()
}

// sampleInTime is sample until that was in time.
func (r *running) sampleInTime(pid, tid int, stack [16]byte) {
	r.t.Helper()
	r.sendInTime(feed.Record{PID: uint32(pid), TID: uint32(tid), StackTraceID: stack, Count: 1})
}

// sendInTime sends a sample without its trace until it was not too old when its thread's context was
// read: on a busy machine that takes several tries.
func (r *running) sendInTime(record feed.Record) {
	r.t.Helper()
	fed := &r.Counters().Fed
	testenv.Poll(r.t, deadline, "a sample in time", func() bool {
		stale, before := fed[process.OutcomeStale].Load(), fed.Sum()
		r.send(record)
		testenv.Poll(r.t, deadline, "an outcome", func() bool { return fed.Sum() == before+uint64(record.Count) })
		return fed[process.OutcomeStale].Load() == stale
	})
}
