// Command correlator joins CPU samples with APM traces; see the README.
package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"correlator/internal/host/priority"
	"correlator/internal/host/terminal"
	"correlator/internal/names/symbolizer"
	"correlator/internal/operate/config"
	"correlator/internal/operate/help"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/profile/ids"
)

func main() {
	worker.Main(access.Kind, symbolizer.Kind, symbolizer.LiveKind, unwind.Kind())
	if raiseStarved("/proc", os.Args[1:]) {
		fmt.Fprintln(os.Stderr, "next to no CPU is left for this: it has the highest priority until it ends")
	}
	stdout := &outlet{file: os.Stdout}
	root := newApp().root
	root.SetArgs(signedIDs(os.Args[1:]))
	root.SetOut(stdout)
	err := root.Execute()
	if err == nil {
		err = stdout.failure()
	}
	if err == nil {
		return
	}
	code := 1
	if usage := (usageError{}); errors.As(err, &usage) {
		code = 2
	}
	fmt.Fprintln(os.Stderr, "correlator:", printable(err))
	os.Exit(code)
}

// raiseStarved has record, and explain, which may record, begin on a host that leaves them next to no CPU. That is
// before they do anything else, which would take minutes. An agent has the share of a service.
func raiseStarved(procRoot string, args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"record", "explain"}, args[0]) && priority.RaiseStarved(procRoot)
}

// signedIDs writes ids that are negative numbers as others are, which are no flags.
func signedIDs(args []string) []string {
	for i, arg := range args {
		if _, err := strconv.ParseInt(arg, 10, 64); err == nil && arg[0] == '-' && len(arg) > ids.SpanDigits {
			args[i], _ = ids.Parse(arg, ids.TraceDigits)
		}
	}
	return args
}

// printable returns the text of an error, which may have parts that others chose, for a terminal.
func printable(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = terminal.Escape(line)
	}
	return strings.Join(lines, "\n")
}

type app struct {
	root     *cobra.Command
	settings []*config.Settings // of all commands, whose variables are known
}

func newApp() *app {
	a := &app{root: &cobra.Command{
		Use:           "correlator",
		Short:         "Joins CPU profiles with APM traces",
		Long:          helpText("correlator"),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if set, err := cmd.Flags().GetBool("version"); err != nil || !set {
				return cmd.Help()
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}}
	a.root.SetFlagErrorFunc(flagError)
	a.root.SetHelpCommand(helpCommand())
	// Not by root.Version: a template for it links text/template, whose calls of methods by name have the
	// linker keep those of every package, 5 MB.
	a.root.Flags().BoolP("version", "v", false, "version for correlator")
	a.root.SetHelpFunc(help.Command)
	a.addRun()
	a.addCheck()
	a.addRecord(newRecordOptions())
	a.addExplain()
	a.addTry()
	a.addScan()
	a.addInspect()
	a.addStatus()
	a.addWatch()
	a.addFeed()
	a.addOpenCensus()
	a.addDots()
	a.addCompletion()
	a.addMan()
	a.addVersion()
	return a
}

//go:embed help
var helpTexts embed.FS

func helpText(command string) string {
	read := func(name string) string {
		text, err := helpTexts.ReadFile("help/" + name + ".txt")
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	return strings.ReplaceAll(read(command), "{filter}", read("filter"))
}

// options are what the flags of a command set. validate is called when all have their values.
type options interface {
	validate(s *config.Settings) error
}

// add adds a command with options; nil: it has none.
func (a *app) add(cmd *cobra.Command, o options) *config.Settings { return a.addTo(a.root, cmd, o) }

// addTo adds a command of another one, which has been added. The file of its help text has the
// names of both.
func (a *app) addTo(parent, cmd *cobra.Command, o options) *config.Settings {
	parent.AddCommand(cmd)
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	cmd.Long = helpText(strings.ReplaceAll(path, " ", "-"))
	cmd.Args = usageArgs(cmd.Args)
	if o == nil {
		return nil
	}
	s := config.NewSettings(o)
	s.AddFlags(cmd.Flags(), usage)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Load(); err != nil {
			return usageError{err}
		}
		if cmd.Flags().Lookup("config") != nil && cmd.Name() != "run" { // which logs them
			a.warnOfUnknownVariables(cmd)
		}
		if err := o.validate(s); err != nil {
			return usageError{err}
		}
		return nil
	}
	a.settings = append(a.settings, s)
	return s
}

func (a *app) unknownVariables() []config.UnknownVariable {
	return config.UnknownVariables(os.Environ(), a.settings...)
}

func (a *app) warnOfUnknownVariables(cmd *cobra.Command) {
	for _, variable := range a.unknownVariables() {
		fmt.Fprintf(cmd.ErrOrStderr(), "correlator: environment variable %s is no setting%s\n", variable.Name,
			config.DidYouMean(variable.Nearest))
	}
}
