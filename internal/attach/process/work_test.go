package process

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/memread"
	"correlator/profile"
)

// What a slot and a record say together is what the kernel's part makes of them.
func TestWorkOf(t *testing.T) {
	const elastic, otel = "elastic", "opentelemetry"
	const nothing, unknown = "nothing", "unknown"
	none := NumOutcomes // the process has no such variable
	for _, c := range []struct {
		slot, record SampleOutcome
		unsampled    bool // are kept
		want         string
	}{
		{OutcomeCorrelated, none, false, elastic},
		{OutcomeCorrelated, OutcomeCorrelated, false, elastic},
		{OutcomeNoTrace, OutcomeCorrelated, false, otel},
		{OutcomeNoSlot, OutcomeCorrelated, false, otel},
		{OutcomeUnsampled, OutcomeCorrelated, true, otel},
		{OutcomeUnsampled, OutcomeNoTrace, true, elastic},
		{OutcomeUnsampled, OutcomeNoTrace, false, nothing},
		{OutcomeUnsampled, none, false, nothing},
		{OutcomeUpdating, OutcomeCorrelated, false, otel},
		{OutcomeUpdating, OutcomeNoTrace, false, unknown},
		{OutcomeTorn, none, false, unknown},
		{OutcomeUnreadable, OutcomeCorrelated, false, unknown}, // it may have a trace, which would count
		{OutcomeNoTrace, OutcomeUnreadable, false, unknown},
		{OutcomeNoTrace, OutcomeTorn, false, unknown},
		{OutcomeNoTrace, OutcomeNoTrace, false, nothing},
		{OutcomeNoSlot, none, false, nothing},
		{none, OutcomeCorrelated, false, otel},
		{none, OutcomeNoSlot, false, nothing},
		{none, OutcomeUnreadable, false, unknown},
	} {
		var slots []Context
		var records []record
		if c.slot != none {
			slots = []Context{{Outcome: c.slot, Slot: memread.Slot{TraceID: [16]byte{1}}}}
		}
		if c.record != none {
			records = []record{{outcome: c.record, traceID: [16]byte{2}}}
		}
		w, ok := workOf(slots, records, 0, Keep{Unsampled: c.unsampled})
		got := nothing
		switch {
		case ok && !w.Known:
			got = unknown
		case ok && w.Context == profile.ElasticContext && w.TraceID[0] == 1:
			got = elastic
		case ok && w.Context == profile.OTelContext && w.TraceID[0] == 2:
			got = otel
		}
		assert.Check(t, got == c.want, "%+v: %s", c, got)
	}
}

// Of a process with more threads than are looked at, the first ones are.
func TestReadWorkOfManyThreads(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 5})
	threads, err := bpf.OpenThreads()
	assert.NilError(t, err)
	defer threads.Close()
	target := openDemo(t, p.PID)
	defer target.Close()
	first := p.Begin(1)
	p.Begin(5)
	var reader ContextReader
	work, more, err := reader.readWork(target, threads, Keep{}, 3)
	assert.NilError(t, err)
	found := len(reader.threads)
	assert.Check(t, found >= 6 && more == found-3, "%d of %d threads were not looked at", more, found)
	assert.Check(t, len(work) == 1 && work[0].TID == first.Thread.TID && work[0].TraceID == first.TraceID, "%+v", work)
}

// No more is read of a record's attributes than in the kernel, whatever it says.
func TestLongRecord(t *testing.T) {
	for size, want := range map[uint16]int{maxRecordAttributes: maxRecordAttributes, 1<<16 - 1: maxRecordAttributes} {
		var r recordRead
		binary.NativeEndian.PutUint16(r.header[recordSizeOff:], size)
		requests := make([]memread.Request, recordCopies+1)
		r.askCopies(requests)
		assert.Check(t, len(requests[0].Buf) == recordBytes+want, "%d bytes of %d", len(requests[0].Buf), size)
	}
}

// BenchmarkReadWork is what it costs to know what all threads of a process work on: all of them wait, in
// transactions.
func BenchmarkReadWork(b *testing.B) {
	testenv.NeedRoot(b)
	threads, err := bpf.OpenThreads()
	assert.NilError(b, err)
	defer threads.Close()
	for _, otel := range []bool{false, true} {
		for _, n := range []int{1, 10, 50} {
			b.Run(fmt.Sprintf("opentelemetry=%v/threads=%d", otel, n), func(b *testing.B) {
				var target *Target
				if otel {
					p := demo.StartOTel(b, demo.OTelOptions{Threads: n})
					for i := range n {
						p.Begin(i+1, demo.OTelRecord{TraceID: demo.TraceID{1}, SpanID: demo.SpanID{1}})
					}
					target = openDemo(b, p.PID)
				} else {
					p := demo.Start(b, demo.Options{Manual: true, Idle: n})
					for i := range n {
						p.Begin(i + 1)
					}
					target = openDemo(b, p.PID)
				}
				defer target.Close()
				var reader ContextReader
				b.ReportAllocs()
				for b.Loop() {
					work, _, err := reader.ReadWork(target, threads, Keep{})
					if err != nil || len(work) != n {
						b.Fatal(len(work), err)
					}
				}
			})
		}
	}
}

// What is metered is the CPU time that the goroutine and the workers use meanwhile, and not the time that passes.
func TestMeterCPU(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	target := openDemo(t, p.PID)
	defer target.Close()
	before := target.access.Spent()
	stop := target.MeterCPU()
	began := threadCPU()
	for threadCPU()-began < 5*time.Millisecond {
		if _, err := target.Probe(); err != nil {
			t.Fatal(err)
		}
	}
	used, workers := stop(), target.access.Spent()-before
	assert.Check(t, workers > 0 && used >= 5*time.Millisecond+workers,
		"%v of CPU time, of which %v of workers", used, workers)
}
