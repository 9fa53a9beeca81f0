package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/bpf"
	"correlator/internal/record"
	"correlator/internal/report"
	"correlator/internal/terminal"
)

// symbolsTime is how long reading symbols may take. A JVM takes 0.1 s; a process that makes us wait longer
// gets no names.
const symbolsTime = 15 * time.Second

// firstLook is how long the first look at all processes of a busy host takes: a recording that was shorter
// does not tell that none takes part.
const firstLook = time.Second

func recordCommand() *cobra.Command {
	var options record.Options
	var duration time.Duration
	var output string
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record what transactions spend CPU time on, as a pprof profile",
		Long: `record samples the CPU time of the processes that take part for a while, in transactions and
outside, and writes a profile for pprof: flame graphs, with the labels trace_id, transaction_id,
service, environment, container_id, thread, pid and tid to choose by. It tells the APM agents
nothing, and may run beside "correlator run". Ctrl-C or SIGTERM ends it early, with what there is
by then; while symbols are read after that, it leaves out the names that are missing, and one more
aborts.

    correlator record -d 10s --service shop -o shop.pb.gz
    go tool pprof -http=: shop.pb.gz
    go tool pprof -top -tagfocus=transaction_id=7ad51cbe3a4f0c12 shop.pb.gz

Native code is named by the symbols of its files, and of the debug files that /usr/lib/debug has
for them. What a just-in-time compiler makes is named by the perf map that it writes to
/tmp/perf-PID.map: have a JVM write one before the recording ends, by "jcmd PID Compiler.perfmap"
(JDK 17 and later), or as it ends, by -XX:+DumpPerfMapAtExit. Stacks are walked by frame pointers,
which a JVM keeps with -XX:+PreserveFramePointer only.

Of the settings in the file of --config, and of the environment variables of "correlator run", it obeys
those that choose processes, kernel-stacks and proc-root. The others are checked, and mean nothing here.

` + filterHelp,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRecording(options, duration, output); err != nil {
				return usageError{err}
			}
			if output == "" {
				output = time.Now().Format("correlator-20060102-150405.pb.gz")
			}
			return recordTo(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), output, duration, options)
		},
	}
	flags := cmd.Flags()
	flags.DurationVarP(&duration, "duration", "d", 30*time.Second, "how long to record")
	flags.StringVarP(&output, "output", "o", "", "`path` of the profile, - for standard output (default: correlator-DATE-TIME.pb.gz)")
	flags.IntVar(&options.PID, "pid", 0, "only the process with this `number`; its end ends the recording (default: all)")
	flags.IntVar(&options.SamplesPerSecond, "rate", 97, fmt.Sprintf(
		"CPU stack samples of every CPU per second, at most %d; a prime, so as not to keep step with what happens at round times", bpf.MaxSamplesPerSecond))
	flags.BoolVar(&options.KernelStacks, "kernel-stacks", false, "stacks begin with the kernel's frames")
	procRootFlag(flags, &options.ProcRoot)
	filterFlags(flags, &options.Filter)
	// One flag, not two: what is given on the command line goes before the file and the environment.
	flags.Lookup("include-service").Usage = "only services with such a name; --service for short (default: all)"
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "service" {
			name = "include-service"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT. What comes after it, or after
// stop, does what it does by default: it ends us.
func untilSignal(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func checkRecording(options record.Options, duration time.Duration, output string) error {
	switch {
	case duration <= 0:
		return fmt.Errorf("--duration %v is not above 0", duration)
	case options.SamplesPerSecond < 1 || options.SamplesPerSecond > bpf.MaxSamplesPerSecond:
		return fmt.Errorf("--rate %d is not between 1 and %d", options.SamplesPerSecond, bpf.MaxSamplesPerSecond)
	case options.PID < 0:
		return fmt.Errorf("--pid %d is not a process id", options.PID)
	case output == "-" && terminal.Is(os.Stdout):
		return errors.New("--output -: a profile is not for a terminal")
	}
	return nil
}

// recordTo records and writes the profile, and tells on stderr how it goes.
func recordTo(ctx context.Context, stdout, stderr io.Writer, output string, duration time.Duration, options record.Options) error {
	if output != "-" {
		if err := report.CheckFile(output); err != nil {
			return err
		}
	}
	status := terminal.NewStatusLine(stderr)
	defer status.Clear()
	symbolizer := report.NewSymbolizer(options.ProcRoot)
	defer symbolizer.Close()
	options.Learner, options.Duration = symbolizer, duration
	recorder, err := record.Open(options, warnings(status))
	if err != nil {
		return err
	}
	status.Plain("recording for %v", duration)
	sampling, stopSampling := untilSignal(ctx)
	defer stopSampling()
	stopShowing := showProgress(status, duration, recorder.Progress)
	recording, err := recorder.Run(sampling)
	stopShowing()
	if err != nil {
		return err
	}
	defer recording.Close()
	names := readNames(ctx, stopSampling, symbolizer, recording, status)
	summary := report.Summarize(recording, names)
	status.Clear()
	if summary.Samples == 0 {
		return nothingSampled(summary, recording, stderr)
	}
	written, err := writeProfile(stdout, output, recording, names)
	if err != nil {
		return err
	}
	if err := summary.Write(stderr); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "\nwrote %d KiB to %s\n", (written+1023)/1024, output)
	if output != "-" {
		look := "go tool pprof -http=: "
		fmt.Fprintf(stderr, "flame graph:      %s%s\n", look, shellQuoted(output))
		if id := summary.TopTransaction(); id != "" {
			fmt.Fprintf(stderr, "one transaction:  %s-tagfocus=transaction_id=%s %s\n", look, id, shellQuoted(output))
		}
	}
	return nil
}

// readNames takes over the signals from the recording.
func readNames(ctx context.Context, stopSampling func(), from *report.Symbolizer, recording *record.Recording, status *terminal.StatusLine) *report.Symbols {
	status.Set("reading symbols")
	reading, stop := untilSignal(ctx)
	defer stop()
	stopSampling()
	reading, cancel := context.WithTimeout(reading, symbolsTime)
	defer cancel()
	return from.Read(reading, recording)
}

func writeProfile(stdout io.Writer, output string, recording *record.Recording, names *report.Symbols) (lenBytes int, err error) {
	profile := report.Profile(recording, names)
	if output != "-" {
		return report.WriteFile(output, profile)
	}
	counter := &countingWriter{w: stdout}
	err = profile.Write(counter)
	return counter.n, err
}

type countingWriter struct {
	w io.Writer
	n int
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}

// nothingSampled is an error: there is nothing to look at, and no file is written.
func nothingSampled(summary *report.Summary, recording *record.Recording, stderr io.Writer) error {
	for _, line := range summary.Losses() {
		fmt.Fprintln(stderr, line)
	}
	switch {
	case len(recording.Lost) > 0:
		return errors.New("nothing was sampled: all samples were lost")
	case len(recording.Processes) > 0:
		return fmt.Errorf("nothing was sampled: processes that take part: %d; they ran at none of the %d moments a second in %v (--rate, --duration)",
			recording.NumProcesses(), recording.SamplesPerSecond, recording.Duration.Round(time.Millisecond))
	case recording.Duration < firstLook:
		return fmt.Errorf("nothing was sampled: %v are too short to look at all processes (--duration)", recording.Duration.Round(time.Millisecond))
	}
	return fmt.Errorf(`nothing was sampled: no process was found in %v that takes part, see "correlator scan"`, recording.Duration.Round(time.Millisecond))
}

// warnings logs what an operator should know, beside the status line.
func warnings(w io.Writer) *zap.Logger {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), zapcore.Lock(zapcore.AddSync(w)), zap.WarnLevel))
}

// shellQuoted is a word for a shell.
func shellQuoted(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+=:@%,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
