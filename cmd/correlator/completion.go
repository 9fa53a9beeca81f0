package main

import (
	"io"

	"github.com/spf13/cobra"
)

// addCompletion adds the command that replaces cobra's own, which has no help text of ours and exits
// with 0 for a shell that it does not know.
func (a *app) addCompletion() {
	scripts := map[string]func(io.Writer) error{
		"bash": func(w io.Writer) error { return a.root.GenBashCompletionV2(w, true) },
		"fish": func(w io.Writer) error { return a.root.GenFishCompletion(w, true) },
		"zsh":  a.root.GenZshCompletion,
	}
	a.root.CompletionOptions.DisableDefaultCmd = true
	a.add(&cobra.Command{
		Use:       "completion bash|fish|zsh",
		Short:     "Print a script that completes commands and flags in a shell",
		ValidArgs: []string{"bash", "fish", "zsh"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return scripts[args[0]](cmd.OutOrStdout())
		},
	}, nil)
}
