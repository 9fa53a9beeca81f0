package bpf

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"correlator/internal/host/label"
)

// KernelOutcome is the result of a sample in the kernel. Each sample has exactly one.
type KernelOutcome uint8

const (
	// NoTarget: a thread of a process that is no target.
	NoTarget = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_TARGET)

	// Stale: the target's process has exec'ed since, or ended and its pid was reused; or the target
	// was being replaced.
	Stale = KernelOutcome(samplerSampleOutcomeOUTCOME_STALE)

	// NoUserCode: a thread that is exiting, or a worker of io_uring.
	NoUserCode = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_USER_CODE)

	// NoThreadPointer: the thread has not set it yet; or it is an arm64 main thread that was not
	// switched out since.
	NoThreadPointer = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_THREAD_POINTER)

	// Unreadable: memory on the way to the slot was not resident, or is not mapped. A
	// [DeferredReader] returns the sample. OTel's record was not looked at: the slot may have a trace.
	Unreadable = KernelOutcome(samplerSampleOutcomeOUTCOME_UNREADABLE)

	// RecordUnreadable: the same of OTel's record, and the thread has no context of another kind. No
	// one may read the record once the thread runs again, so the sample is not deferred.
	RecordUnreadable = KernelOutcome(samplerSampleOutcomeOUTCOME_RECORD_UNREADABLE)

	// NoSlot: the thread has no slot, and no record. With KeepUntraced the sample is counted in the
	// table, without ids.
	NoSlot = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_SLOT)

	// Updating: the thread was writing to its slot.
	Updating = KernelOutcome(samplerSampleOutcomeOUTCOME_UPDATING)

	// Malformed: the contents of the slot are not those of an APM agent.
	Malformed = KernelOutcome(samplerSampleOutcomeOUTCOME_MALFORMED)

	// NoTrace: the thread was working on no trace. With KeepUntraced the same as NoSlot.
	NoTrace = KernelOutcome(samplerSampleOutcomeOUTCOME_NO_TRACE)

	// NotValid: OTel's record is marked as not valid: the thread is in no span, or was writing. With
	// KeepUntraced the same as NoSlot.
	NotValid = KernelOutcome(samplerSampleOutcomeOUTCOME_NOT_VALID)

	// ZeroIDs: OTel's record has no trace id, or no span id: the thread is in no span. With
	// KeepUntraced the same as NoSlot.
	ZeroIDs = KernelOutcome(samplerSampleOutcomeOUTCOME_ZERO_IDS)

	// Unsampled: the trace is not sampled. With KeepUnsampled the sample is counted in the table
	// all the same.
	Unsampled = KernelOutcome(samplerSampleOutcomeOUTCOME_UNSAMPLED)

	// Correlated: counted in the table that [Sampler.Drain] empties.
	Correlated = KernelOutcome(samplerSampleOutcomeOUTCOME_CORRELATED)

	// TableFull: to be counted, but the table of counts, of stacks or of attributes was full. A [DeferredReader]
	// returns the sample.
	TableFull = KernelOutcome(samplerSampleOutcomeOUTCOME_TABLE_FULL)

	// UnwindingFailed: to be counted, or unreadable, but without a single frame; or the [Unwinder]
	// ended without its last program.
	UnwindingFailed = KernelOutcome(samplerSampleOutcomeOUTCOME_UNWINDING_FAILED)

	// Lost: Unreadable or TableFull, but the ring buffer was full.
	Lost = KernelOutcome(samplerSampleOutcomeOUTCOME_LOST)

	// Idle: the CPU ran nothing.
	Idle = KernelOutcome(samplerSampleOutcomeOUTCOME_IDLE)

	// InKernel: a thread of a target was in the kernel, on one of those of which [ReadsInKernel] returns an
	// error. Whether it worked on a trace is not known.
	InKernel = KernelOutcome(samplerSampleOutcomeOUTCOME_IN_KERNEL)

	outcomes = int(samplerSampleOutcomeOUTCOMES)
)

var outcomeNames = [outcomes]string{
	NoTarget:         "no_target",
	Stale:            "stale",
	NoUserCode:       "no_user_code",
	NoThreadPointer:  "no_thread_pointer",
	Unreadable:       "unreadable",
	RecordUnreadable: "record_unreadable",
	NoSlot:           "no_slot",
	Updating:         "updating",
	Malformed:        "malformed",
	NoTrace:          "no_trace",
	NotValid:         "not_valid",
	ZeroIDs:          "zero_ids",
	Unsampled:        "unsampled",
	Correlated:       "correlated",
	TableFull:        "table_full",
	UnwindingFailed:  "unwinding_failed",
	Lost:             "lost",
	Idle:             "idle",
	InKernel:         "in_kernel",
}

// String returns the outcome as the value of a metric's label.
func (o KernelOutcome) String() string { return label.Of(outcomeNames[:], o) }

// Counters are the numbers of samples by KernelOutcome, since OpenSampler.
type Counters [outcomes]uint64

// Taken returns the number of all samples.
func (c *Counters) Taken() (sum uint64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Counters returns the sums of the counters of all CPUs, without samples that are being taken. One
// that an [Unwinder] has lost is among them until the CPU's next sample of a target. It reads
// shared memory.
func (s *Sampler) Counters() (Counters, error) {
	total, err := s.readCounters()
	return Counters(total.Outcomes), err
}

// SideCounters count samples by other properties than their outcome, since OpenSampler.
type SideCounters struct {
	// WalkedInstead are those of which an [Unwinder] has found nothing, so that their stacks were
	// walked by frame pointers.
	WalkedInstead uint64

	// AttributesCut are those whose record has attributes that were not read: more than 64, or beyond
	// 1024 bytes, in memory that is not resident, or not encoded as they should be; or wanted ones
	// that together have more than 504 bytes.
	AttributesCut uint64

	// UnknownKeys are those whose record has an attribute with an index from KnownKeys on, if any
	// attributes are wanted.
	UnknownKeys uint64

	// LabelsRefused are those of goroutines whose labels have no valid context: too many labels, an invalid
	// id, or memory that is not resident; or of threads that are not known to be the runtime's. They count
	// as without context.
	LabelsRefused uint64

	// LabelsUnread are no samples, but how often a target was set without the labels that it should have:
	// there are too many layouts of Go programs, of its owner or of all, or the kernel has refused what
	// reads labels.
	LabelsUnread uint64

	// OfOBI are those whose context is OBI's: see FollowOBI.
	OfOBI uint64
}

// SideCounters returns sums, as Counters.
func (s *Sampler) SideCounters() (SideCounters, error) {
	total, err := s.readCounters()
	return SideCounters{
		WalkedInstead: total.WalkedInstead, AttributesCut: total.AttributesCut, UnknownKeys: total.UnknownKeys,
		LabelsRefused: total.LabelsRefused, LabelsUnread: s.table.layouts.unread.Load(),
		OfOBI: total.OfObi,
	}, err
}

// Missed returns the number of ticks of the CPUs' clocks, until the last Refresh or Stop, at which
// no sample was taken: the CPU was running another program of a kind that kernels run one at a
// time, or was in bpf(2) with a map locked; the kernel throttled the clock, because of
// kernel.perf_event_max_sample_rate; or the hypervisor ran the CPU too late. It never decreases.
//
// Missed and Taken together are all ticks, except the last of each CPU. When a CPU goes offline or
// comes online, the time until the next Refresh counts as if it were online, and so does all of an
// absence that no Refresh has seen: which ticks it had is not known.
func (s *Sampler) Missed() uint64 {
	return s.clock.totalMissed()
}

func (s *Sampler) readCounters() (total samplerCounters, err error) {
	for cpu := range int(s.objects.Counters.MaxEntries()) {
		perCPU, err := s.readCPU(cpu)
		if err != nil {
			return total, err
		}
		for outcome, n := range perCPU.Outcomes {
			total.Outcomes[outcome] += n
		}
		total.StacksStored += perCPU.StacksStored
		total.UnwoundStored += perCPU.UnwoundStored
		total.WalkedInstead += perCPU.WalkedInstead
		total.AttributesStored += perCPU.AttributesStored
		total.AttributesCut += perCPU.AttributesCut
		total.UnknownKeys += perCPU.UnknownKeys
		total.LabelsRefused += perCPU.LabelsRefused
		total.OfObi += perCPU.OfObi
	}
	return total, nil
}

// readEntry reads an entry of an array that is mapped.
func readEntry[T any](array *ebpf.Memory, index int) (entry T, err error) {
	raw := asBytes(unsafe.Slice(&entry, 1))
	_, err = array.ReadAt(raw, int64(index)*int64(len(raw)))
	return entry, err
}

func (s *Sampler) readCPU(cpu int) (perCPU samplerCounters, err error) {
	if perCPU, err = readEntry[samplerCounters](s.counters, cpu); err != nil {
		return perCPU, fmt.Errorf("reading counters: %w", err)
	}
	if s.stopped.Load() { // what an unwinder has lost can be counted now
		perCPU.Outcomes[UnwindingFailed] += perCPU.Pending
		perCPU.Pending = 0
	}
	return perCPU, nil
}

// takenOn returns the number of all samples of a CPU, with one in an unwinder.
func (s *Sampler) takenOn(cpu int) (uint64, error) {
	perCPU, err := s.readCPU(cpu)
	counters := Counters(perCPU.Outcomes)
	return counters.Taken() + perCPU.Pending, err
}
