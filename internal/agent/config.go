package agent

import (
	"time"

	"correlator/internal/process"
)

// MinReportInterval is a tenth of the default: fetching more often costs more than taking samples.
const MinReportInterval = 10 * time.Millisecond

const (
	// DefaultMaxProcesses is more than a host of any size runs of JVMs.
	DefaultMaxProcesses = 4096

	// MaxProcesses is the largest limit: each process can make its goroutine hang in a system
	// call and so take a thread. Go allows 10,000, and up to 600 may hang in sweeps, the memory
	// poller and probes that live events request.
	MaxProcesses = 9000
)

// Config is the configuration of an Agent. Package config validates it.
type Config struct {
	ProcRoot     string         // where the host's procfs is mounted
	HostID       string         // in registrations; may be empty
	SamplesDelay time.Duration  // promised to the agents, in whole milliseconds
	ScanInterval time.Duration  // between two sweeps
	MaxProcesses int            // that are served
	FeedSocket   string         // empty: no feed
	Unsampled    bool           // send samples of traces that are not sampled, too
	Filter       process.Filter // which processes are served

	SamplesPerSecond int           // of every CPU; 0: take none
	ReportInterval   time.Duration // how often what was sampled is fetched from the kernel
	KernelStacks     bool          // stacks begin with the kernel's frames
	PinMaps          string        // directory in bpffs for the table of targets; empty: none
}

// Validate returns an error for values that cannot work, before anything is opened.
func (c Config) Validate() error {
	if len(c.HostID) > messaging.MaxHostIDBytes {
		return fmt.Errorf("--host-id is %d bytes long; agents read a registration of at most 1024 bytes, which leaves %d",
			len(c.HostID), messaging.MaxHostIDBytes)
	}
	if !utf8.ValidString(c.HostID) {
		return fmt.Errorf("--host-id %q is not UTF-8, which agents read", c.HostID)
	}
	if err := sockfile.CheckPath(c.FeedSocket); err != nil {
		return fmt.Errorf("--feed-socket %s %w", c.FeedSocket, err)
	}
	// An agent holds every finished transaction back for this long, so a minute is already absurd.
	if c.SamplesDelay < time.Millisecond || c.SamplesDelay > time.Minute || c.SamplesDelay%time.Millisecond != 0 {
		return fmt.Errorf("--samples-delay %v is not between 1ms and 1m, in whole milliseconds", c.SamplesDelay)
	}
	if c.ScanInterval < 10*time.Millisecond {
		return fmt.Errorf("--scan-interval %v is below 10ms", c.ScanInterval)
	}
	if c.MaxProcesses < 1 || c.MaxProcesses > maxMaxProcesses {
		return fmt.Errorf("--max-processes %d is not between 1 and %d", c.MaxProcesses, maxMaxProcesses)
	}
	if c.SamplesPerSecond < 0 || c.SamplesPerSecond > bpf.MaxSamplesPerSecond {
		return fmt.Errorf("--samples-per-second %d is not between 0 and %d", c.SamplesPerSecond,
			bpf.MaxSamplesPerSecond)
	}
	if !c.needsSampler() {
		if c.FeedSocket == "" {
			return errors.New("--samples-per-second 0 without --feed-socket or --pin-maps: there would be no samples, and agents would wait for them")
		}
		return nil
	}
	// A sample that is fetched after a whole interval still has to be sent in time.
	if c.SamplesDelay < 2*minReportInterval {
		return fmt.Errorf("--samples-delay %v is too short to take samples: at least %v, or --samples-per-second 0",
			c.SamplesDelay, 2*minReportInterval)
	}
	if c.ReportInterval < minReportInterval || c.ReportInterval > c.SamplesDelay/2 {
		return fmt.Errorf("--report-interval %v is not between %v and half of --samples-delay %v", c.ReportInterval,
			minReportInterval, c.SamplesDelay)
	}
	return nil
}

// needsSampler reports whether there is a use for the sampler: it also keeps the table of targets.
func (c Config) needsSampler() bool { return c.SamplesPerSecond > 0 || c.PinMaps != "" }

// DefaultReportInterval is how often to fetch samples that must be in the sockets within a delay.
func DefaultReportInterval(samplesDelay time.Duration) time.Duration {
	return max(MinReportInterval, min(100*time.Millisecond, samplesDelay/3))
}
