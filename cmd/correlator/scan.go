package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/inspect"
	"correlator/internal/process"
)

func procRootFlag(flags *pflag.FlagSet, value *string) {
	flags.StringVar(value, "proc-root", "/proc", "`directory` where the host's procfs is mounted; for run at most 88 bytes, and every directory on the way o+x: sockets are reached through it")
}

// outputFlag is -o table|json, shared by the commands that print data.
func outputFlag(flags *pflag.FlagSet, value *string) {
	flags.StringVarP(value, "output", "o", "table", "table or json")
}

func checkOutput(value string) error {
	if value != "table" && value != "json" {
		return usageError{fmt.Errorf("--output: %q is neither table nor json", value)}
	}
	return nil
}

func scanCommand() *cobra.Command {
	var procRoot, output string
	var filter process.Filter
	cmd := &cobra.Command{
		Use:   "scan",
		Short: "List the processes that take part, and their state",
		Long: `scan looks once at every process of the host and lists those that carry the APM agent's
native library. It sends nothing.

STATE is ready when the agent in the process can be registered with (what the child of a fork
has copied looks the same), no-storage while it has not published where, error (with the reason) when what it published cannot be used, filtered
when "correlator run" with the same filters, or environment, leaves the process out. CONTAINER
is the beginning of the container's id. TLS says how a thread's slot is found: static, dynamic
or dtpmod; unresolved when that is not known yet.

` + filterHelp,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			processes, unreadable, err := inspect.Scan(cmd.Context(), procRoot, filter)
			if err != nil {
				return err
			}
			if unreadable > 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "correlator: processes that could not be looked into:", unreadable)
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), processes)
			}
			return inspect.WriteProcesses(cmd.OutOrStdout(), processes)
		},
	}
	filterFlags(cmd.Flags(), &filter)
	procRootFlag(cmd.Flags(), &procRoot)
	outputFlag(cmd.Flags(), &output)
	return cmd
}

func inspectCommand() *cobra.Command {
	var procRoot, output string
	cmd := &cobra.Command{
		Use:   "inspect PID",
		Short: "Show one process: its storage, TLS rule, and its threads' traces",
		Long: `inspect looks once at one process that carries the APM agent's native library, and shows
which trace, transaction and span each of its threads works on now, or why there is none.
It sends nothing and stops nobody.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			pid, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || pid <= 0 {
				return usageError{fmt.Errorf("%q is not a process id", args[0])}
			}
			inspection, err := inspect.Inspect(cmd.Context(), procRoot, int(pid))
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), inspection)
			}
			return inspection.Write(cmd.OutOrStdout())
		},
	}
	procRootFlag(cmd.Flags(), &procRoot)
	outputFlag(cmd.Flags(), &output)
	return cmd
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
