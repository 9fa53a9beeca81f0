package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"correlator/memread"
	"correlator/tlsdesc"
)

// A thread's record (OTEP 4947), which its variable otel_thread_ctx_v1 points to. Ids are bytes in the
// order of the wire, the size is in host byte order.
//
//	offset  size  field
//	     0    16  trace id
//	    16     8  span id
//	    24     1  valid: 1, else there is nothing to be read
//	    25     1  trace flags, W3C; some writers leave them 0 in sampled traces, too
//	    26     2  size of the attributes
//	    28     n  attributes
const (
	recordSpanOff  = 16
	recordValidOff = 24
	recordSizeOff  = 26
	recordBytes    = 28

	// maxRecordAttributes is how many bytes of attributes are read, as in the kernel: writers should
	// have 612 at most.
	maxRecordAttributes = 1024
)

// recordCopies is how often a record is read, with its thread's pointer in the middle, before it
// counts: as slots are, see memread. A record across two pages is not read more often than others:
// a thread that waits does not write it, and for one that runs there are samples.
const recordCopies = 4

// recordChunk is how many threads' records are read together: with as many attributes as writers
// usually have, by one message to a worker.
const recordChunk = 128

// record is what was read of one thread.
type record struct {
	outcome    SampleOutcome // OutcomeCorrelated when there is a trace
	traceID    [16]byte
	spanID     [8]byte
	attributes []byte
	readAt     time.Time
}

// recordRead is the reading of one thread's record.
type recordRead struct {
	outcome  SampleOutcome // OutcomeCorrelated: so far there may be a trace
	variable uint64        // address of the pointer to the record
	pointer  [8]byte
	header   [recordBytes]byte
	again    [8]byte // the pointer
	copies   [recordCopies][]byte
}

func (r *recordRead) addr() uint64 { return binary.NativeEndian.Uint64(r.pointer[:]) }

// readRecords reads the records of threads with the given thread pointers. The error is one of the
// whole process. As with Read, what is read counts only if CheckPublishing succeeds afterwards.
func (t *Target) readRecords(threadPointers []uint64) ([]record, error) {
	records := make([]record, 0, len(threadPointers))
	for len(threadPointers) > 0 {
		n := min(len(threadPointers), recordChunk)
		reads, err := t.findRecords(threadPointers[:n])
		if err != nil {
			return nil, err
		}
		for _, step := range []recordStep{pointerStep, headerStep, copiesStep} {
			if err := t.readStep(reads, step); err != nil {
				return nil, err
			}
		}
		now := time.Now()
		for i := range reads {
			records = append(records, reads[i].record(now))
		}
		threadPointers = threadPointers[n:]
	}
	return records, nil
}

// findRecords finds the variable of each thread.
func (t *Target) findRecords(threadPointers []uint64) ([]recordRead, error) {
	n := len(threadPointers)
	variables, errs, reads := make([]uint64, n), make([]error, n), make([]recordRead, n)
	if err := t.otel.variable.rule.VariableAddrs(t.memory, threadPointers, variables, errs); err != nil {
		return nil, err
	}
	for i := range reads {
		switch reads[i].variable = variables[i]; {
		case errors.Is(errs[i], tlsdesc.ErrChanged):
			reads[i].outcome = OutcomeTorn
		case errs[i] != nil:
			reads[i].outcome = OutcomeUnreadable
		case variables[i] == 0:
			reads[i].outcome = OutcomeNoSlot
		}
	}
	return reads, nil
}

// recordStep is what is read of all threads together.
type recordStep struct {
	ranges int // of each thread
	ask    func(*recordRead, []memread.Request)
	judge  func(*recordRead) SampleOutcome
}

var (
	pointerStep = recordStep{1, (*recordRead).askPointer, (*recordRead).judgePointer}
	headerStep  = recordStep{1, (*recordRead).askHeader, (*recordRead).judgeHeader}
	copiesStep  = recordStep{recordCopies + 1, (*recordRead).askCopies, (*recordRead).judgeCopies}
)

// readStep does a step for the threads that may have a trace.
func (t *Target) readStep(reads []recordRead, step recordStep) error {
	requests := make([]memread.Request, len(reads)*step.ranges)
	requestsOf := func(i int) []memread.Request { return requests[i*step.ranges : (i+1)*step.ranges] }
	asked := false
	for i := range reads {
		if reads[i].outcome == OutcomeCorrelated {
			step.ask(&reads[i], requestsOf(i))
			asked = true
		}
	}
	if !asked {
		return nil
	}
	if err := t.memory.ReadBatch(requests); err != nil {
		return err
	}
	for i := range reads {
		failed := func(r memread.Request) bool { return r.Err != nil }
		switch {
		case reads[i].outcome != OutcomeCorrelated:
		case slices.ContainsFunc(requestsOf(i), failed):
			reads[i].outcome = OutcomeUnreadable
		default:
			reads[i].outcome = step.judge(&reads[i])
		}
	}
	return nil
}

func (r *recordRead) askPointer(requests []memread.Request) {
	requests[0] = memread.Request{Addr: r.variable, Buf: r.pointer[:]}
}

func (r *recordRead) judgePointer() SampleOutcome {
	if r.addr() == 0 {
		return OutcomeNoSlot
	}
	return OutcomeCorrelated
}

func (r *recordRead) askHeader(requests []memread.Request) {
	requests[0] = memread.Request{Addr: r.addr(), Buf: r.header[:]}
}

// judgeHeader takes a record that is being written for one without a trace, as the kernel's part does:
// its thread is between two.
func (r *recordRead) judgeHeader() SampleOutcome {
	if r.header[recordValidOff] != 1 || [16]byte(r.header[:]) == [16]byte{} ||
		[8]byte(r.header[recordSpanOff:]) == [8]byte{} {
		return OutcomeNoTrace
	}
	return OutcomeCorrelated
}

func (r *recordRead) askCopies(requests []memread.Request) {
	size := min(int(binary.NativeEndian.Uint16(r.header[recordSizeOff:])), maxRecordAttributes)
	const before = recordCopies / 2
	requests[before] = memread.Request{Addr: r.variable, Buf: r.again[:]}
	for i := range r.copies {
		r.copies[i] = make([]byte, recordBytes+size)
		at := i
		if i >= before {
			at++
		}
		requests[at] = memread.Request{Addr: r.addr(), Buf: r.copies[i]}
	}
}

func (r *recordRead) judgeCopies() SampleOutcome {
	same := r.again == r.pointer && bytes.HasPrefix(r.copies[0], r.header[:])
	for _, c := range r.copies {
		same = same && bytes.Equal(c, r.copies[0])
	}
	if !same {
		return OutcomeTorn
	}
	return OutcomeCorrelated
}

func (r *recordRead) record(readAt time.Time) record {
	if r.outcome != OutcomeCorrelated {
		return record{outcome: r.outcome, readAt: readAt}
	}
	content := r.copies[0]
	return record{
		traceID: [16]byte(content), spanID: [8]byte(content[recordSpanOff:]), attributes: content[recordBytes:],
		readAt: readAt,
	}
}
