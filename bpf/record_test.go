package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

// startRecords runs testdata/record.c, and returns its rules, with two wanted keys of five.
func startRecords(t testing.TB, mode string) (*child, TargetRules) {
	t.Helper()
	c := startProgram(t, nil, compileChild(t, "cc", "record.c", "-fno-pie", "-no-pie"), mode)
	rules := TargetRules{
		Elastic: tlsdesc.Rule{Kind: tlsdesc.Static}, OTel: tlsdesc.Rule{Kind: tlsdesc.Static},
		Keys: []uint8{2, 0}, KnownKeys: 5,
	}
	_, err := fmt.Sscanf(c.read(), "ready %d %d", &rules.OTel.Offset, &rules.Elastic.Offset)
	assert.NilError(t, err)
	return c, rules
}

// A record of OTEP 4947, encoded by hand: trace id, span id, then valid, trace flags and the size of
// attributes.
const (
	recordTrace, recordSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

	recordIDs  = recordTrace + recordSpan
	bareRecord = recordIDs + "01" + "01" + "0000"
)

// recordOf returns a valid record with attributes, in hex, of which some may be missing at its end.
func recordOf(attributes string, missing int) string {
	size := len(attributes)/2 + missing
	return recordIDs + "0101" + fmt.Sprintf("%02x%02x", byte(size), byte(size>>8)) + attributes
}

// entry returns an attribute whose value repeats a byte.
func entry(key, length int, value string) string {
	return fmt.Sprintf("%02x%02x", key, length) + strings.Repeat(value, length)
}

// Slots of Elastic's library: minor version 1, valid, trace present, trace flags; trace id, span id,
// transaction id.
const (
	slotIDs       = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf" + "b0b1b2b3b4b5b6b7" + "c0c1c2c3c4c5c6c7"
	sampledSlot   = "0100" + "01" + "01" + "01" + slotIDs
	unsampledSlot = "0100" + "01" + "01" + "00" + slotIDs
	noTraceSlot   = "0100" + "01" + "00" + "00" + slotIDs
	updatingSlot  = "0100" + "00" + "01" + "01" + slotIDs
)

var recordTests = []struct {
	name         string
	record, slot string // "": the target has no rule for it
	outcome      KernelOutcome
	elastic      bool   // the context is the slot's
	attributes   string // that are counted
	cut, unknown bool
}{
	{name: "bare", record: bareRecord, outcome: Correlated},
	{name: "not sampled", record: recordIDs + "01000000", outcome: Correlated},
	{name: "null", record: "null", outcome: NoSlot},
	{name: "wild", record: "wild", outcome: RecordUnreadable},
	{name: "too short", record: "edge " + bareRecord[:54], outcome: RecordUnreadable},
	{name: "valid is 0", record: recordIDs + "00010000", outcome: NotValid},
	{name: "valid is 2", record: recordIDs + "02010000", outcome: NotValid},
	{name: "zero ids", record: strings.Repeat("0", 48) + "01000000", outcome: ZeroIDs},
	{name: "zero trace id", record: strings.Repeat("0", 32) + recordSpan + "01010000", outcome: ZeroIDs},
	{name: "zero span id", record: recordTrace + strings.Repeat("0", 16) + "01010000", outcome: ZeroIDs},
	{name: "neither", outcome: NoSlot},

	{name: "one attribute", record: recordOf("0003616263", 0), outcome: Correlated, attributes: "0003616263"},
	{name: "at the edge", record: "edge " + recordOf("0003616263", 0), outcome: Correlated,
		attributes: "0003616263"},
	{name: "in the order of keys", record: recordOf("0003616263"+"0200"+"0104aaaaaaaa", 0), outcome: Correlated,
		attributes: "0200" + "0003616263"},
	{name: "the last one counts", record: recordOf("000161"+"02026263"+"0000"+"000164"+"020165", 0),
		outcome: Correlated, attributes: "020165" + "000164"},
	{name: "unwanted", record: recordOf("010161"+"030162", 0), outcome: Correlated},
	{name: "unknown", record: recordOf("050161"+"000162"+"ff00", 0), outcome: Correlated, attributes: "000162",
		unknown: true},
	{name: "ends within an entry", record: recordOf("000162"+"0205aabb", 0), outcome: Correlated,
		attributes: "000162", cut: true},
	{name: "ends before a length", record: recordOf("000162"+"02", 0), outcome: Correlated, attributes: "000162",
		cut: true},
	{name: "ends in no memory", record: "edge " + recordOf("000162", 3), outcome: Correlated, cut: true},
	{name: "64 entries", record: recordOf(strings.Repeat("0400", 63)+"000162", 0), outcome: Correlated,
		attributes: "000162"},
	{name: "65 entries", record: recordOf("000162"+strings.Repeat("0400", 64), 0), outcome: Correlated,
		attributes: "000162", cut: true},
	{name: "1024 bytes",
		record:  recordOf(strings.Repeat(entry(4, 255, "ab"), 3)+entry(4, 246, "ab")+"020361"+"6263", 0),
		outcome: Correlated, attributes: "0203616263"},
	{name: "1025 bytes", record: recordOf("0203616263"+strings.Repeat(entry(4, 255, "ab"), 3)+entry(4, 247, "ab"), 0),
		outcome: Correlated, attributes: "0203616263", cut: true},
	{name: "65535 bytes, not there", record: recordOf("020162", 0xffff-3), outcome: Correlated,
		attributes: "020162" + "0000", cut: true}, // zeros follow
	{name: "504 bytes wanted", record: recordOf(entry(0, 245, "cd")+entry(2, 255, "ab"), 0), outcome: Correlated,
		attributes: entry(2, 255, "ab") + entry(0, 245, "cd")},
	{name: "505 bytes wanted", record: recordOf(entry(0, 246, "cd")+entry(2, 255, "ab"), 0), outcome: Correlated,
		attributes: entry(2, 255, "ab"), cut: true},
	{name: "not valid, with attributes", record: recordIDs + "00" + recordOf("000162", 0)[50:], outcome: NotValid},

	{name: "both", record: recordOf("000162", 0), slot: sampledSlot, outcome: Correlated, elastic: true},
	{name: "slot without trace", record: recordOf("000162", 0), slot: noTraceSlot, outcome: Correlated,
		attributes: "000162"},
	{name: "slot not sampled", record: bareRecord, slot: unsampledSlot, outcome: Correlated},
	{name: "slot updating", record: bareRecord, slot: updatingSlot, outcome: Correlated},
	{name: "slot null", record: bareRecord, slot: "null", outcome: Correlated},
	{name: "slot wild", record: bareRecord, slot: "wild", outcome: Unreadable},
	{name: "slot not sampled, record null", record: "null", slot: unsampledSlot, outcome: Unsampled, elastic: true},
	{name: "slot not sampled, record wild", record: "wild", slot: unsampledSlot, outcome: Unsampled, elastic: true},
	{name: "slot without trace, record not valid", record: recordIDs + "00010000", slot: noTraceSlot, outcome: NoTrace},
	{name: "slot without trace, record wild", record: "wild", slot: noTraceSlot, outcome: RecordUnreadable},
	{name: "slot null, record wild", record: "wild", slot: "null", outcome: RecordUnreadable},
	{name: "slot null, zero ids", record: strings.Repeat("0", 48) + "01000000", slot: "null", outcome: NoSlot},
	{name: "slot updating, record wild", record: "wild", slot: updatingSlot, outcome: Updating},
	{name: "slot alone", slot: sampledSlot, outcome: Correlated, elastic: true},
}

// What a record and a slot say, together and each alone, and what is counted of it: every sample once.
func TestRecords(t *testing.T) {
	s := openSampler(t, SamplerOptions{KeepUntraced: true, KeepUnsampled: true, BySpan: true, DeferredBytes: 16 << 20})
	c, all := startRecords(t, "still")
	for _, test := range recordTests {
		t.Run(test.name, func(t *testing.T) {
			rules := TargetRules{Keys: all.Keys, KnownKeys: all.KnownKeys}
			if test.record != "" {
				c.ask("record "+test.record, "done")
				rules.OTel = all.OTel
			}
			if test.slot != "" {
				c.ask("slot "+test.slot, "done")
				rules.Elastic = all.Elastic
			}
			before, sideBefore := readCounters(t, s), readSide(t, s)
			target := addRules(t, s, c.pid, func() TargetRules { return rules })
			waitForOutcome(t, s, test.outcome)
			assert.NilError(t, s.RemoveTarget(target))
			waitForOutcome(t, s, NoTarget) // none of the target is being taken any more

			counters := readCounters(t, s)
			for outcome := range counters {
				counters[outcome] -= before[outcome]
			}
			samples := counters[test.outcome]
			others := counters.Taken() - counters[NoTarget] - counters[Idle] - samples
			assert.Check(t, others == 0, "%d samples have another outcome: %v", others, counters)
			want := sideBefore
			if test.cut {
				want.AttributesCut += samples
			}
			if test.unknown {
				want.UnknownKeys += samples
			}
			assert.DeepEqual(t, readSide(t, s), want)
			counted := uint64(0)
			assert.NilError(t, s.Drain(func(got Count) {
				counted += uint64(got.Samples)
				want := Count{Stack: got.Stack, First: got.First, Last: got.Last, Samples: got.Samples}
				switch {
				case test.elastic:
					copy(want.TraceID[:], unhex(t, slotIDs[:32]))
					copy(want.SpanID[:], unhex(t, slotIDs[32:48]))
					copy(want.TransactionID[:], unhex(t, slotIDs[48:]))
					want.TraceFlags = unhex(t, test.slot)[4]
				case test.outcome == Correlated:
					copy(want.TraceID[:], unhex(t, recordTrace))
					copy(want.SpanID[:], unhex(t, recordSpan))
					want.TraceFlags = unhex(t, strings.TrimPrefix(test.record, "edge "))[25]
					want.OTel = true
				}
				assert.Check(t, bytes.Equal(got.Attributes, unhex(t, test.attributes)),
					"attributes %x, not %s", got.Attributes, test.attributes)
				got.Attributes = nil
				assert.Check(t, fmt.Sprint(got) == fmt.Sprint(want), "counted %+v, not %+v", got, want)
				assert.Check(t, got.Stack.Target == target)
				stack(t, s, got.Stack)
			}))
			deferred := uint64(0)
			switch test.outcome {
			case RecordUnreadable, Updating:
				samples = 0
			case Unreadable:
				samples, deferred = 0, samples
			}
			verifyDeferred(t, s, deferred, func(d deferredSample) {
				assert.Check(t, d.Outcome == Unreadable && !d.Count.OTel && d.Count.Attributes == nil &&
					d.Count.TraceID == [16]byte{},
					"deferred %+v", d)
			})
			assert.Check(t, counted == samples, "drained %d samples, counters %v", counted, counters)
		})
	}
}

// Without any key that is wanted, attributes are not read.
func TestNoKeys(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	c, rules := startRecords(t, "still")
	c.ask("record "+recordOf("000162"+"ff0161"+"02", 0), "done")
	addRules(t, s, c.pid, func() TargetRules { return TargetRules{OTel: rules.OTel, KnownKeys: 1} })
	waitForOutcome(t, s, Correlated)
	stop(t, s)
	for _, count := range drainAll(t, s) {
		assert.Check(t, count.OTel && len(count.Attributes) == 0, "%+v", count)
	}
	assert.DeepEqual(t, readSide(t, s), SideCounters{})
}

// SetTarget checks rules and keys. A target needs none.
func TestRules(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	static := tlsdesc.Rule{Kind: tlsdesc.Static}
	for name, rules := range map[string]TargetRules{
		"kind of Elastic's": {Elastic: tlsdesc.Rule{Kind: tlsdesc.DTPMod + 1}},
		"kind of OTel's":    {Elastic: static, OTel: tlsdesc.Rule{Kind: tlsdesc.DTPMod + 1}},
		"nine keys":         {OTel: static, Keys: make([]uint8, 9), KnownKeys: 9},
		"unknown key":       {OTel: static, Keys: []uint8{3}, KnownKeys: 3},
		"no known keys":     {OTel: static, Keys: []uint8{0}, KnownKeys: -1},
	} {
		target, err := s.SetTarget(ExecID{tgid: 1<<22 + 7}, rules)
		assert.Check(t, err != nil, "%s: target %d", name, target)
	}
	for name, rules := range map[string]TargetRules{
		"none":       {},
		"eight keys": {OTel: static, Keys: []uint8{0, 1, 2, 3, 4, 5, 6, 255}, KnownKeys: 1 << 20},
	} {
		_, err := s.SetTarget(ExecID{tgid: 1<<22 + 7}, rules)
		assert.Check(t, err, name)
	}
}

// wholeRecord checks that a count is of one record of testdata/record.c, whose first two keys are
// wanted.
func wholeRecord(t testing.TB, c Count) {
	t.Helper()
	key := binary.NativeEndian.Uint64(c.TraceID[:])
	want := Count{Stack: c.Stack, First: c.First, Last: c.Last, Samples: c.Samples, OTel: true,
		TraceFlags: uint8(key & 1)}
	binary.NativeEndian.PutUint64(want.TraceID[:], key)
	binary.NativeEndian.PutUint64(want.TraceID[8:], key*3)
	binary.NativeEndian.PutUint64(want.SpanID[:], key^0x5555555555555555)
	want.Attributes = binary.NativeEndian.AppendUint64([]byte{0, 8}, ^key)
	want.Attributes = append(want.Attributes, 1, byte(key%40))
	want.Attributes = append(want.Attributes, bytes.Repeat([]byte{byte(key)}, int(key%40))...)
	assert.Check(t, reflect.DeepEqual(c, want), "of several records: %+v", c)
}

// While records are written as fast as a thread can, no count has parts of two. Each sample is drained
// or deferred once.
func TestRewritingRecords(t *testing.T) {
	for mode, maxCounts := range map[string]int{"exchange": 2, "rewrite": 0} {
		t.Run(mode, func(t *testing.T) {
			options := SamplerOptions{SamplesPerSecond: MaxSamplesPerSecond, BySpan: true, MaxCounts: maxCounts}
			if testing.Short() { // where a sample takes so long that the thread gets no further meanwhile
				options.SamplesPerSecond = 200
			}
			s := openSampler(t, options)
			c, rules := startRecords(t, mode)
			rules.Elastic, rules.Keys = tlsdesc.Rule{}, []uint8{0, 1}
			addRules(t, s, c.pid, func() TargetRules { return rules })
			wanted := uint64(2_000)
			if *long {
				wanted = 500_000
			}
			if maxCounts > 0 || testing.Short() {
				wanted = 200
			}
			var drained uint64
			drain := func() {
				assert.NilError(t, s.Drain(func(c Count) {
					wholeRecord(t, c)
					drained += uint64(c.Samples)
				}))
			}
			for drained < wanted {
				drain()
			}
			if maxCounts > 0 {
				waitForFirst(t, s, TableFull)
			}
			stop(t, s)
			drain()
			counters := readCounters(t, s)
			verifyDeferred(t, s, counters[TableFull], func(d deferredSample) {
				d.Count.First, d.Count.Last = 0, 0
				wholeRecord(t, d.Count)
			})
			assert.Check(t, drained == counters[Correlated] && (counters[NotValid] != 0 || mode != "rewrite") &&
				(counters[NotValid] == 0 || mode != "exchange"),
				"drained %d samples, counters %v", drained, counters)
			assert.DeepEqual(t, readSide(t, s), SideCounters{})
			t.Logf("%d samples, counters %v", drained, counters)
		})
	}
}

// Attributes that are read before a stack is unwound are those of its count.
func TestUnwoundRecord(t *testing.T) {
	s := openSampler(t, SamplerOptions{BySpan: true})
	c := openChain(t)
	c.ask(asked{Words: 3})
	setUnwinder(t, s, c.unwinder())
	p, rules := startRecords(t, "rewrite")
	rules.Keys = []uint8{0, 1}
	unwind(t, s, addRules(t, s, p.pid, func() TargetRules { return rules }))
	drainAll(t, s) // of before
	unwound := 0
	testenv.Poll(t, waiting, "unwound samples", func() bool {
		assert.NilError(t, s.Drain(func(c Count) {
			wholeRecord(t, c)
			if c.Stack.Unwound() {
				unwound++
			}
		}))
		return unwound >= 100
	})
}
