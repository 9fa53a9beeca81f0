package export

import (
	"errors"
	"fmt"
	"time"

	"correlator/otlp"
	"correlator/otlp/receiver"
)

const (
	// DefaultProfilesInterval is what receivers of continuous profiles are used to. With less a dictionary
	// is sent for a handful of samples; with more a crash costs more, and so does who waits to see a trace.
	DefaultProfilesInterval = 5 * time.Second

	// DefaultMetricsInterval is the one of OpenTelemetry's periodic readers.
	DefaultMetricsInterval = time.Minute

	// DefaultShutdownTimeout is how long an end waits for destinations to take what is queued.
	DefaultShutdownTimeout = 5 * time.Second
)

// Config is what is exported, and where to. Begin with DefaultConfig.
type Config struct {
	Destinations []otlp.Destination // none: nothing is exported
	QueueBytes   int64              // for what is not yet delivered, of all destinations together; 0: otlp.DefaultQueueBytes

	Receiver receiver.Config // without Listen there is none

	ProfilesInterval time.Duration // between two requests, unless there is enough for one before
	MetricsInterval  time.Duration
	ShutdownTimeout  time.Duration // 0: do not wait

	// Untraced exports samples of threads that worked on no trace as well, of processes that take part.
	Untraced bool
}

// DefaultConfig exports nothing.
func DefaultConfig() Config {
	return Config{
		ProfilesInterval: DefaultProfilesInterval,
		MetricsInterval:  DefaultMetricsInterval,
		ShutdownTimeout:  DefaultShutdownTimeout,
	}
}

// Enabled says whether there is anything to do.
func (c *Config) Enabled() bool { return len(c.Destinations) > 0 || c.Receiver.Listen != "" }

// Takes says whether some destination takes a signal.
func (c *Config) Takes(signal otlp.Signal) bool {
	for i := range c.Destinations {
		if c.Destinations[i].Takes(signal) {
			return true
		}
	}
	return false
}

// Validate refuses what cannot work, as far as that can be seen without opening anything.
func (c *Config) Validate() error {
	_, err := c.validate()
	return err
}

// validate is Validate, with the key below otlp in a file that is wrong, if it is one.
func (c *Config) validate() (key string, err error) {
	for _, i := range c.intervals() {
		if err := i.validate(); err != nil {
			return i.key, err
		}
	}
	if c.QueueBytes < 0 {
		return "queue-bytes", fmt.Errorf("otlp.queue-bytes %d is negative", c.QueueBytes)
	}
	listener := c.Receiver
	listener.Listen = "unix:somewhere" // to see what is wrong with the rest
	if err := listener.Validate(); err != nil {
		return "listener", fmt.Errorf("otlp.listener: %w", err)
	}
	if c.Receiver.Listen == "" {
		return "", nil
	}
	if len(c.Destinations) == 0 {
		return "", errors.New("--otlp-listen without a destination: there is nowhere to pass on to what is received")
	}
	if err := c.Receiver.Validate(); err != nil {
		return "", fmt.Errorf("--otlp-listen: %w", err)
	}
	return "", nil
}

// interval is a time with its limits.
type interval struct {
	key             string // below otlp in a file
	value, min, max time.Duration
}

func (c *Config) intervals() []interval {
	return []interval{
		{"profiles-interval", c.ProfilesInterval, 100 * time.Millisecond, time.Minute},
		{"metrics-interval", c.MetricsInterval, time.Second, time.Hour},
		{"shutdown-timeout", c.ShutdownTimeout, 0, 10 * time.Minute},
	}
}

func (i interval) validate() error {
	if i.value < i.min || i.value > i.max {
		return fmt.Errorf("otlp.%s %v is not between %v and %v", i.key, i.value, i.min, i.max)
	}
	return nil
}
