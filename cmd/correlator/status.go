package main

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"correlator/internal/operate/admin"
)

func (a *app) addStatus() {
	options := newStatusOptions()
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask the running agent what it serves, and how that goes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			client, out := admin.NewClient(options.AdminSocket), cmd.OutOrStdout()
			switch {
			case options.Watch && options.json():
				return admin.WatchJSON(ctx, out, client, options.Interval, func(err error) {
					fmt.Fprintf(cmd.ErrOrStderr(), "correlator: %v; trying again\n", err)
				})
			case options.Watch:
				return admin.Watch(ctx, out, client, options.Interval)
			}
			status, err := client.Status(ctx)
			switch {
			case err != nil:
				return err
			case options.json():
				return printJSON(out, status)
			}
			return admin.WriteStatus(out, &status)
		},
	}
	a.add(cmd, options)
	adaptStatusFlags(cmd.Flags())
}
