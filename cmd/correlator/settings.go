package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/settings"
)

// configFlag is the flag that loadSettings looks at.
func configFlag(flags *pflag.FlagSet) {
	flags.String(settings.Config, "", "`path` of a YAML file with settings; its keys are the flags of \"correlator run\" (default: none)")
}

// addConfigFlags gives --config to every command that has a flag in common with run: told of the same
// file, scan leaves out the processes that run leaves out.
func addConfigFlags(root *cobra.Command) {
	run := runCommand().Flags()
	for _, cmd := range root.Commands() {
		shares := false
		cmd.Flags().VisitAll(func(f *pflag.Flag) { shares = shares || run.Lookup(f.Name) != nil })
		if shares && cmd.Flags().Lookup(settings.Config) == nil {
			configFlag(cmd.Flags())
		}
	}
}

// loadSettings sets the flags of a command that were not given, from the environment, then from the
// configuration file. What is wrong in that is so for every command.
func loadSettings(cmd *cobra.Command) error {
	flags := cmd.Flags()
	if err := settings.FromEnvironment(flags); err != nil {
		return usageError{err}
	}
	config := flags.Lookup(settings.Config)
	if config == nil {
		return nil
	}
	if path := config.Value.String(); path != "" {
		if err := settings.FromFile(path, settings.Keys(runCommand().Flags(), flags)); err != nil {
			return usageError{err}
		}
	}
	if cmd.Name() != "run" { // which has a log to tell it in
		warnOf(cmd.ErrOrStderr(), unknownVariables(cmd.Root()))
	}
	return nil
}

func unknownVariables(root *cobra.Command) []settings.UnknownVariable {
	var sets []*pflag.FlagSet
	for _, cmd := range root.Commands() {
		sets = append(sets, cmd.Flags())
	}
	return settings.UnknownVariables(os.Environ(), sets...)
}

func warnOf(w io.Writer, unknown []settings.UnknownVariable) {
	for _, variable := range unknown {
		fmt.Fprintf(w, "correlator: environment variable %s is no setting%s\n", variable.Name, settings.DidYouMean(variable.Nearest))
	}
}
