package main

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/agent"
)

func runCommand() *cobra.Command {
	cfg := agent.Config{}
	var logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent until SIGTERM or SIGINT",
		Long: `run finds every process that carries the APM agent's native library, registers with its
agent, and tells it which stack-trace-ids were sampled inside its transactions. It takes CPU
samples itself, by an eBPF program that counts in the kernel, and those of an outside sampler
through --feed-socket.

` + filterHelp + `

SIGTERM and SIGINT end it: what is queued is still sent, within --samples-delay.
Every flag can also be set by an environment variable: --feed-socket is CORRELATOR_FEED_SOCKET.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(logLevel, logFormat)
			if err != nil {
				return usageError{err}
			}
			if !cmd.Flags().Changed("report-interval") {
				cfg.ReportInterval = agent.DefaultReportInterval(cfg.SamplesDelay)
			}
			if err := cfg.Validate(); err != nil {
				return usageError{err}
			}
			if !cmd.Flags().Changed("host-id") {
				cfg.HostID = agent.HostID(cfg.ProcRoot)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			a, err := agent.New(cfg, log)
			if err != nil {
				return err
			}
			return a.Run(ctx)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.SamplesPerSecond, "samples-per-second", 20,
		"CPU stack samples of every CPU, at most 10000; 0: none (then samples that are fed with their trace need no eBPF)")
	flags.DurationVar(&cfg.ReportInterval, "report-interval", 0,
		"how often what was sampled is fetched from the kernel: from 10ms to half of --samples-delay (default: a third of it, from 10ms to 100ms)")
	flags.BoolVar(&cfg.KernelStacks, "kernel-stacks", false, "stacks begin with the kernel's frames")
	flags.StringVar(&cfg.PinMaps, "pin-maps", "", "`directory` in a bpf file system where to pin the table of targets, for other eBPF programs (bpf/correlator.h) (default: none)")
	flags.DurationVar(&cfg.SamplesDelay, "samples-delay", 300*time.Millisecond,
		"longest time between a sample and its message, as promised to the agents: they hold finished transactions back that long")
	flags.StringVar(&cfg.HostID, "host-id", "", "host id told to the agents, may be empty (default: the host's machine-id)")
	flags.StringVar(&cfg.FeedSocket, "feed-socket", "", "`path` of the datagram socket on which outside samplers feed stack-trace-ids, usually with --samples-per-second 0 (default: none)")
	flags.DurationVar(&cfg.ScanInterval, "scan-interval", 30*time.Second,
		"time between two sweeps of all processes, in which what live events do not tell is found; at most 5s where there are none")
	flags.IntVar(&cfg.MaxProcesses, "max-processes", agent.DefaultMaxProcesses, "how many processes are served at once, at most 9000")
	flags.BoolVar(&cfg.Unsampled, "unsampled", false, "also send samples of traces whose W3C sampled flag is not set")
	filterFlags(flags, &cfg.Filter)
	procRootFlag(flags, &cfg.ProcRoot)
	flags.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&logFormat, "log-format", "console", "console or json")
	return cmd
}

// newLogger writes to stderr: stdout is for data.
func newLogger(level, format string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
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
