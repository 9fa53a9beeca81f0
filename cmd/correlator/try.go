package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"correlator/internal/operate/config"
	"correlator/internal/operate/try"
	"correlator/internal/out/explain"
)

type tryOptions struct {
	OutputFile string `key:"output-file" short:"O"`
	ProcRoot   string `key:"proc-root"`
}

func (o *tryOptions) validate(s *config.Settings) error {
	if o.OutputFile == "" || o.OutputFile == "-" {
		return fmt.Errorf("%s is no file", s.Name("output-file"))
	}
	return nil
}

func (a *app) addTry() {
	shop := false // have this process be the shop
	options := &tryOptions{OutputFile: "correlator-try.html", ProcRoot: config.DefaultProcRoot}
	cmd := &cobra.Command{
		Use:   "try",
		Short: "Show on a program of its own what the correlator tells of processes",
		Args:  cobra.NoArgs,
		RunE: untilSignal(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if shop {
				return try.Shop(cmd.InOrStdin(), cmd.OutOrStdout())
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
			err = try.Run(ctx, stdout, stderr, try.Options{Shop: []string{self, cmd.Name(), "--shop"},
				File: options.OutputFile, ProcRoot: options.ProcRoot})
			if errors.Is(err, try.ErrNotHere) {
				fmt.Fprintf(stderr, "%s\nWhat follows was recorded once, where they can (correlator explain --demo).\n\n",
					printable(err))
				return explain.Run(ctx, explain.Demo{}, stdout, stderr, explain.Options{Format: explain.Table})
			}
			return err
		}),
	}
	a.add(cmd, options)
	cmd.Flags().BoolVar(&shop, "shop", false, "be the shop")
	cmd.Flags().Lookup("shop").Hidden = true
	cmd.Flags().Lookup("output-file").Usage = "the `file` that the page is written to"
}
