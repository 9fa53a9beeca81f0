package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"correlator/internal/operate/config"
)

// usageError is a mistake in how the command was called: exit code 2, before anything was opened.
type usageError struct{ error }

// usageArgs turns the error of check into a usage error. One of a command that takes no arguments
// names the first.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case len(args) > 0 && cmd.HasAvailableSubCommands():
			err = unknownCommand(cmd, args[0])
		case check(cmd, nil) == nil && check(cmd, args[:1]) != nil:
			err = fmt.Errorf("unexpected argument %q", args[0])
		}
		return seeHelp(cmd, err)
	}
}

// unknownCommand returns the error of a command that has no subcommand of this name.
func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", name, cmd.CommandPath(),
		config.DidYouMean(config.Nearest(name, names)))
}

// flagError is a flag error function of cobra. It adds the flag that an unknown one resembles.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return seeHelp(cmd, err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	nearest := config.Nearest(unknown.GetSpecifiedName(), names)
	if nearest != "" {
		nearest = "--" + nearest
	}
	return seeHelp(cmd, fmt.Errorf("%w%s", err, config.DidYouMean(nearest)))
}

func seeHelp(cmd *cobra.Command, err error) error {
	see := "; see"
	if strings.HasSuffix(err.Error(), "?") {
		see = " See"
	}
	return usageError{fmt.Errorf("%w%s %q", err, see, cmd.CommandPath()+" --help")}
}

// helpCommand returns the command help, that of cobra but for what has no help: it is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(about, rest[0])
			}
			if err != nil {
				return seeHelp(cmd.Root(), err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// outlet is standard output. It remembers its first error, which not all commands look at.
type outlet struct {
	file *os.File
	mu   sync.Mutex
	err  error
}

var _ io.Writer = (*outlet)(nil)

func (o *outlet) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Fd is for what looks at the terminal.
func (o *outlet) Fd() uintptr { return o.file.Fd() }

func (o *outlet) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
