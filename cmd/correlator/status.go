package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"correlator/internal/admin"
)

// minWatchInterval: an answer costs the agent a millisecond for a thousand processes.
const minWatchInterval = 100 * time.Millisecond

func statusCommand() *cobra.Command {
	var socket, output string
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask the running agent what it serves, and how that goes",
		Long: `status asks the agent that runs on this host, over its admin socket, for every process that
takes part: its state, how long it has been registered (SINCE), and what became of its samples.

SAMPLES are those with a trace, or whose trace could not be told. SENT are in the socket of the
process's agent; LATE are those that could not be sent within the samples-delay; DROPPED are others,
by reason; what then is missing of SAMPLES waits to be sent. Below the table are the last errors of
processes that are in error, or were in the last ten minutes, and the sums of all processes since
the agent started, also of those that are gone. Left out everywhere are samples without a trace, or
of one that is not sampled, and those that were fed of processes that take no part. The reasons are
those of logs and metrics; docs/operations.md has what they mean, and what to do.

Where something is exported by OTLP there follows a table of the destinations: what waits for each
(QUEUED, with the age of the OLDEST batch), requests IN FLIGHT of those that may be now, how long an
answer takes (LATENCY), and how many items (spans, data points, samples) it got, or lost by reason.
What a destination gets is at most requests in flight × their size / latency: a line says when that
is its limit. The last lines are the errors of destinations, and what comes in by --otlp-listen.

A narrow terminal leaves columns out; -o json has everything, the agent's counters too.

With --watch it is shown again every --interval, in place on a terminal, until Ctrl-C; with
-o json one line each time. Once an agent has answered it waits for the next when that ends.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if socket == "" {
				return usageError{errors.New("--admin-socket is empty")}
			}
			if interval < minWatchInterval {
				return usageError{fmt.Errorf("--interval %v is below %v", interval, minWatchInterval)}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			client, out := admin.NewClient(socket), cmd.OutOrStdout()
			switch {
			case watch && output == "json":
				return admin.WatchJSON(ctx, out, client, interval, func(err error) {
					fmt.Fprintf(cmd.ErrOrStderr(), "correlator: %v; trying again\n", err)
				})
			case watch:
				return admin.Watch(ctx, out, client, interval)
			}
			status, err := client.Status(ctx)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(out, status)
			}
			return admin.WriteStatus(out, &status)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&socket, "admin-socket", admin.DefaultSocket, "`path` of the agent's --admin-socket")
	flags.BoolVarP(&watch, "watch", "w", false, "show it again and again")
	flags.DurationVar(&interval, "interval", 2*time.Second, "time between two looks of --watch, at least 100ms")
	outputFlag(flags, &output)
	return cmd
}
