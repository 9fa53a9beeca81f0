package bpf

import (
	"fmt"
	"unsafe"
)

// KernelOutcome is how a sample ended: each sample ends as exactly one.
type KernelOutcome uint8

const (
	// NoTarget: a thread of a process that is no target.
	NoTarget = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_TARGET)

	// Stale: the target's process has exec'ed since, or ended and its pid was given out again; or
	// the target was replaced at this very moment.
	Stale = KernelOutcome(samplerSampleOutcomeOUTCOME_STALE)

	// NoUserCode: a thread that is exiting, or a worker of io_uring.
	NoUserCode = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_USER_CODE)

	// NoThreadPointer: the thread has set none yet; or it is an arm64 main thread that was not
	// switched out since it did.
	NoThreadPointer = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_THREAD_POINTER)

	// Unreadable: memory on the way to the trace was not resident, or is not mapped. The sample
	// comes out of a [DeferredReader].
	Unreadable = KernelOutcome(samplerSampleOutcomeOUTCOME_UNREADABLE)

	// NoSlot: the thread has no slot. With KeepUntraced the sample is counted in the table, without ids.
	NoSlot = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_SLOT)

	// Updating: the thread was writing to its slot.
	Updating = KernelOutcome(samplerSampleOutcomeOUTCOME_UPDATING)

	// Malformed: no agent wrote what is in the slot.
	Malformed = KernelOutcome(samplerSampleOutcomeOUTCOME_MALFORMED)

	// NoTrace: the thread was working on none. With KeepUntraced it is as with NoSlot.
	NoTrace = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_TRACE)

	// Unsampled: the trace is not sampled. With KeepUnsampled the sample is counted in the table
	// all the same.
	Unsampled = KernelOutcome(samplerSampleOutcomeOUTCOME_UNSAMPLED)

	// Correlated: counted in the table that [Sampler.Drain] empties.
	Correlated = KernelOutcome(samplerSampleOutcomeOUTCOME_CORRELATED)

	// TableFull: correlated, or to be counted all the same, but there was no place for the count or for
	// the stack. The sample comes out of a [DeferredReader].
	TableFull = KernelOutcome(samplerSampleOutcomeOUTCOME_TABLE_FULL)

	// UnwindingFailed: correlated or to be counted all the same, or unreadable, but without a single frame.
	UnwindingFailed = KernelOutcome(samplerSampleOutcomeOUTCOME_UNWINDING_FAILED)

	// Lost: would have been Unreadable or TableFull, but the ring buffer was full.
	Lost = KernelOutcome(samplerSampleOutcomeOUTCOME_LOST)

	// Idle: the CPU ran nothing.
	Idle = KernelOutcome(samplerSampleOutcomeOUTCOME_IDLE)

	outcomes = int(samplerSampleOutcomeOUTCOMES)
)

var outcomeNames = [outcomes]string{
	NoTarget:        "no_target",
	Stale:           "stale",
	NoUserCode:      "no_user_code",
	NoThreadPointer: "no_thread_pointer",
	Unreadable:      "unreadable",
	NoSlot:          "no_slot",
	Updating:        "updating",
	Malformed:       "malformed",
	NoTrace:         "no_trace",
	Unsampled:       "unsampled",
	Correlated:      "correlated",
	TableFull:       "table_full",
	UnwindingFailed: "unwinding_failed",
	Lost:            "lost",
	Idle:            "idle",
}

// String returns the outcome as a label of a metric.
func (o KernelOutcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Counters is the number of samples by Outcome, since OpenSampler.
type Counters [outcomes]uint64

// Taken is the number of all samples.
func (c *Counters) Taken() (sum uint64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Counters reads the counters of all CPUs. A sample that is just being taken is not in them yet.
func (s *Sampler) Counters() (Counters, error) {
	total, err := s.readCounters()
	return Counters(total.Outcomes), err
}

// Missed is the number of times, until the last Refresh or Stop, that a CPU's clock ticked and no
// sample was taken: the CPU was running another program of the kinds that kernels run one at a time,
// or worked for bpf(2) on a map; the kernel held the clock back, because of
// kernel.perf_event_max_sample_rate; or the hypervisor ran the CPU too late. It never decreases.
//
// Together with the samples that were Taken, these are all ticks but for the last of each CPU. Of a
// CPU that went offline, ticks since the Refresh before are not counted as missed; of one that is
// back before the next Refresh, those of the time in between are.
func (s *Sampler) Missed() uint64 {
	return s.clock.totalMissed()
}

func (s *Sampler) readCounters() (total samplerCounters, err error) {
	for cpu := range int(s.objects.Counters.MaxEntries()) {
		of, err := s.readCPU(cpu)
		if err != nil {
			return total, err
		}
		for outcome, n := range of.Outcomes {
			total.Outcomes[outcome] += n
		}
		total.StacksStored += of.StacksStored
	}
	return total, nil
}

func (s *Sampler) readCPU(cpu int) (of samplerCounters, err error) {
	raw := asBytes(unsafe.Slice(&of, 1))
	if _, err := s.counters.ReadAt(raw, int64(cpu)*int64(len(raw))); err != nil {
		return of, fmt.Errorf("reading counters: %w", err)
	}
	return of, nil
}

// takenOn is the number of all samples of a CPU.
func (s *Sampler) takenOn(cpu int) (uint64, error) {
	of, err := s.readCPU(cpu)
	counters := Counters(of.Outcomes)
	return counters.Taken(), err
}
