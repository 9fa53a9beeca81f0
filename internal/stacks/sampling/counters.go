package sampling

import (
	"cmp"
	"sync/atomic"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/metric"
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
	LabelsRefused atomic.Uint64 // samples of goroutines without a valid context in labels: the same
	LabelsUnread  atomic.Uint64 // programs whose labels are not read: the same
	Walked        atomic.Uint64 // samples of which the engine's programs have found nothing: see bpf.SideCounters

	Accounts           atomic.Uint64 // handed over
	AccountsUnknown    atomic.Uint64 // not handed over: their process has ended, or is not known any more
	AccountsLost       atomic.Uint64 // the kernel's table was full, or their process had its share of it
	AccountsUnread     atomic.Uint64 // switches of threads whose context could not be read: see bpf.WaitCounters
	AccountsUnprepared atomic.Uint64 // switches of threads without a state: the same
	AccountsUnwoken    atomic.Uint64 // the same
	AccountsUnseen     atomic.Uint64 // the same

	Waits process.SampleOutcomes // waits whose stacks the kernel handed over, as Outcomes
	Walks atomic.Uint64          // those waits; as Kernel, their number is the sum of Waits

	WaitsCut atomic.Uint64 // those that were handed on with an incomplete stack

	// Those that were handed on but for their stack, which is that of an idle thread.
	WaitsIdle     atomic.Uint64
	WaitsIdleLate atomic.Uint64 // those of them that are in their account all the same: it came before
	// Stacks of waits that the kernel did not hand over: see bpf.WaitCounters.
	WalksUnasked, WalksUnaskedNS, WalksUnrung, WalksMissed, WalksUnfinished, WalksUnsent atomic.Uint64

	Drains       atomic.Uint64
	Errors       atomic.Uint64 // calls that failed
	ProbesFailed atomic.Uint64 // failed probes of a process's executable memory
	Unwinding    unwind.Counters

	files  atomic.Pointer[profile.Files]  // nil before Open
	kernel atomic.Pointer[profile.Kernel] // nil without kernel frames, too
	store  atomic.Pointer[profile.Store]
}

// SamplesHelp describes the metric of the samples from one source, by outcome. The source is
// "sampled" for what a Sampling takes, and "fed" for what outside samplers send to the agent.
const SamplesHelp = "Samples of known processes and all fed samples, by outcome. Only correlated ones are queued."

// Families returns every counter. They do not depend on what is sampled.
func (c *Counters) Families() (f metric.Families) {
	f.Add("kernel_samples", "kernel", metric.By[bpf.KernelOutcome]("outcome", c.Kernel[:]),
		"Ticks of the sampling clock on all CPUs, by outcome in the kernel program.")
	f.Add("samples", "sampled", metric.By[process.SampleOutcome]("outcome", c.Outcomes[:]), SamplesHelp,
		"source", "sampled")
	f.One("sampling_ticks_missed", "samples_missed", &c.Missed,
		"Ticks without a sample: throttled, CPU taken by the hypervisor, or just online.")
	f.One("samples_cut", "", &c.Cut, "Samples with an incomplete stack.")
	f.One("samples_unnamed", "", &c.Unnamed,
		"Samples whose unwound stack was not named in time and is cut there. Part of correlator_samples_cut_total.")
	f.One("samples_walked", "", &c.Walked,
		"Samples of unwound processes walked by frame pointers, since the engine does not know the leaf.")
	f.One("sample_attributes_cut", "attributes_cut", &c.AttributesCut,
		"OpenTelemetry samples with attributes that were too many, too long, malformed or unreadable.")
	f.One("sample_attributes_unknown_key", "attributes_unknown_key", &c.UnknownKeys,
		"OpenTelemetry samples with an attribute whose key is not in the key map.")
	f.One("sample_labels_refused", "labels_refused", &c.LabelsRefused,
		"Samples of Go programs without context: too many labels, an invalid id, an unknown thread, or unreadable.")
	f.One("labels_unread", "labels_unread", &c.LabelsUnread,
		"Go programs sampled without labels: too many places of them, of one user or in all.")
	f.Add("accounts", "", metric.Label("outcome").With("handed_over", c.Accounts.Load()).
		With("unknown_process", c.AccountsUnknown.Load()).With("no_room", c.AccountsLost.Load()),
		"Accounts of what a thread did in one context since its last one, by outcome.")
	f.Add("accounts_inexact", "", metric.Label("reason").With("unread", c.AccountsUnread.Load()).
		With("unprepared", c.AccountsUnprepared.Load()).With("unwoken", c.AccountsUnwoken.Load()).
		With("unseen", c.AccountsUnseen.Load()).With("idle", c.WaitsIdleLate.Load()),
		"Switches of threads that are not accounted exactly, by reason.")
	f.Add("wait_stacks", "", metric.By[process.SampleOutcome]("outcome", c.Waits[:]),
		"Stacks of waits that the kernel handed over, by outcome.")
	f.One("wait_stacks_idle", "", &c.WaitsIdle,
		"Stacks of waits that were handed on without frames: an idle thread's. Part of correlator_wait_stacks_total.")
	f.One("wait_stacks_cut", "", &c.WaitsCut,
		"Stacks of waits that are incomplete. Part of correlator_wait_stacks_total.")
	f.Add("wait_stacks_lost", "", metric.Label("reason").With("too_many", c.WalksUnasked.Load()).
		With("not_interrupted", c.WalksUnrung.Load()).With("missed", c.WalksMissed.Load()).
		With("unfinished", c.WalksUnfinished.Load()).With("no_room", c.WalksUnsent.Load()),
		"Stacks of waits that the kernel did not hand over, by reason.")
	f.One("sampling_drains", "drains", &c.Drains, "Reads of the kernel's tables of samples.")
	f.One("sampling_errors", "sampling_troubles", &c.Errors,
		"Failed system calls of sampling; the log has the first of each kind.")
	f.One("mapping_looks_failed", "looks_failed", &c.ProbesFailed, "Failed reads of a process's mappings.")

	files := cmp.Or(c.files.Load(), &profile.Files{})
	m := &files.Mappings
	f.Add("mappings", "", metric.Label("result").With("resolved", m.Resolved.Load()).
		With("not_opened", m.NotOpened.Load()).With("not_read", m.NotRead.Load()).With("not_elf", m.NotELF.Load()).
		With("not_loaded", m.NotLoaded.Load()).With("too_many", m.TooMany.Load()),
		"Executable file mappings, by whether the file was identified.")
	user, kernel := &files.Frames, &cmp.Or(c.kernel.Load(), &profile.Kernel{}).Frames
	f.Add("frames", "", metric.Label("kind").With("file", user.File.Load()).
		With("anonymous", user.Anonymous.Load()).With("unknown", user.Unknown.Load()), framesHelp, "space", "user")
	f.Add("frames", "kernel_frames", metric.Label("kind").With("file", kernel.File.Load()).
		With("anonymous", kernel.Anonymous.Load()).With("unknown", kernel.Unknown.Load()), framesHelp, "space",
		"kernel")

	stacks := c.Stacks()
	f.Add("stacks_added", "", metric.Just(stacks.Added), "Stacks added to the cache.")
	f.Add("stacks_refused", "", metric.Just(stacks.Refused), "Stacks not cached: without frames, or too large.")
	f.Add("stacks_evicted", "", metric.Just(stacks.EvictedFull+stacks.EvictedBytes), "Stacks evicted from the cache.")
	return append(f, c.unwinding()...)
}

const framesHelp = "Frames of named stacks, by location."

// unwinding returns the counters of the unwinding engine and its worker.
func (c *Counters) unwinding() (f metric.Families) {
	u := &c.Unwinding
	f.One("unwinding_workers_started", "", &u.Started, "Unwinding workers started.")
	f.Add("unwinding_workers_killed", "", metric.Label("reason").With("timeout", u.TimedOut.Load()).
		With("ended", u.Ended.Load()).With("unable", u.Unable.Load()).With("nonsense", u.Nonsense.Load()).
		With("exhausted", u.Exhausted.Load()),
		"Unwinding workers killed or exited. Until processes are synchronized again, stacks are "+
			"walked by frame pointers.")
	f.Add("unwinding_synchronizations", "unwinding_synchronized", metric.Label("result").
		With("ready", u.Synchronized.Load()).With("not_ready", u.NotReady.Load()).
		With("over_quota", u.OverQuota.Load()).With("gone", u.Gone.Load()).With("failed", u.Failed.Load()),
		"Reads of a process's code for unwinding, by result.")
	f.Add("unwinding_requests_refused", "", metric.Label("reason").With("unavailable", u.Unavailable.Load()).
		With("busy", u.Busy.Load()).With("quarantined", u.LeftOut.Load()),
		"Requests to the unwinding worker refused.")
	f.One("unwinding_quarantines", "unwinding_quarantined", &u.Quarantined,
		"Quarantines after an unwinding worker was killed.")
	f.One("unwinding_files_skipped", "", &u.FilesSkipped,
		"Mapped files unreadable for unwinding. Stacks end in their code.")
	f.One("unwinding_files_uncorrected", "", &u.Uncorrected,
		"Files whose Go functions, symbols or musl code are damaged or too large. "+
			"Some frames are missing from their stacks.")
	f.One("unwinding_table_errors", "", &u.MapErrors,
		"Failed or refused updates of unwinding tables, for instance full ones.")
	f.One("unwinding_stacks_named", "unwinding_stacks", &u.Stacks,
		"Unwound stacks named. A repeated stack is not named again.")
	f.One("unwinding_stacks_cut", "", &u.StacksCut,
		"Unwound stacks with frames that could not be named; callers are missing.")
	f.One("unwinding_frames", "", &u.Frames, "Named frames of unwound stacks.")
	inlined := metric.Label("reason")
	for reason, name := range inlinedUnknown {
		if name != "" {
			inlined = inlined.With(name, u.InlinedUnknown[reason].Load())
		}
	}
	f.Add("unwinding_inlined_unknown", "", inlined,
		"Named frames of inlined Java code of which the method is not known.")
	f.Add("unwinding_frames_lacking", "", metric.Label("lacking").With("name", u.FramesUnnamed.Load()).
		With("address", u.FramesUnmapped.Load()).With("line", u.FramesUnplaced.Load()),
		"Named frames without what identifies them.")
	return f
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
