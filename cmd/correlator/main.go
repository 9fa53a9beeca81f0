// Command correlator joins CPU samples with APM traces; see the README.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"correlator/internal/settings"
)

// usageError is a mistake in how the command was called: exit code 2, before anything was opened.
type usageError struct{ error }

func main() {
	cmd, err := rootCommand().ExecuteC()
	if err == nil {
		return
	}
	code := 1
	if usage := (usageError{}); errors.As(err, &usage) {
		code, err = 2, settings.Explain(err, cmd.Flags())
	}
	fmt.Fprintln(os.Stderr, "correlator:", err)
	os.Exit(code)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "correlator",
		Short: "Joins CPU profiles with APM traces",
		Long: `correlator tells APM agents which CPU stack samples belong to which transaction.

It finds the JVM processes of this host that carry the Elastic APM native library,
reads from outside which trace each of their threads works on, and sends every agent
the stack-trace-ids that were sampled inside its transactions. It never stops, traces
or writes to a process; all it needs is root ("correlator check" tells).

Start with "correlator scan": it lists the processes that take part.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return loadSettings(cmd) },
		Args:              usageArgs(cobra.NoArgs),
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpFunc(help)
	root.AddCommand(checkCommand(), runCommand(), statusCommand(), recordCommand(), scanCommand(), inspectCommand(), feedCommand(),
		versionCommand())
	addConfigFlags(root)
	return root
}

// usageArgs makes what check refuses a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
		}
		return nil
	}
}
