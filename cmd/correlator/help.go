package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"correlator/internal/settings"
	"correlator/internal/terminal"
)

// help prints what a command does and takes, as wide as the terminal. It is no template of cobra's:
// one would link text/template, which keeps every exported method in the binary.
func help(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	width := helpColumns(w)
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			fmt.Fprintf(w, "%s\n\n", paragraph) // broken as it is meant to be
		} else {
			fmt.Fprintln(w, settings.Wrap(paragraph, "", "", width))
		}
	}
	if !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	} else {
		fmt.Fprintf(w, "Usage:\n  %s COMMAND\n\nCommands:\n", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	io.WriteString(w, settings.Usage(cmd.Flags(), width))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" tells more about a command.\n", cmd.CommandPath())
	}
}

// helpColumns is how wide help is: lines of more than 100 columns are hard to read.
func helpColumns(w io.Writer) int {
	columns, _ := terminal.Size(w)
	if columns == 0 {
		return 80
	}
	return min(columns, 100)
}
