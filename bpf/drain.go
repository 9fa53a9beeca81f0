package bpf

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A Count is how many samples of a target had the same stack in the same transaction. With
// KeepUntraced, all ids may be 0: these samples had no trace.
type Count struct {
	Stack         StackKey // its Target is the process
	TID           int      // with ByThread, the thread in our own pid namespace; else 0
	Thread        string   // the same: its name at the first sample, any bytes
	TraceID       [16]byte
	TransactionID [8]byte
	SpanID        [8]byte // with BySpan, the span id in the slot at each of the samples; else 0
	TraceFlags    uint8   // of the last sample
	First, Last   uint64  // CLOCK_MONOTONIC of the first and last sample since the drain before, ns
	Samples       uint32

	OTel       bool   // the ids are from a record of OpenTelemetry's, or labels; TransactionID is 0 then
	OfLabels   bool   // Attributes are of labels: the index is one of LabelAttributes
	OfOBI      bool   // the ids are of OBI: see Sampler.FollowOBI
	Attributes []byte // of such a record, those that are wanted: {index, length, value}…; valid until yield returns
}

// drainBatch is how many counts one system call returns: 52 KiB of buffers.
const drainBatch = 512

// drain is the state of Drain.
type drain struct {
	tables     [2]*ebpf.Map
	active     uint32 // index of the table that the program counts in; the other one is empty
	kept       uint64 // samples counted in tables since OpenSampler, as of the last Drain
	unfinished bool   // the other one is not empty, because of an error

	keys       [drainBatch]samplerCountKey
	values     [drainBatch]samplerCount
	batch      batch
	attributes attributesDrain
}

// Drain calls yield with each count since the last call, and resets them. Nothing that is counted
// meanwhile is lost: there are two tables, and Drain waits until the program does not count in the
// one that it empties. When nothing was counted, it only reads shared memory, unless stacks must be
// evicted.
//
// [Sampler.Stack] returns the stacks of the counts from within yield and until the next call. After
// an error, the counts that yield was not called with come with the next call.
func (s *Sampler) Drain(yield func(Count)) error {
	s.draining.Lock()
	defer s.draining.Unlock()
	total, err := s.readCounters()
	if err != nil {
		return err
	}
	leftOver := s.drain.unfinished
	if leftOver {
		if err := s.drain.empty(total.AttributesStored, yield); err != nil {
			return err
		}
	}
	if kept := s.kept(&total); kept != s.drain.kept {
		if err := s.swap(); err != nil {
			return err
		}
		s.drain.kept = kept
		if !leftOver { // whose stacks are needed until the next call
			s.retained.age()
		}
		if total, err = s.readCounters(); err != nil { // with all that was stored until the swap
			return err
		}
		if err := s.drain.empty(total.AttributesStored, yield); err != nil {
			return err
		}
	}
	if err := s.stacks.evict(total.StacksStored); err != nil {
		return err
	}
	if unwound := s.unwound.Load(); unwound != nil {
		return unwound.evict(total.UnwoundStored)
	}
	return nil
}

// kept returns how many samples were counted in the tables since OpenSampler.
func (s *Sampler) kept(total *samplerCounters) uint64 {
	kept := total.Outcomes[Correlated]
	if s.options.KeepUnsampled {
		kept += total.Outcomes[Unsampled]
	}
	if s.options.KeepUntraced {
		kept += total.Outcomes[NoSlot] + total.Outcomes[NoTrace] + total.Outcomes[NotValid] + total.Outcomes[ZeroIDs]
	}
	return kept
}

const (
	// visibleAfter is when all CPUs see the swap, at the latest. A store of one CPU is visible to
	// all others within some hundred nanoseconds.
	visibleAfter = 5 * time.Microsecond

	// countingPause is the time between two checks whether a CPU has finished counting. One that
	// has not is not running: the hypervisor has preempted it.
	countingPause = time.Millisecond
)

// swap makes the program count in the other table, and waits until no CPU counts in the former one.
//
// On each CPU the program makes counting odd, reads which table is active, counts there, and makes
// counting even. So a CPU that reads the former table before it sees the swap has made counting odd
// before. That is visible after visibleAfter, unless the CPU has finished by then. If counting is
// odd but has changed, the CPU has begun again, in the new table.
//
// bpf(2) would do the same for a map in maps, by waiting until all CPUs have passed through the
// scheduler: 10 ms, in which the Go runtime polls for the end of the system call, which takes as
// much CPU time as all the rest of a drain.
func (s *Sampler) swap() error {
	next := s.drain.active ^ 1
	if err := s.objects.Active.Set(next); err != nil {
		return fmt.Errorf("swapping tables: %w", err)
	}
	s.drain.active, s.drain.unfinished = next, true // whatever fails below, the former must be emptied
	return awaitCounting(int(s.objects.Counters.MaxEntries()), func(cpu int) (uint64, error) {
		perCPU, err := s.readCPU(cpu)
		return perCPU.Counting, err
	})
}

// awaitCounting waits, after a swap of tables, until no CPU counts in the former one. counting returns
// a number that is odd while the CPU counts.
func awaitCounting(cpus int, counting func(cpu int) (uint64, error)) error {
	for swapped := time.Now(); time.Since(swapped) < visibleAfter; {
	}
	for cpu := range cpus {
		first, err := counting(cpu)
		for now := first; err == nil && now%2 == 1 && now == first; {
			time.Sleep(countingPause)
			now, err = counting(cpu)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// empty calls yield with the counts of the table that is not active. attributesStored is how many
// attributes were put into tables so far.
func (d *drain) empty(attributesStored uint64, yield func(Count)) error {
	d.unfinished = true
	former := d.active ^ 1
	if err := d.attributes.read(former, attributesStored); err != nil {
		return fmt.Errorf("draining attributes: %w", err)
	}
	err := d.batch.drain(d.tables[former].FD(), unsafe.Pointer(&d.keys), unsafe.Pointer(&d.values), drainBatch,
		func(n int) {
			for i := range n {
				count := newCount(&d.keys[i], &d.values[i])
				count.Attributes = d.attributes.lookup(&d.keys[i])
				yield(count)
			}
		})
	if err != nil {
		return fmt.Errorf("draining counts: %w", err)
	}
	d.unfinished = false
	d.attributes.forget()
	return nil
}

func newCount(key *samplerCountKey, value *samplerCount) Count {
	count := Count{
		Stack:      newStackKey(key.Stack),
		TID:        int(key.Stack.Tid),
		Thread:     unix.ByteSliceToString(asBytes(value.Thread[:])),
		First:      value.First,
		Last:       value.Last,
		TraceFlags: uint8(value.TraceFlags),
		Samples:    value.Samples,
		OTel:       key.Attributes != 0,
		OfLabels:   areOfLabels(key.Attributes),
		OfOBI:      key.Attributes == ofOBI,
	}
	putTraceID(&count.TraceID, key.TraceId)
	binary.NativeEndian.PutUint64(count.TransactionID[:], key.TransactionId)
	binary.NativeEndian.PutUint64(count.SpanID[:], key.SpanId)
	return count
}

const ofOBI = uint64(samplerAttributesOriginOF_OBI)

// areOfLabels reports whether a hash is one of attributes of labels.
func areOfLabels(hash uint64) bool {
	return hash&uint64(samplerAttributesOriginATTRIBUTES_ORIGIN) == uint64(samplerAttributesOriginATTRIBUTES_OF_LABELS)
}

// putTraceID stores the bytes of an id, which the program has as words.
func putTraceID(id *[16]byte, words [2]uint64) {
	binary.NativeEndian.PutUint64(id[:8], words[0])
	binary.NativeEndian.PutUint64(id[8:], words[1])
}
