package sampling

import "github.com/prometheus/client_golang/prometheus"

var (
	kernelSamplesDesc = newDesc("correlator_kernel_samples_total",
		"Ticks of the sampling clock on all CPUs, by what the kernel program made of them. Threads of processes that "+
			"do not take part are no_target, CPUs that did nothing idle.", "outcome")
	ticksMissedDesc = newDesc("correlator_sampling_ticks_missed_total",
		"Ticks of the sampling clock without a sample: the kernel held the clock back, or the hypervisor the CPU, "+
			"or the CPU had just come online.")
	samplesDesc       = NewSamplesDesc("sampled")
	attributesCutDesc = newDesc("correlator_sample_attributes_cut_total",
		"Samples in contexts of OpenTelemetry's some of whose attributes were not read: there were too many, they were "+
			"too long or not encoded as they should be, or not in memory.")
	unknownKeysDesc = newDesc("correlator_sample_attributes_unknown_key_total",
		"Samples in contexts of OpenTelemetry's with an attribute whose key is not in the process's key map (yet).")
	samplesWalkedDesc = newDesc("correlator_samples_walked_total",
		"Samples of processes whose stacks are unwound, walked by frame pointers instead: their leaf is in code of "+
			"which the engine knows nothing.")
	samplesUnnamedDesc = newDesc("correlator_samples_unnamed_total",
		"Samples whose stack was unwound, but not named in time, or at all. The stack is cut where names are missing, "+
			"perhaps before its first frame of the process; they are among correlator_samples_cut_total.")
	samplesCutDesc = newDesc("correlator_samples_cut_total",
		"Samples, of those with a stack, whose stack was unwound and lacks callers: its last frame says so, and its id "+
			"is not that of the whole stack.")
	drainsDesc = newDesc("correlator_sampling_drains_total",
		"Times that samples were fetched from the kernel.")
	errorsDesc = newDesc("correlator_sampling_errors_total",
		"Calls to the kernel for samples that failed; the log has the first of each kind.")
	mappingsDesc = newDesc("correlator_mappings_total",
		"Executable mappings of files in processes, by whether the file could be identified. Frames in others have no "+
			"file.", "result")
	mappingProbesFailedDesc = newDesc("correlator_mapping_looks_failed_total",
		"Looks at the executable memory of a process that failed.")
	framesDesc = newDesc("correlator_frames_total",
		"Frames of the stacks that were named, by where they lie: in a file, in anonymous memory (code of a JIT), or "+
			"in no memory that is known.", "space", "kind")
	stacksAddedDesc = newDesc("correlator_stacks_added_total",
		"Stacks that were new and whose frames were kept.")
	stacksRefusedDesc = newDesc("correlator_stacks_refused_total",
		"Stacks that were not kept: without frames, or too large.")
	stacksEvictedDesc = newDesc("correlator_stacks_evicted_total",
		"Stacks whose frames made room for others. They are kept anew when they come again.")
	stacksHeldDesc = newDesc("correlator_stacks_held",
		"Stacks whose frames are kept now.")
	stackBytesDesc = newDesc("correlator_stacks_held_bytes",
		"Memory that the kept stacks and the names of their files take.")
)

// The unwinding engine and its worker.
var (
	unwindingWorkersDesc = newDesc("correlator_unwinding_workers_started_total",
		"Unwinding workers started.")
	unwindingKilledDesc = newDesc("correlator_unwinding_workers_killed_total",
		"Unwinding workers that were killed, or ended. After each, stacks are walked by frame pointers until all "+
			"processes were synchronized again.", "reason")
	unwindingSynchronizedDesc = newDesc("correlator_unwinding_synchronizations_total",
		"Times that the code that a process maps was read, so that its stacks can be unwound, by how that ended.", "result")
	unwindingRefusedDesc = newDesc("correlator_unwinding_requests_refused_total",
		"Requests to the unwinding worker that were not made.", "reason")
	unwindingQuarantinedDesc = newDesc("correlator_unwinding_quarantines_total",
		"Times that a process was left out because the unwinding worker had to be killed while it served it.")
	unwindingFilesSkippedDesc = newDesc("correlator_unwinding_files_skipped_total",
		"Mapped files that could not be read for unwinding. Stacks end in their code.")
	unwindingTableErrorsDesc = newDesc("correlator_unwinding_table_errors_total",
		"Updates of the unwinding tables that failed, or were refused, as when these are full.")
	unwindingStacksDesc = newDesc("correlator_unwinding_stacks_named_total",
		"Unwound stacks whose frames were named. A stack that comes again is not named again.")
	unwindingStacksCutDesc = newDesc("correlator_unwinding_stacks_cut_total",
		"Unwound stacks whose frames could not all be named, so that callers are missing.")
	unwindingFramesDesc = newDesc("correlator_unwinding_frames_total",
		"Frames of the unwound stacks that were named.")
	unwindingFramesLackingDesc = newDesc("correlator_unwinding_frames_lacking_total",
		"Of these, frames that lack what identifies them.", "lacking")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// NewSamplesDesc returns the descriptor of the samples from one source, by outcome. The source is
// "sampled" for what a Sampling takes, and "fed" for what outside samplers send to the agent.
func NewSamplesDesc(source string) *prometheus.Desc {
	return prometheus.NewDesc("correlator_samples_total",
		"Samples that the correlator took of processes that take part (sampled), and all that outside samplers fed "+
			"(fed), by what became of them before they were queued. Only correlated ones are queued.",
		[]string{"outcome"}, prometheus.Labels{"source": source})
}

// Describe implements [prometheus.Collector].
func (c *Counters) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, descs) }

// Collect implements [prometheus.Collector]. The series do not depend on what is sampled.
func (c *Counters) Collect(metrics chan<- prometheus.Metric) {
	c.each(func(_ string, n uint64, desc *prometheus.Desc, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	})
	stacks := c.Stacks()
	metrics <- prometheus.MustNewConstMetric(stacksHeldDesc, prometheus.GaugeValue, float64(stacks.Stacks))
	metrics <- prometheus.MustNewConstMetric(stackBytesDesc, prometheus.GaugeValue, float64(stacks.Bytes))
}
