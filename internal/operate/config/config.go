// Package config is the configuration of the agent: one struct, whose fields are flags, environment
// variables and keys of a YAML file. A flag goes before the variable, that before the file, that
// before the default.
//
// config.go has the struct; a new input or output is a section of its own there. validate.go says
// what must hold, otlp.go how destinations are found, opencensus.go and live.go what belongs to these. The
// rest works on the fields of any struct, by their tags: settings.go has precedence and sources,
// flags.go the flags, decode.go the file, value.go the types of values, print.go the output of
// --print-config.
package config

import (
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/operate/admin"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/out/keep"
	"correlator/internal/out/live"
	"correlator/internal/stacks/sampling"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// fileKey is the key of the setting that names the file.
const fileKey = "config"

// File has the option of a command that reads the file.
type File struct {
	Path string `key:"config"`
}

// Config is the configuration of `run`. Begin with Default. Each group of flags, and each section
// of the file, is a struct, that of the package which is configured where the file has all of it.
type Config struct {
	Samples    samplesSection    `group:"Samples"`
	Agents     agentsSection     `group:"What agents are told"`
	Filter     Filter            `group:"Which processes"`
	Discovery  discoverySection  `group:"Finding processes"`
	Samplers   samplersSection   `group:"Other samplers"`
	OTLP       otlpSection       `group:"OTLP"`
	OpenCensus openCensusSection `group:"OpenCensus"`
	Live       liveSection       `group:"Live view"`
	Keep       keepSection       `group:"Kept samples"`
	Monitoring monitoringSection `group:"Watching the agent"`

	// Export is the part of OTLP in the form of its consumer, with the contents of files. Complete
	// sets it.
	Export export.Config `key:"-"`
	// LiveView is Live in the form of its consumer, with the contents of files. Complete sets it.
	LiveView live.Config `key:"-"`
}

type samplesSection struct {
	PerSecond      int               `key:"samples-per-second"` // of every CPU; 0: none
	ReportInterval time.Duration     `key:"report-interval"`    // between two drains
	KernelStacks   bool              `key:"kernel-stacks"`
	Unwinder       sampling.Unwinder `key:"unwinder"`
	Waits          sampling.Waits    `key:"waits"`
	Attributes     AttributeKeys     `key:"context-attributes" type:"keys"`
	Labels         LabelKeys         `key:"go-labels" type:"labels"`
	Unsampled      bool              `key:"unsampled"`
}

// agentsSection is the content of registrations.
type agentsSection struct {
	SamplesDelay time.Duration `key:"samples-delay"`
	HostID       string        `key:"host-id"`
}

// Filter chooses processes.
type Filter struct {
	IncludeServices   Patterns `key:"include-service" type:"regexp"`
	ExcludeServices   Patterns `key:"exclude-service" type:"regexp"`
	IncludeContainers Patterns `key:"include-container" type:"regexp"`
	ExcludeContainers Patterns `key:"exclude-container" type:"regexp"`
	IncludeCommands   Patterns `key:"include-command" type:"regexp"`
	ExcludeCommands   Patterns `key:"exclude-command" type:"regexp"`
	IncludeUsers      Patterns `key:"include-user" type:"regexp"`
	ExcludeUsers      Patterns `key:"exclude-user" type:"regexp"`
}

// Process returns the filter of processes.
func (f *Filter) Process() process.Filter {
	return process.Filter{
		IncludeServices: f.IncludeServices.Compile(), ExcludeServices: f.ExcludeServices.Compile(),
		IncludeContainers: f.IncludeContainers.CompileContainers(),
		ExcludeContainers: f.ExcludeContainers.CompileContainers(),
		IncludeCommands:   f.IncludeCommands.Compile(), ExcludeCommands: f.ExcludeCommands.Compile(),
		IncludeUsers: f.IncludeUsers.Compile(), ExcludeUsers: f.ExcludeUsers.Compile(),
	}
}

// discoverySection says how processes are found.
type discoverySection struct {
	Processes    string        `key:"processes"` // contextProcesses or allProcesses
	ScanInterval time.Duration `key:"scan-interval"`
	MaxProcesses int           `key:"max-processes"`
	ProcRoot     string        `key:"proc-root"`

	AcceptPartialView bool `key:"accept-partial-view"`
}

// Which processes are sampled.
const (
	contextProcesses = "contexts" // those that publish any
	allProcesses     = "all"
)

type samplersSection struct {
	FeedSocket string `key:"feed-socket"` // path; empty: none
	PinMaps    string `key:"pin-maps"`    // directory; empty: none
}

// otlpSection is what is exported where, and what is received.
type otlpSection struct {
	Endpoints endpoints `key:"otlp-endpoint" type:"URL"`
	Protocol  string    `key:"otlp-protocol"` // empty: what standard variables say, then gRPC
	Listen    string    `key:"otlp-listen"`   // empty: nowhere
	Untraced  bool      `key:"otlp-untraced"`
	Symbolize bool      `key:"otlp-symbolize"`
	Section   otlpKeys  `key:"otlp"`
}

// otlpKeys is the key otlp of the file.
type otlpKeys struct {
	Destinations     []destination   `key:"destinations"`
	QueueBytes       int64           `key:"queue-bytes" unit:"bytes"`
	ProfilesInterval time.Duration   `key:"profiles-interval"`
	MetricsInterval  time.Duration   `key:"metrics-interval"`
	ShutdownTimeout  time.Duration   `key:"shutdown-timeout"`
	Listener         receiver.Config `key:"listener"` // without its address
}

type destination struct {
	otlp.Destination
	HeadersFrom map[string]string `key:"headers-from"` // files with the values, by name

	place string // how errors about the whole of it begin
}

// keepSection says what is kept of samples for "correlator explain".
type keepSection struct {
	For   time.Duration `key:"keep"`                    // 0: nothing
	Bytes int64         `key:"keep-bytes" unit:"bytes"` // of memory
	Slow  Patterns      `key:"keep-slow"`
}

func (k *keepSection) Config() keep.Config {
	rules, _ := keep.ParseRules(k.Slow) // validateKeep has parsed them
	return keep.Config{For: k.For, Bytes: int(k.Bytes), Slow: rules}
}

// monitoringSection says how the agent is monitored, and what it logs.
type monitoringSection struct {
	AdminSocket    string `key:"admin-socket"`    // path; empty: none
	MetricsAddress string `key:"metrics-address"` // host:port; empty: none
	Services       int    `key:"metrics-services"`
	LogLevel       string `key:"log-level"`
	LogFormat      string `key:"log-format"`
}

// Default returns the default configuration, without the values that Complete derives.
func Default() Config {
	return Config{
		Samples: samplesSection{PerSecond: 20, Unwinder: sampling.AutoUnwinder, Attributes: DefaultAttributeKeys(),
			Labels: DefaultLabelKeys()},
		Agents: agentsSection{SamplesDelay: 300 * time.Millisecond},
		Discovery: discoverySection{Processes: contextProcesses, ScanInterval: 30 * time.Second,
			MaxProcesses: agent.DefaultMaxProcesses, ProcRoot: DefaultProcRoot},
		OTLP: otlpSection{Symbolize: true, Section: otlpKeys{
			QueueBytes:       otlp.DefaultQueueBytes,
			ProfilesInterval: export.DefaultProfilesInterval,
			MetricsInterval:  export.DefaultMetricsInterval,
			ShutdownTimeout:  export.DefaultShutdownTimeout,
			Listener: receiver.Config{
				SocketMode: receiver.DefaultSocketMode, MaxRequestBytes: receiver.DefaultMaxRequestBytes,
			},
		}},
		OpenCensus: openCensusSection{Section: export.DefaultOpenCensus()},
		Keep:       keepSection{Bytes: keep.DefaultBytes},
		Monitoring: monitoringSection{AdminSocket: admin.DefaultSocket, LogLevel: "info", LogFormat: "console"},
	}
}

// DefaultProcRoot is where procfs is mounted.
const DefaultProcRoot = "/proc"

// NeedsAdminSocket reports whether the agent must not run without its admin socket: without the
// default one it can do its work, unless it keeps samples, which nobody could ask for then.
func (c *Config) NeedsAdminSocket() bool {
	return c.Monitoring.AdminSocket != "" && (c.Monitoring.AdminSocket != admin.DefaultSocket || c.Keep.For > 0)
}

// Agent returns the configuration of the agent itself.
func (c *Config) Agent() agent.Config {
	filter := c.Filter.Process()
	filter.All = c.Discovery.Processes == allProcesses
	filter.Nothing = c.ReceivesOnly()
	return agent.Config{
		ProcRoot:          c.Discovery.ProcRoot,
		HostID:            c.Agents.HostID,
		SamplesDelay:      c.Agents.SamplesDelay,
		ScanInterval:      c.Discovery.ScanInterval,
		MaxProcesses:      c.Discovery.MaxProcesses,
		FeedSocket:        c.Samplers.FeedSocket,
		Unsampled:         c.Samples.Unsampled,
		Filter:            filter,
		AcceptPartialView: c.Discovery.AcceptPartialView,
		SamplesPerSecond:  c.Samples.PerSecond,
		ReportInterval:    c.Samples.ReportInterval,
		KernelStacks:      c.Samples.KernelStacks,
		Unwinder:          c.Samples.Unwinder,
		Waits:             c.Samples.Waits == sampling.AutoWaits && c.takesWaits(),
		Attributes:        c.Samples.Attributes,
		Labels:            c.Samples.Labels.Keys(),
		MetricsServices:   c.Monitoring.Services,
		PinMaps:           c.Samplers.PinMaps,
	}
}

// takesWaits reports whether there is somebody who takes waits, if only sometimes.
func (c *Config) takesWaits() bool {
	return c.Keep.For > 0 || c.Export.TakesProfiles() || c.LiveView.Enabled()
}

func (d *destination) setDefaults() { d.Destination = otlp.NewDestination("") }

// with returns what an exporter is told of a destination, with other headers.
func (d *destination) with(headers otlp.Headers) otlp.Destination {
	o := d.Destination
	o.Headers = headers
	return o
}

// receiver returns the configuration of a receiver that listens at an address.
func (o *otlpSection) receiver(listen string) receiver.Config {
	c := o.Section.Listener
	c.Listen = listen
	return c
}
