package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	pprof "github.com/google/pprof/profile"

	"correlator/internal/backend"
)

// readRecording reads a profile of record: the transactions of a process by their trace.
func readRecording(name string, pid int) (map[string]*transaction, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p, err := pprof.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	found := make(map[string]*transaction)
	for _, s := range p.Sample {
		trace := s.Label["trace_id"]
		if len(trace) == 0 || !slices.Contains(s.NumLabel["pid"], int64(pid)) {
			continue
		}
		var frames []frame
		for _, l := range s.Location {
			frames = append(frames, recordedFrame(l))
		}
		add(found, trace[0], stack{frames, uint64(s.Value[0])})
	}
	return found, nil
}

func recordedFrame(l *pprof.Location) frame {
	f := frame{jvm: l.Mapping.File == "[jvm]"}
	if len(l.Line) > 0 {
		f.name, f.line = l.Line[0].Function.Name, l.Line[0].Line
		f.source = l.Line[0].Function.Filename
	}
	if f.name == "" {
		f.name = inFile(l.Mapping.File)
	}
	return f
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

func add(all map[string]*transaction, trace string, s stack) {
	if all[trace] == nil {
		all[trace] = &transaction{trace: trace}
	}
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
			received := frame{name: f.Function, source: f.SourceFile, line: f.Line, jvm: f.Type == "jvm"}
			if received.name == "" {
				received.name = inFile(f.File)
			}
			frames = append(frames, received)
		}
		add(found, sample.TraceID, stack{frames, n})
	}
	return found
}
