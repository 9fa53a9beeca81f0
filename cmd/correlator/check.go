package main

import (
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/operate/check"
	"correlator/internal/stacks/sampling"
)

func (a *app) addCheck() {
	options := newCheckOptions()
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what this machine, and the rights of this process, allow run to do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config := options.Agent()
			config.Waits = options.Samples.Waits == sampling.AutoWaits // explain --pid takes them from no agent
			out, results := cmd.OutOrStdout(), check.Run(check.Config{
				Config:      config,
				AdminSocket: options.Monitoring.AdminSocket, NeedsAdminSocket: options.NeedsAdminSocket(),
				MetricsAddress: options.Monitoring.MetricsAddress,
				LiveListen:     options.LiveView.Listen,
				Export:         options.Export, Connect: options.Connect, Version: version,
			})
			if !options.json() {
				if err := check.WriteTable(out, results, check.StyleOf(out)); err != nil || check.Works(results) {
					return err
				}
				os.Exit(1) // the last line has said why
			}
			if err := printJSON(out, results); err != nil || check.Works(results) {
				return err
			}
			return errors.New(check.Verdict(results))
		},
	}
	a.add(cmd, options)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(checkFlags, flag.Name) })
}
