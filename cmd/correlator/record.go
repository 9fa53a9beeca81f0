package main

import (
	"github.com/spf13/cobra"

	"correlator/internal/out/record"
	"correlator/internal/out/report"
)

func (a *app) addRecord(options *recordOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record what transactions spend CPU time on, as a pprof profile or a flame graph",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format := options.format()
			stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
			return report.Record(cmd.Context(), stdout, stderr, options.Output, format, record.Options{
				Duration:         options.Duration,
				PID:              options.PID,
				SamplesPerSecond: options.Rate,
				KernelStacks:     options.KernelStacks,
				Unwinder:         options.Unwinder,
				Waits:            options.Waits,
				JavaSignatures:   options.JavaSignatures,
				Attributes:       options.Attributes,
				Labels:           options.Labels.Keys(),
				ProcRoot:         options.ProcRoot,
				Filter:           options.filter(),
				Selection:        record.Selection{Trace: options.Trace, Transaction: options.Transaction},
			})
		},
	}
	a.add(cmd, options)
	adaptRecordFlags(cmd.Flags())
	return cmd
}
