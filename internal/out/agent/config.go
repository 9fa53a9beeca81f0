package agent

import (
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
)

// MinReportInterval is a tenth of the default: fetching more often costs more than taking samples.
const MinReportInterval = 10 * time.Millisecond

const (
	// DefaultMaxProcesses is more than a host of any size runs of JVMs.
	DefaultMaxProcesses = 4096

	// MaxProcesses is the largest limit: each process can make its goroutine hang in a system call
	// and so take a thread. Go allows 10,000; there may be lifecycle.ExtraProcesses more, and up to
	// 600 may hang in sweeps, the memory poller and probes that live events request.
	MaxProcesses = 9000
)

// Config is the configuration of an Agent. Package config validates it.
type Config struct {
	ProcRoot     string         // where the host's procfs is mounted
	HostID       string         // in registrations; may be empty
	SamplesDelay time.Duration  // promised to the agents, in whole milliseconds
	ScanInterval time.Duration  // between two sweeps
	MaxProcesses int            // that are served at a time
	FeedSocket   string         // empty: no feed
	Unsampled    bool           // send samples of traces that are not sampled, too
	Filter       process.Filter // which processes are served

	// AcceptPartialView: the agent is ready although it sees only a part of the host's processes.
	AcceptPartialView bool

	SamplesPerSecond int           // of every CPU; 0: take none
	ReportInterval   time.Duration // how often what was sampled is fetched from the kernel
	KernelStacks     bool          // stacks begin with the kernel's frames
	Unwinder         sampling.Unwinder
	Waits            bool           // accounts are kept, if somebody takes them
	Labels           []bpf.LabelKey // of goroutines that are read, see bpf.SamplerOptions
	Attributes       []string       // of OpenTelemetry's thread contexts that are exported, see sampling.Options
	MetricsServices  int            // services in metrics by name, at most MaxServices; 0: no metric is by service
	PinMaps          string         // directory in bpffs for the table of targets; empty: none

	chainOnly bool // see bpf.SamplerOptions
}

// needsSampler reports whether there is a use for the sampler: it also keeps the table of targets.
func (c Config) needsSampler() bool { return c.SamplesPerSecond > 0 || c.PinMaps != "" }

// DefaultReportInterval is how often to fetch samples that must be in the sockets within a delay.
func DefaultReportInterval(samplesDelay time.Duration) time.Duration {
	return max(MinReportInterval, min(100*time.Millisecond, samplesDelay/3))
}
