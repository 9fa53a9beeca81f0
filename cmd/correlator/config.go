package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/bpf"
	"correlator/internal/admin"
	"correlator/internal/agent"
	"correlator/internal/export"
	"correlator/internal/metrics"
	"correlator/internal/settings"
	"correlator/internal/sockfile"
)

// configuration is what `run` can be told: its flags, and so the keys of a configuration file.
type configuration struct {
	agent.Config
	AdminSocket    string // path; empty: none
	MetricsAddress string // host:port; empty: none
	LogLevel       string
	LogFormat      string
	Export         export.Config // made by complete

	otlp export.Settings
}

func (c *configuration) flags(flags *pflag.FlagSet) {
	settings.Group(flags, "Samples", func(flags *pflag.FlagSet) {
		flags.IntVar(&c.SamplesPerSecond, "samples-per-second", 20, fmt.Sprintf(
			"CPU stack samples of every CPU, at most %d; 0: none (then samples that are fed with their trace need no eBPF)", bpf.MaxSamplesPerSecond))
		flags.DurationVar(&c.ReportInterval, "report-interval", 0,
			"how often what was sampled is fetched from the kernel: from 10ms to half of --samples-delay (default: samples-delay / 3, at most 100ms)")
		flags.BoolVar(&c.KernelStacks, "kernel-stacks", false, "stacks begin with the kernel's frames")
		flags.BoolVar(&c.Unsampled, "unsampled", false, "also send samples of traces whose W3C sampled flag is not set")
	})
	settings.Group(flags, "What agents are told", func(flags *pflag.FlagSet) {
		flags.DurationVar(&c.SamplesDelay, "samples-delay", 300*time.Millisecond,
			"longest time between a sample and its message, as promised to the agents: they hold finished transactions back that long")
		flags.StringVar(&c.HostID, "host-id", "", "`text` that says which host this is, may be empty (default: the host's machine-id)")
	})
	filterFlags(flags, &c.Filter)
	settings.Group(flags, "Finding processes", func(flags *pflag.FlagSet) {
		flags.DurationVar(&c.ScanInterval, "scan-interval", 30*time.Second,
			"time between two sweeps of all processes, in which what live events do not tell is found; at most 5s where there are none")
		flags.IntVar(&c.MaxProcesses, "max-processes", agent.DefaultMaxProcesses, "how many processes are served at once, at most 9000")
		procRootFlag(flags, &c.ProcRoot)
	})
	settings.Group(flags, "Other samplers", func(flags *pflag.FlagSet) {
		flags.StringVar(&c.FeedSocket, "feed-socket", "",
			"`path` of the datagram socket on which outside samplers feed stack-trace-ids, usually with --samples-per-second 0 (default: none)")
		flags.StringVar(&c.PinMaps, "pin-maps", "",
			"`directory` in a bpf file system where to pin the table of targets, for other eBPF programs (bpf/correlator.h) (default: none)")
	})
	c.otlp.Flags(flags)
	settings.Group(flags, "Watching the agent", func(flags *pflag.FlagSet) {
		flags.StringVar(&c.AdminSocket, "admin-socket", admin.DefaultSocket,
			"`path` of the socket that \"correlator status\" asks, for our own user only; empty: none")
		flags.StringVar(&c.MetricsAddress, "metrics-address", "",
			"`host:port` that serves /metrics (Prometheus), /healthz and /readyz over HTTP to everybody who reaches it, without TLS or password: 127.0.0.1:9464 is this host only, :9464 every interface (default: none)")
		flags.StringVar(&c.LogLevel, "log-level", "info", "`level` from which on is logged: debug, info, warn or error")
		flags.StringVar(&c.LogFormat, "log-format", "console", "`form` of the log, on standard error: console or json")
	})
}

// complete finds out the defaults that depend on other settings and on the host, and refuses values
// that cannot work, before anything else is opened.
func (c *configuration) complete(flags *pflag.FlagSet) (*zap.Logger, error) {
	log, err := newLogger(c.LogLevel, c.LogFormat)
	if err != nil {
		return nil, err
	}
	if !flags.Changed("report-interval") {
		settings.SetFound(flags, "report-interval", agent.DefaultReportInterval(c.SamplesDelay).String(), "follows from samples-delay")
	}
	if !flags.Changed("host-id") {
		settings.SetFound(flags, "host-id", agent.HostID(c.ProcRoot), "the host's machine-id")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := sockfile.CheckPath(c.AdminSocket); err != nil {
		return nil, fmt.Errorf("--admin-socket %s %w", c.AdminSocket, err)
	}
	if c.AdminSocket != "" && c.AdminSocket == c.FeedSocket {
		return nil, fmt.Errorf("--admin-socket and --feed-socket are both %s", c.AdminSocket)
	}
	if err := metrics.CheckAddress(c.MetricsAddress); err != nil {
		return nil, fmt.Errorf("--metrics-address %s %w", c.MetricsAddress, err)
	}
	if c.Export, err = c.otlp.Complete(os.Getenv); err != nil {
		return nil, err
	}
	return log, c.checkListener()
}

// checkListener refuses to take OTLP where something else is served.
func (c *configuration) checkListener() error {
	for _, other := range []struct{ flag, scheme, address string }{
		{"admin-socket", "unix:", c.AdminSocket}, {"feed-socket", "unix:", c.FeedSocket}, {"metrics-address", "", c.MetricsAddress},
	} {
		if other.address != "" && c.Export.Receiver.Listen != "" && export.SameAddress(c.Export.Receiver.Listen, other.scheme+other.address) {
			return fmt.Errorf("--otlp-listen and --%s are both %s", other.flag, other.address)
		}
	}
	return nil
}

// needsAdminSocket says whether the agent is not to run without its admin socket: without the default one it
// can do its work.
func (c *configuration) needsAdminSocket() bool {
	return c.AdminSocket != "" && c.AdminSocket != admin.DefaultSocket
}

// newLogger writes to stderr: stdout is for data.
func newLogger(level, format string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil || parsed > zapcore.ErrorLevel {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn and error", level)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(parsed)
	cfg.Encoding = format
	cfg.DisableCaller = true
	cfg.DisableStacktrace = true
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	if format != "console" && format != "json" {
		return nil, fmt.Errorf("--log-format: %q is neither console nor json", format)
	}
	return cfg.Build()
}
