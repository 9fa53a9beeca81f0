package main

import (
	"github.com/spf13/cobra"

	"correlator/messaging/feed"
)

func (a *app) addFeed() {
	options := &feedOptions{}
	a.add(&cobra.Command{
		Use:   "feed --socket PATH",
		Short: "Feed samples from standard input to a running agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := feed.Dial(options.Socket)
			if err != nil {
				return err
			}
			defer client.Close()
			return client.AddLines(cmd.InOrStdin())
		},
	}, options)
}
