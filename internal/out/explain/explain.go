package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/profile/ids"
)

// Table and JSON are formats beside those of report.
const (
	Table report.Format = "table"
	JSON  report.Format = "json"
)

// Formats returns all formats.
func Formats() []report.Format { return append([]report.Format{Table, JSON}, report.Formats()...) }

// Options say what to explain, and how.
type Options struct {
	Query   keep.Query
	Against *keep.Query // what it is compared with; nil: nothing
	Format  report.Format
	File    string // empty: standard output
}

// Source is an agent's admin socket.
type Source interface {
	Samples(ctx context.Context, q keep.Query) (*keep.Answer, error)
}

// Run asks an agent, and writes what it answers: to stdout, or to a file, of which stderr is told. Where
// nothing is known of an id, the error says why, as far as that can be known.
func Run(ctx context.Context, source Source, stdout, stderr io.Writer, options Options) error {
	if options.File != "" {
		if err := report.CheckFile(options.File); err != nil {
			return err
		}
	}
	one, err := ask(ctx, source, options.Query)
	if err != nil {
		return err
	}
	var content []byte
	if options.Against == nil {
		content, err = encode(options, one, stdout)
	} else if other, errOther := ask(ctx, source, *options.Against); errOther != nil {
		return fmt.Errorf("what it is compared with: %w", errOther)
	} else {
		content, err = encodeComparison(options, one, other, stdout)
	}
	if err != nil {
		return err
	}
	return write(content, options.File, stdout, stderr)
}

// answered is a query with what an agent has answered.
type answered struct {
	*Explanation
	query     keep.Query
	answer    *keep.Answer
	recording *record.Recording
}

func ask(ctx context.Context, source Source, query keep.Query) (*answered, error) {
	answer, err := source.Samples(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(answer.Ambiguous) > 0 {
		return nil, ambiguous(query.ID, answer.Ambiguous)
	}
	if len(answer.Transactions) == 0 {
		return nil, errors.New(nothing(query, answer))
	}
	r, err := recording(answer)
	if err != nil {
		return nil, err
	}
	return &answered{explain(answer, r), query, answer, r}, nil
}

// write writes to a file, of which stderr is told; empty: to stdout.
func write(content []byte, file string, stdout, stderr io.Writer) error {
	if file == "" {
		_, err := stdout.Write(content)
		return err
	}
	if err := report.WriteFile(file, content); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "wrote %d KiB to %s\n", (len(content)+1023)/1024, terminal.Escape(file))
	return nil
}

func encode(options Options, of *answered, stdout io.Writer) ([]byte, error) {
	return encodeAs(options.Format, options.File, stdout, of.Explanation, func() ([]byte, error) {
		about := of.about()
		about.Timeline = func(shown report.Shown) *flamegraph.Timeline {
			return newTimeline(of.answer, of.recording, of.Explanation, shown)
		}
		return report.Encode(options.Format, of.recording, about)
	})
}

// encodeAs encodes an explanation as a table or in JSON; others does it in the other forms.
func encodeAs(format report.Format, file string, stdout io.Writer, e interface{ lines(columns int) []string },
	others func() ([]byte, error)) ([]byte, error) {
	switch format {
	case Table:
		columns := 0
		if file == "" {
			columns, _ = terminal.Size(stdout)
		}
		return []byte(strings.Join(e.lines(columns), "\n") + "\n"), nil
	case JSON:
		content, err := json.MarshalIndent(e, "", "  ")
		return append(content, '\n'), err
	}
	return others()
}

// maxAmbiguous is how many ids are listed that begin as it was said.
const maxAmbiguous = 10

func ambiguous(prefix string, ids []string) error {
	text := strings.Join(ids[:min(len(ids), maxAmbiguous)], "\n  ")
	if more := len(ids) - maxAmbiguous; more > 0 {
		text += fmt.Sprintf("\n  ... and %d more", more)
	}
	return fmt.Errorf("several ids begin with %s:\n  %s", prefix, text)
}

// nothing says why there is nothing.
func nothing(q keep.Query, a *keep.Answer) string {
	clock := func(t time.Time) string { return clockOn(t, a.At, "15:04:05") }
	kept := fmt.Sprintf("this agent keeps %d samples", a.Kept)
	if !a.Oldest.IsZero() {
		kept += ", the oldest of " + clock(a.Oldest)
	}
	if q.ID == "" {
		text := "no transaction was sampled"
		if q.Service != "" || !q.Since.IsZero() {
			text += " that is selected (--service, --since)"
		}
		return text + "; " + kept
	}
	if a.Filtered > 0 {
		return fmt.Sprintf("samples are kept of %d transactions with the id %s, but --service or --since leaves them out",
			a.Filtered, q.ID)
	}
	about := "nothing is kept of " + q.ID + ": "
	switch a.Gone {
	case "expired":
		return about + fmt.Sprintf("too long ago: its samples were forgotten at %s, after %v (--keep)", clock(a.GoneAt),
			a.Keep)
	case "evicted":
		return about + fmt.Sprintf("dropped for lack of room at %s: its samples made room for newer ones "+
			"(--keep-bytes; %d samples were evicted since the agent began)", clock(a.GoneAt), a.Evicted)
	case "no_stack":
		return about + "its samples had no stack"
	case "too_large":
		return about + "its stacks are too large to be kept"
	}
	period := time.Second / time.Duration(max(a.SamplesPerSecond, 1))
	lines := []string{"no sample of " + q.ID + " is kept here; " + kept + ". It can be that it",
		fmt.Sprintf("- was short: a sample is taken every %v of CPU time, and what its threads did is known if one of "+
			"them left its CPU (docs/waits.md)", period),
		"- is not sampled by its tracer: such traces are left out (run --unsampled keeps them)",
		"- ran on another host, or in a process that takes no part here: see \"correlator status\""}
	if a.Complete.IsZero() {
		lines = append(lines, "- ran before the agent began: nothing was forgotten since")
	} else {
		lines = append(lines, fmt.Sprintf("- ran before %s, and was forgotten: all is kept since then (--keep, --keep-bytes)",
			clock(a.Complete)))
	}
	if n := len(q.ID); n != ids.TraceDigits && n != ids.SpanDigits {
		lines = append(lines, "Of an id in full, 32 or 16 hexadecimal digits, it may be known that its samples were forgotten.")
	}
	return strings.Join(lines, "\n  ")
}

// clockOn returns a time of day, with the date unless it is that of now.
func clockOn(t, now time.Time, layout string) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = time.DateOnly + " " + layout
	}
	return t.Format(layout)
}
