package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"correlator/internal/agent"
	"correlator/internal/settings"
	"correlator/internal/terminal"
)

func runCommand() *cobra.Command {
	var cfg configuration
	var printConfig bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent until SIGTERM or SIGINT",
		Long: `run finds every process that carries the APM agent's native library, registers with its
agent, and tells it which stack-trace-ids were sampled inside its transactions. It takes CPU
samples itself, by an eBPF program that counts in the kernel, and those of an outside sampler
through --feed-socket.

What is not given by a flag is taken from an environment variable (--feed-socket:
CORRELATOR_FEED_SOCKET), then from the file that --config names, then it is the default. The
keys of the file, which is YAML, are the flags without dashes in front:

    samples-delay: 300ms
    include-service: [shop, "shop-.*"]

--print-config shows what the agent would work with, and where each value comes from. The
configuration is read once: to change it, restart the agent, because agents of processes hold
on to the --samples-delay that they were promised.

` + filterHelp + `

SIGTERM and SIGINT end it: what is queued is still sent, within --samples-delay, and what is to be
exported within the shutdown-timeout of the file's key otlp; a second one does not wait. SIGHUP does
so only when standard input is a terminal, which then hung up; else it is logged, and nothing is
read again.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := cfg.complete(cmd.Flags())
			if err != nil {
				return usageError{err}
			}
			unknown := unknownVariables(cmd.Root())
			if printConfig {
				warnOf(cmd.ErrOrStderr(), unknown)
				return settings.Print(cmd.OutOrStdout(), cmd.Flags())
			}
			for _, variable := range unknown {
				log.Warn("environment variable is no setting", zap.String("variable", variable.Name), zap.String("nearest", variable.Nearest))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, stop = untilHangup(ctx, log)
			defer stop()
			services, err := openServices(&cfg, log)
			if err != nil {
				return err
			}
			a, err := agent.New(cfg.Config, services.exporter(), log)
			if err != nil {
				services.close(ctx)
				return err
			}
			debug.FreeOSMemory() // loading eBPF takes several MB of the kernel's types, once
			end := services.serve(ctx, a)
			hurry, stop := untilAgain(ctx)
			defer stop()
			context.AfterFunc(hurry, a.StopNow)
			err = a.Run(ctx)
			end(hurry)
			return err
		},
	}
	configFlag(cmd.Flags())
	cmd.Flags().BoolVar(&printConfig, settings.PrintConfig, false, "print every setting with where it comes from, in the form of a file for --config, and exit")
	cfg.flags(cmd.Flags())
	return cmd
}

// untilAgain is a context that is ended by a signal that comes after ctx has ended: whoever sends a second one does
// not want to wait.
func untilAgain(ctx context.Context) (context.Context, context.CancelFunc) {
	again, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		defer signal.Stop(signals)
		select {
		case <-signals:
			cancel()
		case <-again.Done():
		}
	})
	return again, func() {
		stop()
		cancel()
	}
}

// untilHangup ends a context by SIGHUP when that says that our terminal is gone. Sent to a service it
// asks to read the configuration again, which is not done, and is no reason to end. Where it was
// ignored before us, by nohup, it stays so.
func untilHangup(ctx context.Context, log *zap.Logger) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	if terminal.Is(os.Stdin) {
		return signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP is ignored: the configuration is read once; restart the agent to change it")
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, stop
}
