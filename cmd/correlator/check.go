package main

import (
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/check"
	"correlator/internal/config"
)

func (a *app) addCheck() {
	options := &checkOptions{output: table, Config: config.Default()}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what this machine, and the rights of this process, allow run to do",
		Args:  cobra.NoArgs,
	}
	s := a.add(cmd, options)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(checkFlags, flag.Name) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := options.validate(s); err != nil {
			return usageError{err}
		}
		if err := options.Complete(s, os.Getenv); err != nil {
			return usageError{err}
		}
		results := check.Run(check.Config{
			Config:      options.Agent(),
			AdminSocket: options.Monitoring.AdminSocket, NeedsAdminSocket: options.NeedsAdminSocket(),
			MetricsAddress: options.Monitoring.MetricsAddress,
			Export:         options.Export, Connect: options.Connect, Version: version,
		})
		if options.json() {
			if err := printJSON(cmd.OutOrStdout(), results); err != nil {
				return err
			}
			if !check.Works(results) {
				return errors.New(check.Verdict(results))
			}
			return nil
		}
		if err := check.WriteTable(cmd.OutOrStdout(), results, check.StyleOf(cmd.OutOrStdout())); err != nil {
			return err
		}
		if !check.Works(results) {
			os.Exit(1) // the last line has said why
		}
		return nil
	}
}
