package sampling

import (
	"cmp"
	"sync/atomic"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/profile"
)

// Counters is what a Sampling counts. All fields only grow and may be read at any time.
type Counters struct {
	// Kernel is how the samples ended in the kernel, all that were ever taken, as of a second ago at
	// most. Correlated, TableFull and Unreadable ones are handed over (and Unsampled, NoTrace and NoSlot
	// ones, if those are kept): the sum of Outcomes, once Run and the processes have ended. What a
	// process holds that hangs at the end has none.
	Kernel   [len(bpf.Counters{})]atomic.Uint64
	Outcomes process.SampleOutcomes
	Missed   atomic.Uint64 // ticks of the sampling clock without a sample, see bpf.Sampler.Missed

	Drains      atomic.Uint64
	Troubles    atomic.Uint64 // calls that failed
	LooksFailed atomic.Uint64 // looks at the executable memory of a process

	files  atomic.Pointer[profile.Files]  // nil before Open
	kernel atomic.Pointer[profile.Kernel] // nil without kernel frames, too
	store  atomic.Pointer[profile.Store]
}

// Each calls add with everything that is counted, by names that are the same whatever the processes do, and
// whatever is sampled.
func (c *Counters) Each(add func(name string, n uint64)) {
	c.samples(add)
	c.naming(add)
}

func (c *Counters) samples(add func(string, uint64)) {
	for o := range c.Kernel {
		add("kernel_"+bpf.KernelOutcome(o).String(), c.Kernel[o].Load())
	}
	for o := range process.NumOutcomes {
		add("sampled_"+o.String(), c.Outcomes[o].Load())
	}
	add("samples_missed", c.Missed.Load())
	add("drains", c.Drains.Load())
	add("sampling_troubles", c.Troubles.Load())
	add("looks_failed", c.LooksFailed.Load())
}

// naming is what became of mapped files and frames, and of the stacks that are kept.
func (c *Counters) naming(add func(string, uint64)) {
	files := cmp.Or(c.files.Load(), &profile.Files{})
	add("mappings_resolved", files.Mappings.Resolved.Load())
	add("mappings_not_opened", files.Mappings.NotOpened.Load())
	add("mappings_not_read", files.Mappings.NotRead.Load())
	add("mappings_not_elf", files.Mappings.NotELF.Load())
	add("mappings_not_loaded", files.Mappings.NotLoaded.Load())
	add("mappings_too_many", files.Mappings.TooMany.Load())
	addFrames(add, "frames", &files.Frames)
	addFrames(add, "kernel_frames", &cmp.Or(c.kernel.Load(), &profile.Kernel{}).Frames)
	stats := c.Stacks()
	add("stacks_added", stats.Added)
	add("stacks_refused", stats.Refused)
	add("stacks_evicted", stats.EvictedFull+stats.EvictedBytes)
}

// Stacks is what the store of stacks holds and has counted. It takes the store's lock.
func (c *Counters) Stacks() (stats profile.StoreStats) {
	if store := c.store.Load(); store != nil {
		stats = store.Stats()
	}
	return stats
}

func addFrames(add func(string, uint64), prefix string, frames *profile.FrameCounters) {
	add(prefix+"_file", frames.File.Load())
	add(prefix+"_anonymous", frames.Anonymous.Load())
	add(prefix+"_unknown", frames.Unknown.Load())
}
