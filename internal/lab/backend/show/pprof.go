package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"correlator/internal/lab/backend"
)

// recording is a profile of record.
type recording struct {
	profile *pprof.Profile
	during  interval
}

func readRecording(name string) (*recording, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p, err := pprof.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return &recording{p, interval{p.TimeNanos, p.TimeNanos + p.DurationNanos}}, nil
}

// transactions returns the transactions of a process by their trace.
func (r *recording) transactions(pid int) map[string]*transaction {
	found := make(map[string]*transaction)
	for _, s := range r.profile.Sample {
		label := func(name string) string { return strings.Join(s.Label[name], " ") }
		if label("trace_id") == "" || !slices.Contains(s.NumLabel["pid"], int64(pid)) {
			continue
		}
		var frames []frame
		for _, l := range s.Location {
			frames = append(frames, recordedFrame(l))
		}
		add(found, label("trace_id"), context{label("span_id"), label("http.route")},
			stack{frames, uint64(s.Value[0])})
	}
	return found
}

func recordedFrame(l *pprof.Location) frame {
	var f frame
	if len(l.Line) > 0 {
		f.name, f.line = l.Line[0].Function.Name, l.Line[0].Line
		f.source = base(l.Line[0].Function.Filename)
	}
	f.method = isMethod(strings.Trim(l.Mapping.File, "[]"))
	if f.name == "" {
		f.name = inFile(l.Mapping.File)
	}
	return f
}

// base returns the name of a source file without directories, which runtimes other than a JVM have.
func base(source string) string {
	if source == "" {
		return ""
	}
	return path.Base(source)
}

// inFile is shown for a function without a name.
func inFile(file string) string {
	const most = 30
	name := path.Base(file)
	if len(name) > most {
		name = name[:most] + "..."
	}
	return "? in " + name
}

// isMethod reports whether frames of a type (profile.frame.type) are of the programs that are shown as
// a tree.
func isMethod(frameType string) bool { return frameType == "jvm" || frameType == "cpython" }

func add(all map[string]*transaction, trace string, of context, s stack) {
	if all[trace] == nil {
		all[trace] = &transaction{trace: trace, contexts: make(map[context]uint64)}
	}
	all[trace].contexts[of] += s.samples
	all[trace].stacks = append(all[trace].stacks, s)
}

// received returns the transactions of a process that a backend has received, by their trace.
func received(profiles *backend.Profiles, pid int) map[string]*transaction {
	found := make(map[string]*transaction)
	for sample, n := range profiles.Samples {
		if sample.PID != strconv.Itoa(pid) || sample.TraceID == "" {
			continue
		}
		var frames []frame
		for _, f := range profiles.Stacks[sample.Stack] {
			received := frame{name: f.Function, source: base(f.SourceFile), line: f.Line,
				method: isMethod(f.Type)}
			if received.name == "" {
				received.name = inFile(f.File)
			}
			frames = append(frames, received)
		}
		add(found, sample.TraceID, context{sample.SpanID, sample.Route}, stack{frames, n})
	}
	return found
}
