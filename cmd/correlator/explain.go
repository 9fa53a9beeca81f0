package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/attach/process"
	"correlator/internal/host/terminal"
	"correlator/internal/operate/admin"
	"correlator/internal/operate/config"
	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/stacks/sampling"
	"correlator/profile/ids"
)

type explainOptions struct {
	config.File
	AdminSocket string        `key:"admin-socket"`
	Busiest     int           `key:"busiest"`
	Slowest     int           `key:"slowest"`
	Service     string        `key:"service"`
	Since       time.Duration `key:"since"`
	Output      string        `key:"output" short:"o"`
	OutputFile  string        `key:"output-file" short:"O"`
	chosen
	Demo         bool              `key:"demo"`
	For          time.Duration     `key:"for"`
	KernelStacks bool              `key:"kernel-stacks"`
	Unwinder     sampling.Unwinder `key:"unwinder"`
	ProcRoot     string            `key:"proc-root"`
}

const (
	defaultBusiest = 10

	// explainRate is that of record, too: of processes, there is no agent that has another.
	explainRate = 97
)

func (o *explainOptions) validate(s *config.Settings) error {
	for key, n := range map[string]int{"busiest": o.Busiest, "slowest": o.Slowest} {
		if n < 0 || n > keep.MaxTransactions {
			return fmt.Errorf("%s is not between 0 and %d", s.Label(key), keep.MaxTransactions)
		}
	}
	_, err := regexp.Compile(o.Service)
	switch {
	case o.AdminSocket == "" && !o.any() && !o.Demo:
		return fmt.Errorf("%s is empty", s.Name("admin-socket"))
	case o.Busiest > 0 && o.Slowest > 0:
		return fmt.Errorf("%s and %s: there is one order", s.Name("busiest"), s.Name("slowest"))
	case o.Since < 0:
		return fmt.Errorf("%s is in the future", s.Label("since"))
	case err != nil:
		return fmt.Errorf("%s: %w", s.Label("service"), err)
	case o.PID < 0:
		return fmt.Errorf("%s is not a process id", s.Label("pid"))
	case o.For <= 0:
		return fmt.Errorf("%s is not above 0", s.Label("for"))
	case o.any() && (o.Busiest > 0 || o.Slowest > 0 || o.Service != "" || o.Since > 0):
		return errors.New("--pid, --comm and --container are of processes, --busiest, --slowest, --service and --since of " +
			"transactions")
	case !slices.Contains(explain.Formats(), report.Format(o.Output)):
		return fmt.Errorf("%s: %q is none of table, json, pprof, folded and html", s.Name("output"), o.Output)
	case o.Demo && (o.any() || o.Busiest > 0 || o.Slowest > 0 || o.Service != "" || o.Since > 0):
		return errors.New("--demo is of one transaction, which is not chosen")
	case o.Output == string(report.PProf) && o.toStdout() && terminal.Is(os.Stdout):
		return errors.New("--output pprof: a profile is not for a terminal (--output-file)")
	}
	return nil
}

// checkGiven refuses flags that have an effect on looking at processes only, where none are chosen.
func (o *explainOptions) checkGiven(flags *pflag.FlagSet) error {
	for _, key := range []string{"for", "kernel-stacks", "unwinder", "proc-root"} {
		if !o.any() && flags.Changed(key) {
			return fmt.Errorf("--%s is of processes: --pid, --comm or --container chooses them", key)
		}
	}
	return nil
}

func (o *explainOptions) toStdout() bool { return o.OutputFile == "" || o.OutputFile == "-" }

// query returns the query for an id, or for those that the flags choose.
func (o *explainOptions) query(args []string) (keep.Query, error) {
	q := keep.Query{Service: o.Service, Order: keep.Busiest, Most: o.Busiest}
	if o.Slowest > 0 {
		q.Order, q.Most = keep.Slowest, o.Slowest
	}
	if o.Since > 0 {
		q.Since = time.Now().Add(-o.Since)
	}
	if len(args) == 0 {
		if q.Most == 0 {
			q.Most = defaultBusiest
		}
		return q, nil
	}
	id, err := ids.Parse(args[0], ids.TraceDigits)
	q.ID = id
	return q, err
}

// record returns how processes are looked at.
func (o *explainOptions) record() record.Options {
	var filter process.Filter
	o.choose(&filter)
	return record.Options{Duration: o.For, PID: o.PID, SamplesPerSecond: explainRate, KernelStacks: o.KernelStacks,
		Unwinder: o.Unwinder, ProcRoot: o.ProcRoot, Filter: filter}
}

// checkID checks the value of a flag that is an id, and brings it into its form; empty: there is none.
func checkID(s *config.Settings, key string, value *string, most int) (err error) {
	if *value == "" {
		return nil
	}
	if *value, err = ids.Parse(*value, most); err != nil {
		return fmt.Errorf("%s: %w", s.Name(key), err)
	}
	return nil
}

func adaptExplainFlags(flags *pflag.FlagSet) {
	adaptStatusFlags(flags)
	flags.Lookup("output").Usage = "`form` of the answer: table, json, pprof, folded or html"
	flags.Lookup("pid").Usage = "what the threads of the process with this `number` do now, of any kind, without an " +
		"agent (default: transactions)"
	flags.Lookup("for").Usage = "how long to look at processes"
}

func (a *app) addExplain() {
	options := &explainOptions{AdminSocket: admin.DefaultSocket, Output: string(explain.Table),
		For: 10 * time.Second, Unwinder: sampling.AutoUnwinder, ProcRoot: config.DefaultProcRoot}
	cmd := &cobra.Command{
		Use:   "explain [TRACE|TRANSACTION|SPAN]",
		Short: "Say where the time of a trace, transaction or process went",
		Args:  cobra.MaximumNArgs(1),
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if options.Demo && len(args) > 0 {
				return usageError{errors.New("--demo is of one transaction, which is not chosen")}
			}
			q, err := options.query(args)
			if err := errors.Join(err, options.checkGiven(cmd.Flags())); err != nil {
				return usageError{err}
			}
			file := options.OutputFile
			if options.toStdout() {
				file = ""
			}
			if options.any() {
				if len(args) > 0 {
					return usageError{errors.New("an id is of transactions, --pid, --comm and --container of processes")}
				}
				return explain.Processes(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), explain.ProcessOptions{
					Format: report.Format(options.Output), File: file, Record: options.record()})
			}
			o := explain.Options{Query: q, Format: report.Format(options.Output), File: file}
			var source explain.Source = admin.NewClient(options.AdminSocket)
			if options.Demo {
				source = explain.Demo{}
			}
			return explain.Run(ctx, source, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		}),
	}
	a.add(cmd, options)
	adaptExplainFlags(cmd.Flags())
}
