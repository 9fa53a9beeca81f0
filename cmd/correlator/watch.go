package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/config"
	"correlator/internal/live/watch"
)

type liveWatchOptions struct {
	guestOptions
	output
}

func (o *liveWatchOptions) validate(s *config.Settings) error {
	return firstError(o.output.validate(s), o.guestOptions.validate(s))
}

func adaptLiveWatchFlags(flags *pflag.FlagSet) {
	flags.Lookup("dots-endpoint").Usage = "`URI` at which an agent serves its live view, or of the broker that it " +
		"publishes to; goes before the variable DOTS_ENDPOINT (default: " + watch.DefaultEndpoint + ")"
}

func (a *app) addWatch() {
	options := &liveWatchOptions{output: table}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show what threads work on, and the busiest transactions, while they run",
		Args:  cobra.NoArgs,
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			w := watch.Watch{Guest: options.guest("correlator watch"), Notes: cmd.ErrOrStderr()}
			w.Guest.Default = watch.DefaultEndpoint
			if options.json() {
				return w.JSON(ctx, cmd.OutOrStdout())
			}
			return w.Table(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
		}),
	}
	a.add(cmd, options)
	adaptLiveWatchFlags(cmd.Flags())
}
