// Package help is the help text of commands: what a command does, and its flags in groups, as wide
// as the terminal.
package help

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"correlator/internal/host/terminal"
)

// Command prints what a command does and which flags it has. It is a help function of cobra.
func Command(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	width := columns(w)
	for _, paragraph := range paragraphs(cmd) {
		if indented(paragraph) {
			fmt.Fprintf(w, "%s\n\n", paragraph)
		} else {
			fmt.Fprintln(w, terminal.Wrap(paragraph, "", 0, 0, width))
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
	fmt.Fprint(w, usage(cmd.Flags(), width))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" tells more about a command.\n", cmd.CommandPath())
	}
}

// paragraphs are those of the text that says what a command does.
func paragraphs(cmd *cobra.Command) []string {
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	return strings.Split(strings.TrimSpace(text), "\n\n")
}

// indented reports whether a paragraph's line breaks are meant.
func indented(paragraph string) bool { return strings.HasPrefix(paragraph, " ") }

// columns returns how wide help is: lines of more than 100 columns are hard to read.
func columns(w io.Writer) int {
	columns, _ := terminal.Size(w)
	if columns == 0 {
		return 80
	}
	return min(columns, 100)
}
