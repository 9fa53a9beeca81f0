package bpf

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/memread"
	"correlator/tlsdesc"
)

// otelRule returns the rule of a process that publishes by OpenTelemetry's standards.
func otelRule(t testing.TB, p *demo.OTel) tlsdesc.Rule {
	t.Helper()
	file, err := os.Open(p.HostPath(p.File))
	assert.NilError(t, err)
	defer file.Close()
	info, err := file.Stat()
	assert.NilError(t, err)
	variable, err := elfsym.ParseThreadContext(file, info.Size())
	assert.NilError(t, err)
	memory := memread.Open("/proc", p.PID)
	defer memory.Close()
	rule, err := tlsdesc.Resolve(variable, p.Bias(variable.Bias), memory, executableMappings(t, p.PID))
	assert.NilError(t, err)
	return rule
}

func otelRecord(number byte, attributes []byte) demo.OTelRecord {
	record := demo.OTelRecord{Attributes: attributes}
	copy(record.TraceID[:], bytes.Repeat([]byte{number}, 16))
	copy(record.SpanID[:], bytes.Repeat([]byte{number | 0x80}, 8))
	return record
}

// The counts of every thread have what its record says, wherever the thread-local variable is placed,
// in both ways to write records. (TestOTelForms of package tlsdesc has all forms that lead there.)
func TestOTelContexts(t *testing.T) {
	s := openSampler(t, SamplerOptions{BySpan: true})
	for i, options := range []demo.OTelOptions{
		{Form: demo.OTelTLSDESC}, {Form: demo.OTelTLSDESC, Dynamic: true}, {Form: demo.OTelGD},
		{Program: demo.OTelAligned}, {Program: demo.OTelStatic},
		{Musl: true, Form: demo.OTelTLSDESC}, {Musl: true, Form: demo.OTelGD},
		{Musl: true, Program: demo.OTelLinked, Form: demo.OTelIE},
	} {
		options.InPlace = i%2 == 1 // which does not depend on where the variable is placed
		name := fmt.Sprintf("%s%s,musl=%v,dynamic=%v,in-place=%v", options.Program, options.Form, options.Musl,
			options.Dynamic, options.InPlace)
		t.Run(name, func(t *testing.T) { testOTelContexts(t, s, options) })
	}
	counters := readCounters(t, s)
	assert.Check(t, counters[RecordUnreadable]+counters[Unreadable]+counters[TableFull] == 0, "counters %v", counters)
}

func testOTelContexts(t *testing.T, s *Sampler, options demo.OTelOptions) {
	options.Threads = 3 // the last touches nothing
	p := demo.StartOTel(t, options)
	rule := otelRule(t, p)
	target := addRules(t, s, p.PID, func() TargetRules {
		return TargetRules{OTel: rule, Keys: []uint8{1}, KnownKeys: 2}
	})
	attributes := demo.OTelAttribute(demo.OTelAttribute(nil, 0, "00f067aa0ba902b7"), 1, "/pay/:id")
	wanted := demo.OTelAttribute(nil, 1, "/pay/:id")
	for thread := 1; thread <= 3; thread++ {
		if thread < 3 {
			p.Begin(thread, otelRecord(byte(thread), attributes))
		}
		p.Busy(thread, true)
	}
	want := map[byte][]byte{1: wanted, 2: wanted}
	check := func() {
		t.Helper()
		drainRecords(t, s, 0, nil) // of main threads and records before
		seen := make(map[byte]bool)
		testenv.Poll(t, waiting, "samples of all records", func() bool {
			drainRecords(t, s, target, func(c Count) {
				record := otelRecord(c.TraceID[0], nil)
				attributes, begun := want[c.TraceID[0]]
				assert.Check(t, begun && c.TraceID == record.TraceID && c.SpanID == record.SpanID &&
					bytes.Equal(c.Attributes, attributes) && !c.OfLabels,
					"no thread began %+v", c)
				seen[c.TraceID[0]] = true
			})
			return len(seen) == len(want)
		})
	}
	check()
	waitForOutcome(t, s, NoSlot) // the last thread

	// The record grows while it is valid, and the later value counts.
	more := demo.OTelAttribute(nil, 1, "/grown")
	p.Resize(2, uint16(len(attributes)+len(more)), more)
	want[2] = more
	check()

	p.Clear(1)
	ends := NoSlot
	if options.InPlace {
		ends = NotValid
	}
	waitForOutcome(t, s, ends)
	drainRecords(t, s, 0, nil)
	waitForOutcome(t, s, Correlated)
	drainRecords(t, s, target, func(c Count) {
		assert.Check(t, c.TraceID[0] == 2, "after its end: %+v", c)
	})
	assert.NilError(t, s.RemoveTarget(target))
}

// drainRecords calls yield, if that is not nil, with the counts of a target, all of which must be of
// records.
func drainRecords(t *testing.T, s *Sampler, target Target, yield func(Count)) {
	t.Helper()
	assert.NilError(t, s.Drain(func(c Count) {
		if yield == nil {
			return
		}
		assert.Check(t, c.OTel && c.Stack.Target == target && c.TransactionID == [8]byte{} && c.TraceFlags == 0,
			"count %+v, target %d", c, target)
		yield(c)
	}))
}

// Another program that includes correlator_attributes.h reads the same attributes.
func TestConsumerAttributes(t *testing.T) {
	dir := mountBPF(t)
	s := openSampler(t, SamplerOptions{PinDir: dir})
	p := demo.StartOTel(t, demo.OTelOptions{Threads: 1})
	rule := otelRule(t, p)
	addRules(t, s, p.PID, func() TargetRules {
		return TargetRules{OTel: rule, Keys: []uint8{1, 0}, KnownKeys: 2}
	})
	consumer := openConsumer(t, dir, noChange)
	attributes := demo.OTelAttribute(demo.OTelAttribute(nil, 0, "00f067aa0ba902b7"), 1, "/pay/:id")
	record := otelRecord(1, attributes)
	p.Begin(1, record)
	p.Busy(1, true)
	tid := p.Threads()[1].TID
	sampleThread(t, consumer.Look, tid, time.Millisecond)
	var value struct {
		TraceID [16]byte
		SpanID  [8]byte
		Found   samplerCorrelatorAttributes
	}
	testenv.Poll(t, waiting, "attributes of a thread", func() bool {
		return consumer.Records.Lookup(uint32(tid), &value) == nil
	})
	want := append(demo.OTelAttribute(nil, 1, "/pay/:id"), demo.OTelAttribute(nil, 0, "00f067aa0ba902b7")...)
	if found := value.Found.Entries[:value.Found.Size]; !bytes.Equal(found, want) || value.TraceID != record.TraceID ||
		value.SpanID != record.SpanID || value.Found.Cut+value.Found.Unknown != 0 {
		t.Errorf("%x, %x, attributes %q", value.TraceID, value.SpanID, found)
	}
}
