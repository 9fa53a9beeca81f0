package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A Count says how often threads of a target were seen in a transaction with a stack. With KeepUntraced,
// all ids may be 0: then they were seen without one.
type Count struct {
	Stack         StackKey // its Target is the process
	TID           int      // with ByThread, the only such thread, as our own pid namespace calls it; else 0
	TraceID       [16]byte
	TransactionID [8]byte
	SpanID        [8]byte // with BySpan, what the slot said at each of the samples; else 0
	TraceFlags    uint8   // of the last sample
	First         uint64  // CLOCK_MONOTONIC of the first sample since the drain before, ns
	Samples       uint32
}

// drainBatch is how many counts one system call takes over: 36 KiB of buffers.
const drainBatch = 512

// drain is the state of Drain.
type drain struct {
	tables     [2]*ebpf.Map
	active     uint32 // index of the one that is being counted in; the other one is empty
	kept       uint64 // samples put into tables, ever, when Drain last looked
	unfinished bool   // the other one is not empty after all: an error came in between

	keys   [drainBatch]samplerCountKey
	values [drainBatch]samplerCount
	attr   batchAttr
	cursor batchCursor
}

// Drain hands over what was counted since the last call, and counts from zero. Nothing that is
// counted meanwhile is lost: there are two tables, and the one that is emptied is not counted in.
// It waits until that is certain.
//
// Stacks of the counts can be asked for from within yield and until the next call. When there is an
// error, what was not handed over comes with the next call.
func (s *Sampler) Drain(yield func(Count)) error {
	s.draining.Lock()
	defer s.draining.Unlock()
	total, err := s.readCounters()
	if err != nil {
		return err
	}
	leftOver := s.drain.unfinished
	if leftOver {
		if err := s.drain.empty(yield); err != nil {
			return err
		}
	}
	if kept := s.kept(&total); kept != s.drain.kept {
		if err := s.swap(); err != nil {
			return err
		}
		s.drain.kept = kept
		if !leftOver { // whose stacks are asked for until the next call
			s.retained.age()
		}
		if err := s.drain.empty(yield); err != nil {
			return err
		}
	}
	return s.evict(total.StacksStored)
}

// kept is how many samples were ever put into the tables.
func (s *Sampler) kept(total *samplerCounters) uint64 {
	kept := total.Outcomes[Correlated]
	if s.options.KeepUnsampled {
		kept += total.Outcomes[Unsampled]
	}
	if s.options.KeepUntraced {
		kept += total.Outcomes[NoSlot] + total.Outcomes[NoTrace]
	}
	return kept
}

const (
	// settleTime is how long a swap is given to be seen. A store of one CPU is seen by all others
	// within some hundred nanoseconds.
	settleTime = 5 * time.Microsecond

	// countTime is how long a CPU is given to end counting: the hypervisor has stopped it meanwhile.
	countTime = time.Millisecond
)

// swap lets the program count in the other table, and waits until no CPU counts in the former one.
//
// On each CPU the program makes counting odd, reads which table is active, counts there, and makes
// counting even. So a CPU that reads the former one before it sees the swap has made counting odd
// before, and settleTime later that is to be seen, if it has not ended by then. One that is odd with
// another number has begun anew, in the new table.
//
// bpf(2) does the like for a map in maps, by waiting until all CPUs have been through the scheduler:
// 10 ms in which the Go runtime keeps looking whether the system call is over, for as much CPU time
// as all the rest of a drain takes.
func (s *Sampler) swap() error {
	next := s.drain.active ^ 1
	if err := s.objects.Active.Set(next); err != nil {
		return fmt.Errorf("swapping tables: %w", err)
	}
	s.drain.active, s.drain.unfinished = next, true // whatever goes wrong, the former is emptied
	for swapped := time.Now(); time.Since(swapped) < settleTime; {
	}
	for cpu := range int(s.objects.Counters.MaxEntries()) {
		first, err := s.readCPU(cpu)
		for now := first; err == nil && now.Counting%2 == 1 && now.Counting == first.Counting; now, err = s.readCPU(cpu) {
			time.Sleep(countTime)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *drain) empty(yield func(Count)) error {
	d.unfinished = true
	for first := true; ; first = false {
		n, err := d.lookupAndDelete(d.tables[d.active^1].FD(), first)
		last := errors.Is(err, unix.ENOENT)
		if err != nil && !last {
			return fmt.Errorf("draining counts: %w", err)
		}
		for i := range n {
			yield(newCount(&d.keys[i], &d.values[i]))
		}
		if last {
			d.unfinished = false
			return nil
		}
	}
}

func newCount(key *samplerCountKey, value *samplerCount) Count {
	count := Count{
		Stack:      newStackKey(key.Stack),
		TID:        int(key.Stack.Tid),
		First:      value.First,
		TraceFlags: uint8(value.TraceFlags),
		Samples:    value.Samples,
	}
	putTraceID(&count.TraceID, key.TraceId)
	binary.NativeEndian.PutUint64(count.TransactionID[:], key.TransactionId)
	binary.NativeEndian.PutUint64(count.SpanID[:], key.SpanId)
	return count
}

// putTraceID undoes what the program did when it took the bytes of an id as words.
func putTraceID(id *[16]byte, words [2]uint64) {
	binary.NativeEndian.PutUint64(id[:8], words[0])
	binary.NativeEndian.PutUint64(id[8:], words[1])
}
