package record

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// Only what is selected is counted; the rest is known by its number.
func TestSelection(t *testing.T) {
	traced := profile.Sample{TraceID: [16]byte{0xab, 0xcd}, TransactionID: [8]byte{0x12}, Count: 1, At: time.Now(),
		Stack: stackOf(profile.StackTraceID{1}, 1)}
	bare := profile.Sample{Count: 5, At: time.Now(), Stack: stackOf(profile.StackTraceID{1}, 1)}
	for selection, want := range map[Selection][2]uint64{
		{}:                                 {6, 0},
		{Trace: "ab"}:                      {1, 5},
		{Trace: "abc", Transaction: "120"}: {1, 5},
		{Trace: "abc", Transaction: "13"}:  {0, 6},
		{Transaction: "12"}:                {1, 5},
		{Transaction: "00"}:                {0, 6},
	} {
		a := newAggregate()
		a.selection = selection
		a.begin(time.Now().Add(-time.Hour))
		p := &Process{PID: 1}
		a.add(p, &traced)
		a.add(p, &bare)
		var r Recording
		a.close(&r)
		samples := uint64(0)
		for _, n := range r.Samples {
			samples += n
		}
		got := [2]uint64{samples, r.Unselected}
		assert.Check(t, got == want, "%+v: %d, want %d", selection, got, want)
	}
}

// Ids of 64 bits, and decimal ones, choose traces whose id ends so.
func TestSelectionByNumber(t *testing.T) {
	sample := profile.Sample{TraceID: [16]byte{0x4b, 14: 0x12, 15: 0x34}, TransactionID: [8]byte{7: 0xff}}
	for selection, want := range map[Selection]bool{
		{Trace: "1234"}: true, {Trace: "0000000000001234"}: true, {Trace: "4660"}: true,
		{Trace: "2345"}:                      false,
		{Trace: "4660", Transaction: "00ff"}: true, {Transaction: "0000"}: true,
		{Transaction: "0255"}: true, {Transaction: "0256"}: false,
	} {
		bare := profile.Sample{TraceID: sample.TraceID}
		assert.Check(t, selection.has(&bare) == (want && selection.Transaction == ""), "%+v: no transaction", selection)
		assert.Check(t, selection.has(&sample) == want, "%+v: %t", selection, !want)
	}
}
