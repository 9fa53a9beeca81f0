package report

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/attach/process"
	"correlator/internal/host/terminal"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/profile"
)

// symbolsTimeout is for reading symbols. A JVM takes 0.1 s; a process that makes us wait longer
// gets no names.
const symbolsTimeout = 15 * time.Second

// firstSweep is how long the first sweep takes on a busy host: a shorter recording does not prove
// that there are no targets.
const firstSweep = time.Second

// Record records until options.Duration has passed, or SIGTERM or SIGINT comes, and writes the
// profile to a file in a format: output,
// - for stdout, or one that is named after the time. Progress and a summary go to stderr.
func Record(ctx context.Context, stdout, stderr io.Writer, output string, format Format, options record.Options) error {
	if output == "" {
		output = format.FileName(time.Now())
	}
	if output != "-" {
		if err := CheckFile(output); err != nil {
			return err
		}
	}
	recording, names, err := take(ctx, stderr, options)
	if err != nil {
		return err
	}
	defer recording.Close()
	summary := summarize(recording, names)
	if summary.samples == 0 && len(recording.Waits) == 0 {
		return nothingSampled(summary, recording, options.Filter, stderr)
	}
	written, err := writeOutput(stdout, output, format, recording, names)
	if err != nil {
		return err
	}
	if err := summary.write(stderr); err != nil {
		return err
	}
	writeNextSteps(stderr, output, format, written, summary)
	return nil
}

// take records, and reads the names of frames; the caller must close the recording.
func take(ctx context.Context, stderr io.Writer, options record.Options) (*record.Recording, *symbolNames, error) {
	status := terminal.NewStatusLine(stderr)
	defer status.Clear()
	namer, err := newFrameNamer(options.ProcRoot)
	if err != nil {
		return nil, nil, err
	}
	defer namer.close()
	options.Learner = namer
	options.Searched = func() {
		length := "for"
		if options.While != nil {
			length = "for at most"
		}
		status.Plain("recording %s %v", length, options.Duration)
	}
	sampling, stopSampling := untilSignal(ctx) // also of one that comes before there is anything to end
	defer stopSampling()
	recorder, err := opening(sampling, status, func() (*record.Recorder, error) {
		return record.Open(options, warnings(status))
	})
	if err != nil {
		return nil, nil, err
	}
	stopShowing := showProgress(status, options.Duration, recorder.Progress)
	recording, err := recorder.Run(sampling)
	stopShowing()
	if err != nil {
		return nil, nil, err
	}
	return recording, readNames(ctx, stopSampling, namer, recording, status), nil
}

// opening calls open, and writes that a signal has come, if ctx ends before it returns.
func opening(ctx context.Context, w io.Writer, open func() (*record.Recorder, error)) (*record.Recorder, error) {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		fmt.Fprintln(w, "ending when programs are loaded; a second signal ends it now")
	})
	recorder, err := open()
	if !stop() {
		<-said // before what others write
	}
	return recorder, err
}

// Take records as Record does, and writes nothing but its progress. The frames of the recording have their names, each
// process's stacks are its own, and it is closed. Notes say what is not in it.
func Take(ctx context.Context, stderr io.Writer, options record.Options) (named *record.Recording, notes []string,
	err error) {
	recording, names, err := take(ctx, stderr, options)
	if err != nil {
		return nil, nil, err
	}
	defer recording.Close()
	summary := summarize(recording, names)
	return nameFrames(recording, names), slices.Concat(summary.losses(), summary.hints()), nil
}

// nameFrames returns a recording whose frames have the names that were read.
func nameFrames(r *record.Recording, names *symbolNames) *record.Recording {
	named := *r
	named.Samples, named.Stacks = make(map[record.Key]uint64), make(map[profile.StackTraceID][]profile.Frame)
	ids := make(map[processStack]profile.StackTraceID)
	id := func(key *record.Key) profile.StackTraceID {
		of := processStack{key.Process, key.Stack}
		made, known := ids[of]
		if !known {
			binary.BigEndian.PutUint64(made[:], uint64(len(ids))+1)
			ids[of] = made
			frames := slices.Clone(r.Stacks[key.Stack])
			for i, f := range frames {
				if name := names.display(key.Process, f); f.Name() == "" && name != "" {
					function := profile.NewFunction(name, "")
					if symbol := names.symbol(key.Process, f); symbol != name {
						function = profile.NewSymbol(symbol, name)
					}
					frames[i] = f.WithName(function)
				}
			}
			named.Stacks[made] = frames
		}
		return made
	}
	for key, samples := range r.Samples {
		key.Stack = id(&key)
		named.Samples[key] += samples
	}
	if r.Waits != nil {
		named.Waits = make(map[record.WaitKey]profile.StateTimes)
	}
	for key, of := range r.Waits {
		key.Stack = id(&key.Key)
		named.Waits[key] = of
	}
	named.Moments = make(map[record.WaitKey][]keep.Moment)
	for key, of := range r.Moments {
		key.Stack = id(&key.Key)
		named.Moments[key] = append(named.Moments[key], of...)
	}
	return &named
}

// writeNextSteps writes where the profile is, and the commands that show it.
func writeNextSteps(w io.Writer, output string, format Format, written int, summary *summary) {
	fmt.Fprintf(w, "\nwrote %d KiB to %s\n", (written+1023)/1024, output)
	if output == "-" || format != PProf {
		return
	}
	const pprof = "go tool pprof -http=: "
	fmt.Fprintf(w, "flame graph:      %s%s\n", pprof, shellQuoted(output))
	if id := summary.topTransaction(); id != "" {
		fmt.Fprintf(w, "one transaction:  %s-tagfocus=transaction_id=%s %s\n", pprof, id, shellQuoted(output))
	}
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT. After that, or after
// stop, a signal does what it does by default: it ends us.
func untilSignal(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// readNames takes over the signals from the recording.
func readNames(ctx context.Context, stopSampling func(), from *frameNamer, recording *record.Recording,
	status *terminal.StatusLine) *symbolNames {
	status.Set("reading symbols")
	reading, stop := untilSignal(ctx)
	defer stop()
	stopSampling()
	reading, cancel := context.WithTimeout(reading, from.patience)
	defer cancel()
	return from.read(reading, recording)
}

func writeOutput(stdout io.Writer, output string, format Format, recording *record.Recording,
	names *symbolNames) (lenBytes int, err error) {
	about := About{Title: "correlator record", Notes: []string{
		recording.Start.Local().Format(time.RFC1123Z),
		fmt.Sprintf("%v, %d samples a second of every CPU", recording.Duration.Round(100*time.Millisecond),
			recording.SamplesPerSecond),
	}}
	content, err := encode(format, recording, names, about)
	if err != nil {
		return 0, err
	}
	if output != "-" {
		return len(content), WriteFile(output, content)
	}
	return stdout.Write(content)
}

// nothingSampled returns an error: there is nothing to look at, and no file is written.
func nothingSampled(summary *summary, recording *record.Recording, filter process.Filter, stderr io.Writer) error {
	for _, line := range summary.losses() {
		fmt.Fprintln(stderr, line)
	}
	duration := recording.Duration.Round(time.Millisecond)
	switch {
	case recording.Unselected > 0:
		return fmt.Errorf("nothing was sampled of what was chosen (--trace, --transaction); other samples: %d",
			recording.Unselected)
	case recording.Duration == 0:
		return errors.New("nothing was sampled: the recording was ended before it began; on a busy host it takes " +
			"longer to find processes, and until their stacks can be unwound")
	case len(recording.Lost) > 0:
		return errors.New("nothing was sampled: all samples were lost")
	case len(recording.Processes) > 0:
		waits := ""
		if recording.Waits != nil {
			waits = ", and no wait in a transaction had a stack"
		}
		return fmt.Errorf("nothing was sampled: processes that take part: %d; they ran at none of the %d moments a "+
			"second in %v%s (--rate, --duration); what they wait for says \"correlator explain --pid\"",
			recording.NumProcesses(), recording.SamplesPerSecond, duration, waits)
	case recording.Duration < firstSweep:
		return fmt.Errorf("nothing was sampled: %v are too short to look at all processes (--duration)", duration)
	}
	selected := ""
	if !filter.IsZero() {
		selected = " and is selected"
	}
	if !filter.All {
		selected += ` (--pid, --comm, --all: of any kind)`
	}
	return fmt.Errorf(`nothing was sampled: no process was found in %v that takes part%s, see "correlator scan"`,
		duration, selected)
}

// warnings returns a logger for warnings, which go above the status line.
func warnings(w io.Writer) *zap.Logger {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime, cfg.EncodeDuration = zapcore.RFC3339NanoTimeEncoder, zapcore.StringDurationEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), zapcore.Lock(zapcore.AddSync(w)), zap.WarnLevel))
}

// shellQuoted returns a text as one word of a shell.
func shellQuoted(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("/._-+=:@%,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
