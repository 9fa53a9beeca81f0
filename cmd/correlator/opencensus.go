package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"correlator/opencensus/dump"
)

func (a *app) addOpenCensus() {
	parent := &cobra.Command{
		Use:   "opencensus",
		Short: "Look at what OpenCensus clients of PHP send",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a.add(parent, nil)
	options := &decodeOptions{output: table}
	a.addTo(parent, &cobra.Command{
		Use:   "decode FILE|-",
		Short: "Print the messages of a captured stream",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			stream := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				stream = file
			}
			return options.print()(cmd.OutOrStdout(), stream)
		},
	}, options)
}

func (o *decodeOptions) print() func(io.Writer, io.Reader) error {
	if o.json() {
		return dump.JSON
	}
	return dump.Table
}
