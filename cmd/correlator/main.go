// Command correlator joins CPU samples with APM traces; see the README.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is set by the linker.
var version = "unknown"

// usageError is a mistake in how the command was called: exit code 2, before anything was opened.
type usageError struct{ error }

func main() {
	err := rootCommand().Execute()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "correlator:", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "correlator",
		Short: "Joins CPU profiles with APM traces",
		Long: `correlator tells APM agents which CPU stack samples belong to which transaction.

It finds the JVM processes of this host that carry the Elastic APM native library,
reads from outside which trace each of their threads works on, and sends every agent
the stack-trace-ids that were sampled inside its transactions. It never stops, traces
or writes to a process; all it needs is root (README: what it needs).

Start with "correlator scan": it lists the processes that take part.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return flagsFromEnvironment(cmd.Flags()) },
		Args:              usageArgs(cobra.NoArgs),
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(runCommand(), scanCommand(), inspectCommand(), feedCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  usageArgs(cobra.NoArgs),
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version) },
	}
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

// variableOf is the environment variable that stands for a flag: --feed-socket is
// CORRELATOR_FEED_SOCKET.
func variableOf(flag string) string {
	return "CORRELATOR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flagsFromEnvironment sets every flag that was not given from its environment variable, if
// that is set. An empty variable counts: --host-id may be empty.
func flagsFromEnvironment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		value, set := os.LookupEnv(variableOf(f.Name))
		if f.Changed || !set || err != nil {
			return
		}
		if setErr := flags.Set(f.Name, value); setErr != nil {
			err = usageError{fmt.Errorf("environment variable %s: %w", variableOf(f.Name), setErr)}
		}
	})
	return err
}
