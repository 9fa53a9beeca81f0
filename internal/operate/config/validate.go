package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	"correlator/bpf"
	"correlator/internal/host/sockfile"
	"correlator/internal/operate/metrics"
	"correlator/internal/out/agent"
	"correlator/internal/out/keep"
	"correlator/messaging"
	"correlator/otlp"
)

// Complete derives the defaults that depend on other settings, on the standard variables of
// OpenTelemetry and on the host, and validates everything, before anything else is opened.
func (c *Config) Complete(s *Settings, getenv func(string) string) (err error) {
	if !s.Given("report-interval") {
		c.Samples.ReportInterval = agent.DefaultReportInterval(c.Agents.SamplesDelay)
		s.derived("report-interval", "follows from samples-delay")
	}
	if !s.Given("host-id") {
		c.Agents.HostID = agent.HostID(c.Discovery.ProcRoot)
		s.derived("host-id", "the host's machine-id")
	}
	if err := c.validate(s); err != nil {
		return err
	}
	if err := c.OTLP.findDestinations(s, getenv); err != nil {
		return err
	}
	if err := c.OTLP.findMetricsInterval(s, getenv); err != nil {
		return err
	}
	if c.Export, err = c.OTLP.export(s); err != nil {
		return err
	}
	if err := c.OTLP.validate(s); err != nil {
		return err
	}
	if err := c.takeAll(s); err != nil {
		return err
	}
	if err := c.validateListen(s); err != nil {
		return err
	}
	c.Export.OpenCensus = c.OpenCensus.export()
	if err := c.validateOpenCensus(s); err != nil {
		return err
	}
	c.LiveView, err = c.Live.complete(s, c.Discovery.Processes == allProcesses, getenv)
	return err
}

// takeAll has what is sampled of processes of any kind exported, and shown, if they are to be sampled.
func (c *Config) takeAll(s *Settings) error {
	if c.Discovery.Processes != allProcesses {
		return nil
	}
	shown := len(c.Live.Listen) > 0 || c.Live.Connect != ""
	if c.Samples.PerSecond == 0 || !c.Export.TakesProfiles() && !shown {
		return fmt.Errorf("%s: samples of processes that publish no contexts are for OTLP and the live view "+
			"(--otlp-endpoint, --live-listen, --samples-per-second)", s.Label("processes"))
	}
	c.Export.Untraced = true
	return nil
}

// validate checks everything but OTLP, OpenCensus and the live view.
func (c *Config) validate(s *Settings) error {
	for _, validate := range []func(*Settings) error{
		c.Monitoring.validateLog, c.Agents.validate, c.Samplers.validate, c.Discovery.validate, c.validateSamples,
		c.validateMonitoring, c.validateKeep, func(*Settings) error { return c.Filter.Process().Check() },
	} {
		if err := validate(s); err != nil {
			return err
		}
	}
	return nil
}

func (m *monitoringSection) validateLog(s *Settings) error {
	if level, err := zapcore.ParseLevel(m.LogLevel); err != nil || level > zapcore.ErrorLevel {
		return fmt.Errorf("%s: %q is none of debug, info, warn and error", s.Name("log-level"), m.LogLevel)
	}
	if m.LogFormat != "console" && m.LogFormat != "json" {
		return fmt.Errorf("%s: %q is neither console nor json", s.Name("log-format"), m.LogFormat)
	}
	return nil
}

func (a *agentsSection) validate(s *Settings) error {
	switch n := len(a.HostID); {
	case n > messaging.MaxHostIDBytes:
		return fmt.Errorf("%s is %d bytes long; agents read a registration of at most 1024 bytes, which leaves %d",
			s.Name("host-id"), n, messaging.MaxHostIDBytes)
	case !utf8.ValidString(a.HostID):
		return fmt.Errorf("%s %q is not UTF-8, which agents read", s.Name("host-id"), a.HostID)
	}
	// An agent holds every finished transaction back for this long: a minute is already absurd.
	if d := a.SamplesDelay; d < time.Millisecond || d > time.Minute || d%time.Millisecond != 0 {
		return fmt.Errorf("%s is not between 1ms and 1m, in whole milliseconds", s.Label("samples-delay"))
	}
	return nil
}

func (o *samplersSection) validate(s *Settings) error {
	return checkSocket(s, "feed-socket", o.FeedSocket)
}

func checkSocket(s *Settings, key, path string) error {
	if err := sockfile.CheckPath(path); err != nil {
		return fmt.Errorf("%s %w", s.Label(key), err)
	}
	return nil
}

func (d *discoverySection) validate(s *Settings) error {
	if d.Processes != contextProcesses && d.Processes != allProcesses {
		return fmt.Errorf("%s: %q is neither %s nor %s", s.Name("processes"), d.Processes, contextProcesses,
			allProcesses)
	}
	if d.ScanInterval < 10*time.Millisecond {
		return fmt.Errorf("%s is below 10ms", s.Label("scan-interval"))
	}
	return checkBetween(s, "max-processes", d.MaxProcesses, 1, agent.MaxProcesses)
}

func checkBetween(s *Settings, key string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("%s is not between %d and %d", s.Label(key), least, most)
	}
	return nil
}

// ReceivesOnly reports whether the agent has no samples, and is for what others send: no process is
// served, or agents would wait for samples.
func (c *Config) ReceivesOnly() bool {
	return c.Samples.PerSecond == 0 && c.Samplers.PinMaps == "" && c.Samplers.FeedSocket == "" &&
		(c.OpenCensus.Socket != "" || c.OTLP.Listen != "")
}

func (c *Config) validateSamples(s *Settings) error {
	if err := checkBetween(s, "samples-per-second", c.Samples.PerSecond, 0, bpf.MaxSamplesPerSecond); err != nil {
		return err
	}
	if c.Samples.PerSecond == 0 && c.Samplers.PinMaps == "" { // no sampler, which also keeps the table of targets
		if c.Samplers.FeedSocket == "" && !c.ReceivesOnly() {
			return fmt.Errorf("%s without --feed-socket or --pin-maps: there would be no samples, and agents would "+
				"wait for them",
				s.Label("samples-per-second"))
		}
		return nil
	}
	const least = agent.MinReportInterval
	// A sample that is fetched after a whole interval still has to be sent in time.
	if c.Agents.SamplesDelay < 2*least {
		return fmt.Errorf("%s is too short to take samples: at least %v, or --samples-per-second 0",
			s.Label("samples-delay"), 2*least)
	}
	if i := c.Samples.ReportInterval; i < least || i > c.Agents.SamplesDelay/2 {
		return fmt.Errorf("%s is not between %v and half of %s", s.Label("report-interval"), least,
			s.Label("samples-delay"))
	}
	return nil
}

func (c *Config) validateMonitoring(s *Settings) error {
	if err := checkSocket(s, "admin-socket", c.Monitoring.AdminSocket); err != nil {
		return err
	}
	if c.Monitoring.AdminSocket != "" && c.Monitoring.AdminSocket == c.Samplers.FeedSocket {
		return fmt.Errorf("%s and %s are both %s", s.Name("admin-socket"), s.Name("feed-socket"),
			c.Monitoring.AdminSocket)
	}
	if err := metrics.CheckAddress(c.Monitoring.MetricsAddress); err != nil {
		return fmt.Errorf("%s %w", s.Label("metrics-address"), err)
	}
	return checkBetween(s, "metrics-services", c.Monitoring.Services, 0, agent.MaxServices)
}

// The limits of what is kept: with less time a transaction has gone before somebody asks for it.
const (
	minKeep      = 10 * time.Second
	maxKeep      = 24 * time.Hour
	maxKeepBytes = 1 << 30
)

func (c *Config) validateKeep(s *Settings) error {
	_, err := keep.ParseRules(c.Keep.Slow)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.Name("keep-slow"), err)
	case c.Keep.For == 0 && len(c.Keep.Slow) > 0:
		return fmt.Errorf("%s without --keep: nothing is kept", s.Name("keep-slow"))
	case c.Keep.For == 0:
	case c.Keep.For < minKeep || c.Keep.For > maxKeep:
		return fmt.Errorf("%s is not between %v and 24h; 0 is nothing", s.Label("keep"), minKeep)
	case c.Monitoring.AdminSocket == "":
		return fmt.Errorf("%s without --admin-socket: nobody could ask for it", s.Label("keep"))
	case c.Samples.PerSecond == 0:
		return fmt.Errorf("%s without samples (--samples-per-second 0): there would be nothing to keep", s.Label("keep"))
	}
	if c.Keep.Bytes < keep.MinBytes || c.Keep.Bytes > maxKeepBytes {
		return fmt.Errorf("%s is not between %d and %d", s.Label("keep-bytes"), keep.MinBytes, int64(maxKeepBytes))
	}
	return nil
}

// validateListen refuses to receive OTLP where something else is served.
func (c *Config) validateListen(s *Settings) error {
	for _, other := range []struct{ flag, scheme, address string }{
		{"admin-socket", "unix:", c.Monitoring.AdminSocket}, {"feed-socket", "unix:", c.Samplers.FeedSocket},
		{"metrics-address", "", c.Monitoring.MetricsAddress},
	} {
		if other.address != "" && c.OTLP.Listen != "" && sameAddress(c.OTLP.Listen, other.scheme+other.address) {
			return fmt.Errorf("%s and %s are both %s", s.Name("otlp-listen"), s.Name(other.flag), other.address)
		}
	}
	return nil
}

// validate checks everything but what is wrong with a single destination.
func (o *otlpSection) validate(s *Settings) error {
	for _, i := range []struct {
		key                string
		value, least, most time.Duration
	}{
		{"profiles-interval", o.Section.ProfilesInterval, 100 * time.Millisecond, time.Minute},
		{"metrics-interval", o.Section.MetricsInterval, time.Second, time.Hour},
		{"shutdown-timeout", o.Section.ShutdownTimeout, 0, 10 * time.Minute},
	} {
		if i.value < i.least || i.value > i.most {
			return s.at("otlp."+i.key, fmt.Errorf("otlp.%s %v is not between %v and %v",
				i.key, i.value, i.least, i.most))
		}
	}
	if o.Section.QueueBytes <= 0 {
		return s.at("otlp.queue-bytes", fmt.Errorf("otlp.queue-bytes %d is not positive", o.Section.QueueBytes))
	}
	if err := o.validateListener(s); err != nil {
		return err
	}
	return o.validateTogether(s)
}

func (o *otlpSection) validateListener(s *Settings) error {
	listener := o.receiver("unix:somewhere") // the address is next
	if err := listener.Validate(); err != nil {
		return s.at(listenerPath, fmt.Errorf("%s: %w", listenerPath, err))
	}
	if o.Listen == "" {
		return nil
	}
	const key = "otlp-listen"
	if len(o.Section.Destinations) == 0 {
		return fmt.Errorf("%s without a destination: there is nowhere to pass on to what is received", s.Name(key))
	}
	listener.Listen = o.Listen
	if err := listener.Validate(); err != nil {
		return fmt.Errorf("%s: %w", s.Name(key), err)
	}
	if path, ok := sockfile.UnixPath(o.Listen); ok {
		if err := sockfile.CheckPath(path); err != nil {
			return fmt.Errorf("%s %w", s.Label(key), err)
		}
	}
	for _, f := range []struct{ key, path string }{
		{"certificate", listener.Certificate},
		{"key", listener.Key},
		{"client-authorities", listener.ClientAuthorities},
	} {
		if err := checkReadable(f.path); err != nil {
			path := listenerPath + "." + f.key
			return s.at(path, fmt.Errorf("%s: %w", path, err))
		}
	}
	return nil
}

// validateTogether refuses destinations that cannot be beside each other, or beside the listener.
func (o *otlpSection) validateTogether(s *Settings) error {
	for i := range o.Section.Destinations {
		d, path := &o.Section.Destinations[i], destinationPath(i)
		if o.Listen != "" && sameAddress(o.Listen, d.Address()) {
			return d.at(s, path, "endpoint", errors.New("this is what --otlp-listen listens on: what it takes would "+
				"come back to it for ever"))
		}
		for j := range i {
			other := &o.Section.Destinations[j]
			if other.Name == d.Name {
				return d.at(s, path, "name", fmt.Errorf("two destinations are named %s", d.Name))
			}
			if twice := sentTwice(d, other); len(twice) > 0 {
				return d.at(s, path, "endpoint", fmt.Errorf("destination %s sends %s there already", other.Name,
					strings.Join(twice, ", ")))
			}
		}
	}
	return nil
}

// sentTwice returns the signals that one receiver gets by both destinations, for which by HTTP the
// paths of their requests must be the same, too.
func sentTwice(d, other *destination) (names []string) {
	if !sameAddress(d.Address(), other.Address()) {
		return nil
	}
	for signal := range otlp.NumSignals {
		if d.Takes(signal) && other.Takes(signal) &&
			(d.Protocol != other.Protocol || d.Path(signal) == other.Path(signal)) {
			names = append(names, signal.String())
		}
	}
	return names
}
