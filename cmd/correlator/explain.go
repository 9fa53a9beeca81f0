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
	"correlator/internal/out/pyroscope"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/stacks/sampling"
	"correlator/otlp"
	"correlator/profile/ids"
)

type explainOptions struct {
	config.File
	AdminSocket string `key:"admin-socket"`
	ranking
	Against    bool          `key:"against" env:"-"`
	Service    string        `key:"service"`
	Since      time.Duration `key:"since"`
	From       string        `key:"from" env:"-"`
	Headers    string        `key:"from-headers" secret:"true"`
	Output     string        `key:"output" short:"o"`
	OutputFile string        `key:"output-file" short:"O"`
	chosen
	Demo         bool              `key:"demo"`
	For          time.Duration     `key:"for"`
	KernelStacks bool              `key:"kernel-stacks"`
	Unwinder     sampling.Unwinder `key:"unwinder"`
	ProcRoot     string            `key:"proc-root"`

	before *operand // what stands before --against; nil: there is none
}

// ranking says which transactions come first, and how many are wanted; 0: it says nothing. No variable does: it would
// be of one side of --against.
type ranking struct {
	Busiest int `key:"busiest" env:"-"`
	Slowest int `key:"slowest" env:"-"`
	Fastest int `key:"fastest" env:"-"`
}

func (r *ranking) given() bool { return *r != ranking{} }

func (r *ranking) check(s *config.Settings) error {
	orders := 0
	for _, of := range []struct {
		key string
		n   int
	}{{"busiest", r.Busiest}, {"slowest", r.Slowest}, {"fastest", r.Fastest}} {
		if of.n < 0 || of.n > keep.MaxTransactions {
			return fmt.Errorf("%s %d is not between 0 and %d", s.Name(of.key), of.n, keep.MaxTransactions)
		}
		if of.n > 0 {
			orders++
		}
	}
	if orders > 1 {
		return errors.New("--busiest, --slowest and --fastest: there is one order")
	}
	return nil
}

// operand is one side of --against.
type operand struct {
	ranking
	ids int // how many stand there
}

// againstFlag is --against: what stands before it is one side, and what comes after it the other one.
type againstFlag struct {
	pflag.Value
	flags   *pflag.FlagSet
	options *explainOptions
}

// Set begins the other side.
func (f *againstFlag) Set(text string) error {
	if f.options.before != nil {
		return errors.New("it stands there twice")
	}
	if err := f.Value.Set(text); err != nil || !f.options.Against {
		return err
	}
	f.options.before = &operand{f.options.ranking, f.flags.NArg()}
	f.options.ranking = ranking{}
	return nil
}

const (
	defaultBusiest = 10

	// explainRate is that of record, too: of processes, there is no agent that has another.
	explainRate = 97
)

func (o *explainOptions) validate(s *config.Settings) error {
	if err := o.ranking.check(s); err != nil {
		return err
	}
	if o.before != nil {
		if err := o.before.check(s); err != nil {
			return err
		}
	}
	ofTransactions := o.ranking.given() || o.Against || o.Service != "" || o.Since > 0
	_, err := regexp.Compile(o.Service)
	switch {
	case o.AdminSocket == "" && !o.any() && !o.Demo:
		return fmt.Errorf("%s is empty", s.Name("admin-socket"))
	case o.Since < 0:
		return fmt.Errorf("%s is in the future", s.Label("since"))
	case err != nil:
		return fmt.Errorf("%s: %w", s.Label("service"), err)
	case o.PID < 0, o.PID == 0 && s.Given("pid"):
		return fmt.Errorf("%s is not a process id", s.Label("pid"))
	case o.For <= 0:
		return fmt.Errorf("%s is not above 0", s.Label("for"))
	case o.any() && ofTransactions:
		return errors.New("--pid, --comm and --container are of processes, --busiest, --slowest, --fastest, " +
			"--against, --service and --since of transactions")
	case !slices.Contains(explain.Formats(), report.Format(o.Output)):
		return fmt.Errorf("%s: %q is none of table, json, pprof, folded and html", s.Name("output"), o.Output)
	case o.From != "" && (o.any() || o.Demo || o.ranking.given() || o.Against):
		return fmt.Errorf("%s is of one trace: without --pid, --comm, --container, --demo, --busiest, --slowest, "+
			"--fastest and --against", s.Label("from"))
	case o.From != "" && o.Since == 0 && s.Given("since"):
		return fmt.Errorf("%s: a backend is asked for a time above 0 (default: an hour)", s.Label("since"))
	case o.From != "" && (o.Output == string(report.PProf) || o.Output == string(report.Folded)):
		return fmt.Errorf("%s: %s has no samples; there are table, json and html", s.Label("from"), s.Label("output"))
	case o.Demo && (o.any() || ofTransactions):
		return errors.New("--demo is of one transaction, which is not chosen")
	case o.Against && (o.Output == string(report.PProf) || o.Output == string(report.Folded)):
		return fmt.Errorf("--against: %s is of one side; table, json and html compare", s.Label("output"))
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

// queries returns what is asked; against: what that is compared with, nil: nothing.
func (o *explainOptions) queries(args []string) (q keep.Query, against *keep.Query, err error) {
	if !o.Against {
		q, err = o.query(o.ranking, args)
		return q, nil, err
	}
	before, after := args[:o.before.ids], args[o.before.ids:]
	if len(before) == 0 && !o.before.ranking.given() || len(after) == 0 && !o.ranking.given() {
		return q, nil, errors.New("--against has an id on both sides, or --slowest, --fastest or --busiest: " +
			"A --against B, --slowest 10 --against --fastest 10")
	}
	if max(len(before), len(after)) > 1 {
		return q, nil, errors.New("--against has one id on a side at most")
	}
	q, err = o.query(o.before.ranking, before)
	other, errOther := o.query(o.ranking, after)
	return q, &other, errors.Join(err, errOther)
}

// query returns the query for an id, or for those that the flags choose.
func (o *explainOptions) query(of ranking, args []string) (keep.Query, error) {
	q := keep.Query{Service: o.Service, Order: keep.Busiest, Most: of.Busiest}
	switch {
	case of.Slowest > 0:
		q.Order, q.Most = keep.Slowest, of.Slowest
	case of.Fastest > 0:
		q.Order, q.Most = keep.Fastest, of.Fastest
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
		Use:   "explain [TRACE|TRANSACTION|SPAN] [--against [TRACE|TRANSACTION|SPAN]]",
		Short: "Say where the time of a trace, transaction or process went",
		Args: func(cmd *cobra.Command, args []string) error {
			if options.Against { // queries says which belong to which side
				return nil
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if options.Demo && len(args) > 0 {
				return usageError{errors.New("--demo is of one transaction, which is not chosen")}
			}
			q, against, err := options.queries(args)
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
			o := explain.Options{Query: q, Against: against, Format: report.Format(options.Output), File: file}
			var source explain.Source = admin.NewClient(options.AdminSocket)
			switch {
			case options.Demo:
				source = explain.Demo{}
			case options.From != "" && len(args) == 0:
				return usageError{errors.New("--from needs the id of a trace")}
			case options.From != "":
				headers, err := otlp.ParseHeaders(options.Headers)
				if err != nil {
					return usageError{fmt.Errorf("--from-headers: %w", err)}
				}
				if source, err = pyroscope.New(options.From, headers, version); err != nil {
					return usageError{fmt.Errorf("--from: %w", err)}
				}
			}
			return explain.Run(ctx, source, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		}),
	}
	a.add(cmd, options)
	adaptExplainFlags(cmd.Flags())
	flag := cmd.Flags().Lookup("against")
	flag.Value = &againstFlag{flag.Value, cmd.Flags(), options}
}
