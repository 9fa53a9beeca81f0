package process

import (
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/memread"
	"correlator/tlsdesc"
)

// The memory of a thread that has ended is often that of a new one, with the same thread pointer. What is
// read there by way of the pointer that the kernel returned before is no context of the thread that ended.
func TestContextOfEndedThread(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	threads, err := bpf.OpenThreads()
	assert.NilError(t, err)
	defer threads.Close()
	target := openDemo(t, p.PID)
	defer target.Close()
	ended := p.Begin(1).Thread
	var reader ContextReader
	_, err = reader.FindThreads(threads, p.PID)
	assert.NilError(t, err)

	p.StopThreads()
	started := p.StartThreads(1, "idle")
	begun := p.Begin(started[len(started)-1].Index)
	assert.Assert(t, begun.Thread.TID != ended.TID, "the number of the thread was reused")
	reader.pointers[ended.TID] = begun.Thread.ThreadPointer // where the C library did not reuse the memory
	contexts, err := reader.ReadThreads(target, 1, func(int) int { return ended.TID })
	assert.NilError(t, err)
	c := contexts[0]
	assert.Assert(t, c.Outcome == OutcomeCorrelated && c.Slot.TraceID == begun.TraceID, "%+v", c)
	assert.Equal(t, target.Judge(&c, ended.TID, c.ReadAt, Keep{}), OutcomeNoThread)
	assert.Equal(t, target.Judge(&c, begun.Thread.TID, c.ReadAt, Keep{}), OutcomeCorrelated)

	_, err = reader.FindThreads(threads, p.PID)
	assert.NilError(t, err)
	contexts, err = reader.ReadThreads(target, 1, func(int) int { return ended.TID })
	assert.Check(t, err == nil && contexts[0].Outcome == OutcomeNoThread, "%+v, %v", contexts, err)
}

// Why a thread has no context of use is told apart.
func TestContextOutcome(t *testing.T) {
	present := memread.Slot{TracePresent: true}
	sampled := memread.Slot{TracePresent: true, TraceFlags: traceFlagSampled}
	for _, test := range []struct {
		variable error
		result   memread.SlotResult
		want     SampleOutcome
	}{
		{tlsdesc.ErrChanged, memread.SlotResult{Addr: 1, Slot: sampled}, OutcomeTorn},
		{nil, memread.SlotResult{Addr: 1, Slot: sampled, Err: memread.ErrTorn}, OutcomeTorn},
		{nil, memread.SlotResult{Addr: 1, Slot: sampled, Err: memread.ErrUpdating}, OutcomeUpdating},
		{tlsdesc.ErrUnresolved, memread.SlotResult{Addr: 1, Slot: sampled}, OutcomeUnreadable},
		{nil, memread.SlotResult{Addr: 1, Slot: sampled, Err: io.EOF}, OutcomeUnreadable},
		{nil, memread.SlotResult{Slot: sampled}, OutcomeNoSlot},
		{nil, memread.SlotResult{Addr: 1}, OutcomeNoTrace},
		{nil, memread.SlotResult{Addr: 1, Slot: present}, OutcomeUnsampled},
		{nil, memread.SlotResult{Addr: 1, Slot: sampled}, OutcomeCorrelated},
	} {
		assert.Check(t, contextOutcome(test.variable, &test.result) == test.want, "%+v", test)
	}
}
