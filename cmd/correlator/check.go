package main

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/check"
	"correlator/internal/terminal"
)

// checkFlags are the flags of run on which it depends what is needed. The others are taken, too, so that
// the same command line fits both, but not shown.
var checkFlags = []string{
	"samples-per-second", "kernel-stacks", "pin-maps", "feed-socket", "max-processes",
	"samples-delay", "report-interval", "include-container", "exclude-container", "proc-root",
	"admin-socket", "metrics-address", "otlp-endpoint", "otlp-listen",
}

func checkCommand() *cobra.Command {
	var cfg configuration
	var output string
	var connect bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what this machine, and the rights of this process, allow run to do",
		Long: `check tries what "correlator run" with the same flags, or environment, would need, and lists
each requirement as ok, degraded (it is there in part) or missing, with what to do about it. Run it
where the agent is to run: in its container, under its unit's restrictions, as its user. Features of
the kernel are tried and not guessed from its version; nothing is left behind.

It exits 0 when run would start, even if it could not do everything, and 1 when run would not; the
last line says which. What is in use because an agent runs here already counts as there. It makes no
network connection but with --connect: then one to each destination of OTLP, without sending anything.
That one cannot be reached is no reason for run not to start.

Capabilities are granted by CapabilityBoundingSet= and AmbientCapabilities= of a systemd unit, or by
capabilities.add of a container.

-o json prints an array of {name, group, required, status, detail, loss, remedy}: required says that
run does not start without it; loss (what run does not do then) and remedy are there unless status is
ok. Names, groups and statuses keep their meaning from version to version, the other texts do not.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if _, err := cfg.complete(cmd.Flags()); err != nil {
				return usageError{err}
			}
			results := check.Run(check.Config{
				Config:      cfg.Config,
				AdminSocket: cfg.AdminSocket, NeedsAdminSocket: cfg.needsAdminSocket(),
				MetricsAddress: cfg.MetricsAddress,
				Export:         cfg.Export, Connect: connect, Version: version,
			})
			out := cmd.OutOrStdout()
			if output == "json" {
				if err := printJSON(out, results); err != nil {
					return err
				}
				if !check.Works(results) {
					return errors.New(check.Verdict(results))
				}
				return nil
			}
			if err := check.WriteTable(out, results, styleOf(out)); err != nil {
				return err
			}
			if !check.Works(results) {
				os.Exit(1) // the last line has said why
			}
			return nil
		},
	}
	flags := cmd.Flags()
	cfg.flags(flags)
	flags.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(checkFlags, flag.Name) })
	flags.BoolVar(&connect, "connect", false, "also connect to the destinations of OTLP, each for as long as its timeout at most")
	outputFlag(flags, &output)
	return cmd
}

// styleOf is that of a terminal, or of whatever is not one. https://no-color.org is heeded.
func styleOf(w io.Writer) check.Style {
	if !terminal.Is(w) {
		return check.Style{}
	}
	columns, _ := terminal.Size(w)
	style := check.Style{Width: columns, Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if style.Width == 0 { // of a terminal that does not know
		style.Width = 80
	}
	return style
}
