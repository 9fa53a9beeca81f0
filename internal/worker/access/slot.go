package access

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
	"correlator/internal/worker"
	"correlator/memread"
	"correlator/tlsdesc"
)

// maxReadingTime is how long reading a slot may take from finding that its page is not in memory:
// some system calls, and what the kernel needs to fetch a page that it holds compressed. It is
// measured, and kept, in the worker.
const maxReadingTime = 200 * time.Microsecond

// maxSlots is how many threads' slots one message has: less than 400 bytes for each.
const maxSlots = 256

// ThreadSlot is the slot of one thread.
type ThreadSlot struct {
	Variable error              // why the place of the thread's variable is not known
	Result   memread.SlotResult // unless that is so
	ReadAt   time.Time          // when it had been read, which can be long before the answer came
}

// slots is the answer to a request for slots.
type slots struct {
	Slots []slot
	// PagedOut reports that the page of the first slot was not in memory just before the slots were
	// read.
	PagedOut bool
	ReadAt   int64 // CLOCK_MONOTONIC when all had been read, ns
}

// slot is a ThreadSlot as it travels.
type slot struct {
	Variable *worker.Failure
	Addr     uint64
	Slot     memread.Slot
	Error    *worker.Failure
}

// ReadSlots reads the slots of threads with the given thread pointers (0: one without TLS), by a
// rule: as tlsdesc.Rule.VariableAddrs and memread.Process.ReadSlots do, without leaving the worker
// between them. The error is one of the whole process.
func (p *Process) ReadSlots(rule tlsdesc.Rule, threadPointers []uint64) ([]ThreadSlot, error) {
	read := make([]ThreadSlot, 0, len(threadPointers))
	for len(threadPointers) > 0 {
		n := min(len(threadPointers), maxSlots)
		slots, _, err := p.slots(opSlots, rule, threadPointers[:n])
		if err != nil {
			return nil, err
		}
		read = append(read, slots...)
		threadPointers = threadPointers[n:]
	}
	return read, nil
}

// ReadPagedOutSlot is ReadSlots for one thread whose slot the kernel could not read a moment ago,
// because it was not in memory. untouched reports that it was not in memory still just before it
// was read: the thread has not written it since.
func (p *Process) ReadPagedOutSlot(rule tlsdesc.Rule, threadPointer uint64) (read ThreadSlot, untouched bool,
	err error) {
	slots, untouched, err := p.slots(opPagedOutSlot, rule, []uint64{threadPointer})
	if err != nil {
		return ThreadSlot{}, false, err
	}
	return slots[0], untouched, nil
}

// slots has a worker read a slot for each thread pointer.
func (p *Process) slots(operation byte, rule tlsdesc.Rule, threadPointers []uint64) (read []ThreadSlot, pagedOut bool,
	err error) {
	asked := time.Now()
	var answer slots
	if _, err := p.call(operation, &request{Rule: rule, ThreadPointers: threadPointers}, &answer); err != nil {
		return nil, false, err
	}
	ago := time.Duration(monotonic() - answer.ReadAt)
	readAt := time.Now().Add(-ago)
	if len(answer.Slots) != len(threadPointers) || ago < 0 || readAt.Before(asked) {
		return nil, false, errAnswer
	}
	for i := range answer.Slots {
		read = append(read, answer.Slots[i].decoded(readAt))
	}
	return read, answer.PagedOut, nil
}

func (s *slot) decoded(readAt time.Time) ThreadSlot {
	return ThreadSlot{
		Variable: failures.Decode(s.Variable),
		Result:   memread.SlotResult{Addr: s.Addr, Slot: s.Slot, Err: failures.Decode(s.Error)},
		ReadAt:   readAt,
	}
}

// monotonic returns CLOCK_MONOTONIC in ns, which the agent and its workers share.
func monotonic() int64 { return self.Clock(unix.CLOCK_MONOTONIC).Nanoseconds() }

var errNoThreads = fmt.Errorf("%w: not one thread pointer to %d", errRequest, maxSlots)

// readSlots answers a request for slots, of one thread first asking whether its slot is paged out.
func (s *server) readSlots(r *request, pagedOut bool) (any, error) {
	n := len(r.ThreadPointers)
	if n == 0 || n > maxSlots {
		return nil, errNoThreads
	}
	memory := memread.OpenAlone(s.procRoot, r.Process.PID)
	defer memory.Close()
	began := time.Now()
	var answer slots
	if pagedOut {
		var err error
		if answer.PagedOut, err = isPagedOut(memory, r.Rule, r.ThreadPointers[0]); err != nil {
			return nil, err
		}
	}
	variables, errs, results := make([]uint64, n), make([]error, n), make([]memread.SlotResult, n)
	if err := r.Rule.VariableAddrs(memory, r.ThreadPointers, variables, errs); err != nil {
		return nil, err
	}
	if err := memory.ReadSlots(variables, results); err != nil {
		return nil, err
	}
	answer.ReadAt = monotonic()
	answer.PagedOut = answer.PagedOut && time.Since(began) <= maxReadingTime
	for i := range results {
		answer.Slots = append(answer.Slots, slot{
			Variable: failures.Encode(errs[i]), Addr: results[i].Addr, Slot: results[i].Slot,
			Error: failures.Encode(results[i].Err),
		})
	}
	return answer, nil
}

// isPagedOut reports whether the slot of a thread is not in memory, if it has one.
func isPagedOut(memory *memread.Process, rule tlsdesc.Rule, threadPointer uint64) (bool, error) {
	variable, err := rule.VariableAddr(memory, threadPointer)
	if variable == 0 || err != nil {
		return false, nil // reading it returns the error
	}
	var addr [8]byte
	if _, err := memory.Read(variable, addr[:]); err != nil {
		return false, nil
	}
	return memory.SlotPagedOut(binary.NativeEndian.Uint64(addr[:]))
}
