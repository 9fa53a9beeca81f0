package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/bpf"
	"correlator/internal/operate/config"
	"correlator/internal/operate/inspect"
	"correlator/procscan"
)

func (a *app) addScan() {
	options := &scanOptions{ProcRoot: config.DefaultProcRoot, output: table}
	a.add(&cobra.Command{
		Use:   "scan",
		Short: "List the processes that take part, and their state",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter := options.Filter.Process()
			processes, unreadable, err := inspect.Scan(cmd.Context(), options.ProcRoot, filter)
			if err != nil && len(processes) == 0 {
				return err
			}
			if unreadable > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "correlator: processes that could not be examined: %d; see \"correlator check\", "+
					"process-memory\n", unreadable)
			}
			ofOBI, obiErr := inspect.AddOBI(bpf.OBIContexts, processes)
			if obiErr != nil && !errors.Is(obiErr, fs.ErrPermission) { // then there need not be an OBI
				fmt.Fprintln(cmd.ErrOrStderr(), "correlator: contexts of OBI are not known:", obiErr)
			}
			partial := procscan.ProbeHostView(options.ProcRoot)
			if partial != nil && err == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "correlator: these are not all processes of the host:", partial)
			}
			if options.json() {
				return errors.Join(printJSON(cmd.OutOrStdout(), processes), err)
			}
			err = errors.Join(inspect.WriteProcesses(cmd.OutOrStdout(), processes), err)
			if err != nil || !filter.IsZero() {
				return err // others may publish
			}
			if ofOBI != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "correlator:", ofOBI)
			}
			others, othersErr := inspect.Others(cmd.Context(), options.ProcRoot, processes)
			for _, line := range others {
				fmt.Fprintln(cmd.ErrOrStderr(), "correlator:", line)
			}
			return othersErr
		},
	}, options)
}

func (a *app) addInspect() {
	options := &inspectOptions{ProcRoot: config.DefaultProcRoot, output: table}
	cmd := &cobra.Command{
		Use:   "inspect PID",
		Short: "Show one process: its storage, TLS rule, and its threads' traces",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || pid <= 0 {
				return usageError{fmt.Errorf("%q is not a process id", args[0])}
			}
			inspection, err := inspect.Inspect(cmd.Context(), options.ProcRoot, int(pid))
			if inspection.PID == 0 {
				return err
			}
			if options.json() {
				return errors.Join(printJSON(cmd.OutOrStdout(), inspection), err)
			}
			return errors.Join(inspection.Write(cmd.OutOrStdout()), err)
		},
	}
	a.add(cmd, options)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
			if _, notNumber := strconv.Atoi(unknown.GetSpecifiedShortnames()); notNumber == nil {
				return usageError{fmt.Errorf("\"-%s\" is not a process id", unknown.GetSpecifiedShortnames())}
			}
		}
		return flagError(cmd, err)
	})
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
