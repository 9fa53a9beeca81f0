package export

import (
	"slices"
	"time"

	"correlator/otlp"
	"correlator/otlp/receiver"
	"correlator/otlp/spantimes"
)

const (
	// DefaultProfilesInterval is what receivers of continuous profiles are used to. With a shorter
	// one a dictionary is sent for a handful of samples; with a longer one a crash costs more, and
	// a trace takes longer to show up.
	DefaultProfilesInterval = 5 * time.Second

	// DefaultMetricsInterval is that of OpenTelemetry's periodic readers.
	DefaultMetricsInterval = time.Minute

	// DefaultShutdownTimeout is how long a shutdown waits for destinations to accept what is
	// queued.
	DefaultShutdownTimeout = 5 * time.Second
)

// Config is what is exported, and where to. Begin with DefaultConfig. Package config says which
// values work.
type Config struct {
	Destinations []otlp.Destination // none: nothing is exported
	QueueBytes   int64              // see otlp.Quotas

	Receiver   receiver.Config // without Listen there is none
	OpenCensus OpenCensus

	ProfilesInterval time.Duration // between two requests, unless there is enough for one before
	MetricsInterval  time.Duration
	ShutdownTimeout  time.Duration // 0: do not wait

	// Untraced also exports samples of threads of targets that worked on no trace.
	Untraced bool

	// Symbolize has frames exported with the names of their functions, where their symbols are on the
	// host. The program's main function must call worker.Main.
	Symbolize bool

	// OnSpans is told of spans that were received, those with which work begins in a process. It must not wait; the
	// spans are valid until it returns. nil: nobody wants to know.
	OnSpans func([]spantimes.Span)
}

// DefaultConfig exports nothing.
func DefaultConfig() Config {
	return Config{
		ProfilesInterval: DefaultProfilesInterval,
		MetricsInterval:  DefaultMetricsInterval,
		ShutdownTimeout:  DefaultShutdownTimeout,
		Symbolize:        true,
		OpenCensus:       DefaultOpenCensus(),
	}
}

// Enabled reports whether anything is exported or received.
func (c *Config) Enabled() bool {
	return len(c.Destinations) > 0 || c.Receiver.Listen != "" || c.OpenCensus.Receiver.Socket != ""
}

// takes reports whether a destination takes a signal.
func (c *Config) takes(signal otlp.Signal) bool {
	return slices.ContainsFunc(c.Destinations, func(d otlp.Destination) bool { return d.Takes(signal) })
}
