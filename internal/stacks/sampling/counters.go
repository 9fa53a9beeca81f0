package sampling

import (
	"cmp"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/unwind"
	"correlator/profile"
)

// Counters is what a Sampling counts. All fields only grow and may be read at any time.
type Counters struct {
	// Kernel is the number of samples by their outcome in the kernel, as of the last drain.
	// Correlated, TableFull and Unreadable samples (and Unsampled, NoTrace and NoSlot ones, if
	// those are kept) are handed over: once Run and the processes have ended, or were abandoned,
	// their number is the sum of Outcomes.
	Kernel   [len(bpf.Counters{})]atomic.Uint64
	Outcomes process.SampleOutcomes
	Missed   atomic.Uint64 // ticks of the sampling clock without a sample, see bpf.Sampler.Missed

	Cut           atomic.Uint64 // samples handed over whose stack lacks callers
	Unnamed       atomic.Uint64 // those of them whose stack was unwound, but not named in time, or at all
	AttributesCut atomic.Uint64 // samples of whose attributes some were not read: see bpf.SideCounters
	UnknownKeys   atomic.Uint64 // samples with attributes outside the key map: the same
	Walked        atomic.Uint64 // samples of which the engine's programs have found nothing: see bpf.SideCounters

	Drains       atomic.Uint64
	Errors       atomic.Uint64 // calls that failed
	ProbesFailed atomic.Uint64 // failed probes of a process's executable memory
	Unwinding    unwind.Counters

	files  atomic.Pointer[profile.Files]  // nil before Open
	kernel atomic.Pointer[profile.Kernel] // nil without kernel frames, too
	store  atomic.Pointer[profile.Store]
}

// addFunc receives a counter: its key in logs and in the agent's status, its value, and its metric.
type addFunc func(key string, n uint64, desc *prometheus.Desc, labels ...string)

// Each calls add with every counter by its key in logs. The keys do not depend on what is sampled.
func (c *Counters) Each(add func(key string, n uint64)) {
	c.each(func(key string, n uint64, _ *prometheus.Desc, _ ...string) { add(key, n) })
}

func (c *Counters) each(add addFunc) {
	for o := range c.Kernel {
		outcome := bpf.KernelOutcome(o).String()
		add("kernel_"+outcome, c.Kernel[o].Load(), kernelSamplesDesc, outcome)
	}
	for o := range process.NumOutcomes {
		add("sampled_"+o.String(), c.Outcomes[o].Load(), samplesDesc, o.String())
	}
	add("samples_missed", c.Missed.Load(), ticksMissedDesc)
	add("samples_cut", c.Cut.Load(), samplesCutDesc)
	add("samples_unnamed", c.Unnamed.Load(), samplesUnnamedDesc)
	add("samples_walked", c.Walked.Load(), samplesWalkedDesc)
	add("attributes_cut", c.AttributesCut.Load(), attributesCutDesc)
	add("attributes_unknown_key", c.UnknownKeys.Load(), unknownKeysDesc)
	add("drains", c.Drains.Load(), drainsDesc)
	add("sampling_troubles", c.Errors.Load(), errorsDesc)
	add("looks_failed", c.ProbesFailed.Load(), mappingProbesFailedDesc)

	files := cmp.Or(c.files.Load(), &profile.Files{})
	mappings := &files.Mappings
	add("mappings_resolved", mappings.Resolved.Load(), mappingsDesc, "resolved")
	add("mappings_not_opened", mappings.NotOpened.Load(), mappingsDesc, "not_opened")
	add("mappings_not_read", mappings.NotRead.Load(), mappingsDesc, "not_read")
	add("mappings_not_elf", mappings.NotELF.Load(), mappingsDesc, "not_elf")
	add("mappings_not_loaded", mappings.NotLoaded.Load(), mappingsDesc, "not_loaded")
	add("mappings_too_many", mappings.TooMany.Load(), mappingsDesc, "too_many")

	user, kernel := &files.Frames, &cmp.Or(c.kernel.Load(), &profile.Kernel{}).Frames
	add("frames_file", user.File.Load(), framesDesc, "user", "file")
	add("frames_anonymous", user.Anonymous.Load(), framesDesc, "user", "anonymous")
	add("frames_unknown", user.Unknown.Load(), framesDesc, "user", "unknown")
	add("kernel_frames_file", kernel.File.Load(), framesDesc, "kernel", "file")
	add("kernel_frames_anonymous", kernel.Anonymous.Load(), framesDesc, "kernel", "anonymous")
	add("kernel_frames_unknown", kernel.Unknown.Load(), framesDesc, "kernel", "unknown")

	stacks := c.Stacks()
	add("stacks_added", stacks.Added, stacksAddedDesc)
	add("stacks_refused", stacks.Refused, stacksRefusedDesc)
	add("stacks_evicted", stacks.EvictedFull+stacks.EvictedBytes, stacksEvictedDesc)
	c.eachUnwinding(add)
}

// eachUnwinding calls add with the counters of the unwinding engine.
func (c *Counters) eachUnwinding(add addFunc) {
	u := &c.Unwinding
	add("unwinding_workers_started", u.Started.Load(), unwindingWorkersDesc)
	add("unwinding_workers_killed_timeout", u.TimedOut.Load(), unwindingKilledDesc, "timeout")
	add("unwinding_workers_killed_ended", u.Ended.Load(), unwindingKilledDesc, "ended")
	add("unwinding_workers_killed_unable", u.Unable.Load(), unwindingKilledDesc, "unable")
	add("unwinding_workers_killed_nonsense", u.Nonsense.Load(), unwindingKilledDesc, "nonsense")
	add("unwinding_workers_killed_exhausted", u.Exhausted.Load(), unwindingKilledDesc, "exhausted")
	add("unwinding_synchronized_ready", u.Synchronized.Load(), unwindingSynchronizedDesc, "ready")
	add("unwinding_synchronized_not_ready", u.NotReady.Load(), unwindingSynchronizedDesc, "not_ready")
	add("unwinding_synchronized_over_quota", u.OverQuota.Load(), unwindingSynchronizedDesc, "over_quota")
	add("unwinding_synchronized_gone", u.Gone.Load(), unwindingSynchronizedDesc, "gone")
	add("unwinding_synchronized_failed", u.Failed.Load(), unwindingSynchronizedDesc, "failed")
	add("unwinding_requests_refused_unavailable", u.Unavailable.Load(), unwindingRefusedDesc, "unavailable")
	add("unwinding_requests_refused_busy", u.Busy.Load(), unwindingRefusedDesc, "busy")
	add("unwinding_requests_refused_quarantined", u.LeftOut.Load(), unwindingRefusedDesc, "quarantined")
	add("unwinding_quarantined", u.Quarantined.Load(), unwindingQuarantinedDesc)
	add("unwinding_files_skipped", u.FilesSkipped.Load(), unwindingFilesSkippedDesc)
	add("unwinding_files_uncorrected", u.Uncorrected.Load(), unwindingUncorrectedDesc)
	add("unwinding_table_errors", u.MapErrors.Load(), unwindingTableErrorsDesc)
	add("unwinding_stacks", u.Stacks.Load(), unwindingStacksDesc)
	add("unwinding_stacks_cut", u.StacksCut.Load(), unwindingStacksCutDesc)
	add("unwinding_frames", u.Frames.Load(), unwindingFramesDesc)
	for reason, name := range inlinedUnknown {
		if name != "" {
			add("unwinding_inlined_unknown_"+name, u.InlinedUnknown[reason].Load(), unwindingInlinedDesc, name)
		}
	}
	add("unwinding_frames_lacking_name", u.FramesUnnamed.Load(), unwindingFramesLackingDesc, "name")
	add("unwinding_frames_lacking_address", u.FramesUnmapped.Load(), unwindingFramesLackingDesc, "address")
	add("unwinding_frames_lacking_line", u.FramesUnplaced.Load(), unwindingFramesLackingDesc, "line")
}

// inlinedUnknown are the names of reasons why it is not known which inlined method runs.
var inlinedUnknown = [...]string{
	unwind.UnknownInLoop: "loop", unwind.UnknownInCall: "call", unwind.UnknownUnread: "unread",
	unwind.UnknownTooLarge: "too_large", unwind.UnknownBetween: "between",
}

// Stacks returns what the store of stacks holds and has counted. It takes the store's lock.
func (c *Counters) Stacks() (stats profile.StoreStats) {
	if store := c.store.Load(); store != nil {
		stats = store.Stats()
	}
	return stats
}
