package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"correlator/messaging/feed"
)

func feedCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "feed --socket PATH",
		Short: "Feed samples from standard input to a running agent",
		Long: `feed sends samples to the feed socket of a running agent, for samplers that would rather
write text than datagrams. Each line of standard input is

    PID TID STACK-TRACE-ID [COUNT [TRACE-ID TRANSACTION-ID]]

with the stack-trace-id as 32 hex digits or 22 characters of base64-url, the others as hex.
Without a trace the agent reads the thread's own at that very moment: write a line when the
sample is taken.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" {
				return usageError{errors.New("--socket is not given")}
			}
			client, err := feed.Dial(socket)
			if err != nil {
				return err
			}
			defer client.Close()
			in := bufio.NewReader(cmd.InOrStdin())
			for number := 1; ; number++ {
				line, readErr := in.ReadString('\n')
				if strings.TrimSpace(line) != "" {
					record, err := feed.ParseRecord(line)
					if err != nil {
						return fmt.Errorf("line %d: %w", number, err)
					}
					if err := client.Add(record); err != nil {
						return err
					}
				}
				if readErr != nil || in.Buffered() == 0 { // nothing more for now: send what there is
					if err := client.Flush(); err != nil {
						return err
					}
				}
				if readErr == io.EOF {
					return nil
				}
				if readErr != nil {
					return readErr
				}
			}
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`path` of the agent's --feed-socket")
	return cmd
}
