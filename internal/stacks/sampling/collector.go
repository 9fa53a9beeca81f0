package sampling

import "github.com/prometheus/client_golang/prometheus"

var (
	kernelSamplesDesc = newDesc("correlator_kernel_samples_total",
		"Ticks of the sampling clock on all CPUs, by outcome in the kernel program.", "outcome")
	ticksMissedDesc = newDesc("correlator_sampling_ticks_missed_total",
		"Ticks without a sample: throttled, CPU taken by the hypervisor, or just online.")
	samplesDesc       = NewSamplesDesc("sampled")
	attributesCutDesc = newDesc("correlator_sample_attributes_cut_total",
		"OpenTelemetry samples with attributes that were too many, too long, malformed or unreadable.")
	unknownKeysDesc = newDesc("correlator_sample_attributes_unknown_key_total",
		"OpenTelemetry samples with an attribute whose key is not in the key map.")
	samplesWalkedDesc = newDesc("correlator_samples_walked_total",
		"Samples of unwound processes walked by frame pointers, since the engine does not know the leaf.")
	samplesUnnamedDesc = newDesc("correlator_samples_unnamed_total",
		"Samples whose unwound stack was not named in time and is cut there. Part of "+
			"correlator_samples_cut_total.")
	samplesCutDesc = newDesc("correlator_samples_cut_total",
		"Samples with an incomplete stack.")
	drainsDesc = newDesc("correlator_sampling_drains_total",
		"Reads of the kernel's tables of samples.")
	errorsDesc = newDesc("correlator_sampling_errors_total",
		"Failed system calls of sampling; the log has the first of each kind.")
	mappingsDesc = newDesc("correlator_mappings_total",
		"Executable file mappings, by whether the file was identified.", "result")
	mappingProbesFailedDesc = newDesc("correlator_mapping_looks_failed_total",
		"Failed reads of a process's mappings.")
	framesDesc = newDesc("correlator_frames_total",
		"Frames of named stacks, by location.", "space", "kind")
	stacksAddedDesc = newDesc("correlator_stacks_added_total",
		"Stacks added to the cache.")
	stacksRefusedDesc = newDesc("correlator_stacks_refused_total",
		"Stacks not cached: without frames, or too large.")
	stacksEvictedDesc = newDesc("correlator_stacks_evicted_total",
		"Stacks evicted from the cache.")
	stacksHeldDesc = newDesc("correlator_stacks_held",
		"Cached stacks.")
	stackBytesDesc = newDesc("correlator_stacks_held_bytes",
		"Memory of cached stacks and their file names.")
)

// The unwinding engine and its worker.
var (
	unwindingWorkersDesc = newDesc("correlator_unwinding_workers_started_total",
		"Unwinding workers started.")
	unwindingKilledDesc = newDesc("correlator_unwinding_workers_killed_total",
		"Unwinding workers killed or exited. Until processes are synchronized again, stacks are "+
			"walked by frame pointers.", "reason")
	unwindingSynchronizedDesc = newDesc("correlator_unwinding_synchronizations_total",
		"Reads of a process's code for unwinding, by result.", "result")
	unwindingRefusedDesc = newDesc("correlator_unwinding_requests_refused_total",
		"Requests to the unwinding worker refused.", "reason")
	unwindingQuarantinedDesc = newDesc("correlator_unwinding_quarantines_total",
		"Quarantines after an unwinding worker was killed.")
	unwindingFilesSkippedDesc = newDesc("correlator_unwinding_files_skipped_total",
		"Mapped files unreadable for unwinding. Stacks end in their code.")
	unwindingUncorrectedDesc = newDesc("correlator_unwinding_files_uncorrected_total",
		"Files with a table of Go functions, or musl code, damaged or too large. "+
			"Some frames are missing from their stacks.")
	unwindingTableErrorsDesc = newDesc("correlator_unwinding_table_errors_total",
		"Failed or refused updates of unwinding tables, for instance full ones.")
	unwindingStacksDesc = newDesc("correlator_unwinding_stacks_named_total",
		"Unwound stacks named. A repeated stack is not named again.")
	unwindingStacksCutDesc = newDesc("correlator_unwinding_stacks_cut_total",
		"Unwound stacks with frames that could not be named; callers are missing.")
	unwindingFramesDesc = newDesc("correlator_unwinding_frames_total",
		"Named frames of unwound stacks.")
	unwindingInlinedDesc = newDesc("correlator_unwinding_inlined_unknown_total",
		"Named frames of inlined Java code of which the method is not known.", "reason")
	unwindingFramesLackingDesc = newDesc("correlator_unwinding_frames_lacking_total",
		"Named frames without what identifies them.", "lacking")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// NewSamplesDesc returns the descriptor of the samples from one source, by outcome. The source is
// "sampled" for what a Sampling takes, and "fed" for what outside samplers send to the agent.
func NewSamplesDesc(source string) *prometheus.Desc {
	return prometheus.NewDesc("correlator_samples_total",
		"Samples of known processes and all fed samples, by outcome. Only correlated ones are queued.",
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
