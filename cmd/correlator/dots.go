package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"correlator/internal/operate/dotstool"
	"correlator/internal/operate/serve"
)

func (a *app) addDots() {
	parent := &cobra.Command{
		Use:   "dots",
		Short: "Publish objects on a DOTS bus, watch them, and run its broker",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a.add(parent, nil)
	a.addDotsServe(parent)
	a.addDotsWatch(parent)
	a.addDotsPublish(parent)
	a.addDotsDescribe(parent)
	a.addDotsGenerate(parent)
	a.addDotsRecord(parent)
	a.addDotsReplay(parent)
}

func (a *app) addDotsServe(parent *cobra.Command) {
	options := newServeOptions()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker until SIGTERM or SIGINT",
		Args:  cobra.NoArgs,
		RunE: untilSignal(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			log, err := serve.NewLogger(options.LogLevel, options.LogFormat)
			if err != nil {
				return err
			}
			broker := options.broker()
			broker.Log = log
			return dotstool.Serve(ctx, broker)
		}),
	}
	a.addTo(parent, cmd, options)
	adaptServeFlags(cmd.Flags())
}

func (a *app) addDotsWatch(parent *cobra.Command) {
	options := &watchOptions{output: table}
	a.addTo(parent, &cobra.Command{
		Use:   "watch TYPE...",
		Short: "Show the objects of types, and what changes",
		Args:  cobra.MinimumNArgs(1),
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			w := dotstool.Watch{
				Guest: options.guest("correlator dots watch"), Types: args, Count: options.Count, For: options.For,
				Notes: cmd.ErrOrStderr(),
			}
			if options.json() {
				return w.JSON(ctx, cmd.OutOrStdout())
			}
			return w.Table(ctx, cmd.OutOrStdout())
		}),
	}, options)
}

func (a *app) addDotsPublish(parent *cobra.Command) {
	options := &publishOptions{}
	a.addTo(parent, &cobra.Command{
		Use:   "publish TYPE OBJECT|-",
		Short: "Publish an object, or remove it",
		Args:  cobra.ExactArgs(2),
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			p := dotstool.Publish{
				Guest: options.guest("correlator dots publish"), Type: args[0], Files: options.Types,
				Remove: options.Remove,
			}
			return p.Run(ctx, objects(args[1], cmd.InOrStdin()))
		}),
	}, options)
}

func (a *app) addDotsDescribe(parent *cobra.Command) {
	options := &describeOptions{output: table}
	a.addTo(parent, &cobra.Command{
		Use:   "describe [TYPE...]",
		Short: "List the types that a broker knows, and its guests",
		Args:  cobra.ArbitraryArgs,
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			d, err := dotstool.Describe(ctx, options.guest("correlator dots describe"), args)
			switch {
			case err != nil:
				return err
			case options.json():
				return printJSON(cmd.OutOrStdout(), d)
			}
			return d.Write(cmd.OutOrStdout())
		}),
	}, options)
}

func (a *app) addDotsGenerate(parent *cobra.Command) {
	options := &generateOptions{Output: "."}
	cmd := &cobra.Command{
		Use:   "generate FILE...",
		Short: "Generate Go code from .dots files",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return usageOf(dotstool.Generate(args, options.Output, options.Package))
		},
	}
	a.addTo(parent, cmd, options)
	adaptGenerateFlags(cmd.Flags())
}

func (a *app) addDotsRecord(parent *cobra.Command) {
	options := &dotsRecordOptions{}
	a.addTo(parent, &cobra.Command{
		Use:   "record FILE|- [TYPE...]",
		Short: "Record what is published, with its times",
		Args:  cobra.MinimumNArgs(1),
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			r := dotstool.Record{
				Guest: options.guest("correlator dots record"), File: args[0], Types: args[1:],
				Count: options.Count, For: options.For, Stdout: cmd.OutOrStdout(), Notes: cmd.ErrOrStderr(),
			}
			return r.Run(ctx)
		}),
	}, options)
}

func (a *app) addDotsReplay(parent *cobra.Command) {
	options := &replayOptions{Speed: 1}
	a.addTo(parent, &cobra.Command{
		Use:   "replay FILE|-",
		Short: "Publish a recording again",
		Args:  cobra.ExactArgs(1),
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			r := dotstool.Replay{
				Guest: options.guest("correlator dots replay"), File: args[0], Speed: float64(options.Speed),
				Stdin: cmd.InOrStdin(), Notes: cmd.ErrOrStderr(),
			}
			return r.Run(ctx)
		}),
	}, options)
}

// exitInterrupted is what shells report of a program that SIGINT has killed.
const exitInterrupted = 130

// untilSignal runs a command with a context that SIGTERM and SIGINT end.
func untilSignal(run func(context.Context, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal kills, whatever it is that blocks
		err := run(ctx, cmd, args)
		if errors.Is(err, dotstool.ErrInterrupted) || ctx.Err() != nil && errors.Is(err, context.Canceled) {
			os.Exit(exitInterrupted)
		}
		return usageOf(err)
	}
}

func usageOf(err error) error {
	if errors.Is(err, dotstool.ErrUsage) {
		return usageError{err}
	}
	return err
}
