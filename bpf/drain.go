package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// A Count says how often threads of a target were seen in a transaction with a stack.
type Count struct {
	Stack         StackKey // its Target is the process
	TraceID       [16]byte
	TransactionID [8]byte
	SpanID        [8]byte // of the last sample
	TraceFlags    uint8   // of the last sample
	First         uint64  // CLOCK_MONOTONIC of the first sample since the drain before, ns
	Samples       uint32
}

// drainBatch is how many counts one system call takes over: 36 KiB of buffers.
const drainBatch = 512

// drain is the state of Drain.
type drain struct {
	active, other *ebpf.Map // the one that is being counted in, the empty one
	kept          uint64    // samples put into tables, ever, when Drain last looked
	unfinished    bool      // other is not empty after all: an error came in between

	keys   [drainBatch]samplerCountKey
	values [drainBatch]samplerCount
}

func (d *drain) open(s *Sampler) {
	d.active, d.other = s.objects.CountsA, s.objects.CountsB
}

// Drain hands over what was counted since the last call, and counts from zero. Nothing that is
// counted meanwhile is lost: there are two tables, and the one that is emptied is not counted in.
// For the kernel to be sure of that, Drain waits some milliseconds, unless nothing was counted.
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
	kept := total.Outcomes[Correlated]
	if s.options.KeepUnsampled {
		kept += total.Outcomes[Unsampled]
	}
	if kept != s.drain.kept {
		if err := s.drain.swap(s.objects.Active); err != nil {
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

// swap lets programs count in the other table. The kernel waits until every program has ended that
// could still be counting in the former one: bpf(2) does so for maps in maps.
func (d *drain) swap(outer *ebpf.Map) error {
	if err := outer.Put(uint32(0), d.other); err != nil {
		return fmt.Errorf("swapping tables: %w", err)
	}
	d.active, d.other = d.other, d.active
	return nil
}

func (d *drain) empty(yield func(Count)) error {
	d.unfinished = true
	var cursor ebpf.MapBatchCursor
	for {
		n, err := d.other.BatchLookupAndDelete(&cursor, d.keys[:], d.values[:], nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
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
		First:      value.First,
		TraceFlags: uint8(value.TraceFlags),
		Samples:    value.Samples,
	}
	putTraceID(&count.TraceID, key.TraceId)
	binary.NativeEndian.PutUint64(count.TransactionID[:], key.TransactionId)
	binary.NativeEndian.PutUint64(count.SpanID[:], value.SpanId)
	return count
}

// putTraceID undoes what the program did when it took the bytes of an id as words.
func putTraceID(id *[16]byte, words [2]uint64) {
	binary.NativeEndian.PutUint64(id[:8], words[0])
	binary.NativeEndian.PutUint64(id[8:], words[1])
}
