package main

import (
	"errors"

	"github.com/spf13/cobra"

	"correlator/messaging/feed"
)

func (a *app) addFeed() {
	options := &feedOptions{}
	cmd := &cobra.Command{
		Use:   "feed --socket PATH",
		Short: "Feed samples from standard input to a running agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.Socket == "" {
				return usageError{errors.New("--socket is not given")}
			}
			client, err := feed.Dial(options.Socket)
			if err != nil {
				return err
			}
			defer client.Close()
			return client.AddLines(cmd.InOrStdin())
		},
	}
	a.add(cmd, options)
}
