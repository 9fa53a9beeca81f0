package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"correlator/internal/operate/config"
	"correlator/internal/operate/watch"
)

type liveWatchOptions struct {
	guestOptions
	output
}

func (o *liveWatchOptions) validate(s *config.Settings) error {
	return cmp.Or(o.output.validate(s), o.guestOptions.validate(s))
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
				return notServed(w.JSON(ctx, cmd.OutOrStdout()), w.Guest.URI())
			}
			return notServed(w.Table(ctx, cmd.InOrStdin(), cmd.OutOrStdout()), w.Guest.URI())
		}),
	}
	a.add(cmd, options)
	adaptLiveWatchFlags(cmd.Flags())
}

// notServed adds what to do to an error that says that nobody serves this endpoint.
func notServed(err error, uri string) error {
	var connecting *net.OpError
	if !errors.As(err, &connecting) || connecting.Op != "dial" ||
		!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return fmt.Errorf("%w. Is \"correlator run\" running, with --live-listen %s?", err, uri)
}
