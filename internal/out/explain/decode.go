package explain

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/profile"
)

// errAnswer: the answer refers to what it does not have. Another version made it.
var errAnswer = errors.New("the agent's answer makes no sense: is it of the same version?")

// recording returns an answer as a recording, whose frames have their names.
func recording(a *keep.Answer) (*record.Recording, error) {
	if a.SamplesPerSecond < 1 {
		return nil, errAnswer
	}
	r := &record.Recording{SamplesPerSecond: a.SamplesPerSecond, Samples: make(map[record.Key]uint64),
		Stacks: make(map[profile.StackTraceID][]profile.Frame)}
	for i := range a.Processes {
		p := &a.Processes[i]
		r.Processes = append(r.Processes, &record.Process{PID: p.PID, StartTime: p.StartTime, Service: serviceOf(p),
			Environment: p.Environment, ContainerID: p.ContainerID})
	}
	for i := range a.Transactions {
		tx := &a.Transactions[i]
		if i == 0 || keptFrom(tx).Before(r.Start) {
			r.Start = keptFrom(tx)
		}
		r.Duration = max(r.Duration, tx.Last.Sub(r.Start))
	}
	for i := range a.Transactions { // Start is known now
		r.Duration = max(r.Duration, a.Transactions[i].Last.Sub(r.Start)+r.Period())
	}
	if err := addStacks(r, a); err != nil {
		return nil, err
	}
	if a.LeftOut > 0 {
		r.Stacks[leftOutID] = []profile.Frame{profile.NewCutFrame().WithName(profile.NewFunction(leftOut, ""))}
	}
	for i := range a.Samples {
		key, err := keyOf(r, a, &a.Samples[i])
		if err != nil {
			return nil, err
		}
		r.Samples[key] += a.Samples[i].Count
	}
	return r, addWaits(r, a)
}

// serviceOf returns what a process is called among those of all hosts.
func serviceOf(p *keep.Process) string {
	if p.Host == "" {
		return p.Service
	}
	return cmp.Or(p.Service, "process") + " on " + p.Host
}

// keptFrom returns since when all samples of a transaction are there, at the earliest its first one.
func keptFrom(tx *keep.Transaction) time.Time {
	if tx.KeptFrom.Before(tx.First) {
		return tx.First
	}
	return tx.KeptFrom
}

// leftOut is what samples are shown as that there was no room for in the answer.
const leftOut = "[left out: too many different stacks, threads and spans]"

// leftOutID is the id of their stack: no place.
var leftOutID profile.StackTraceID

func addStacks(r *record.Recording, a *keep.Answer) error {
	files := make([]*profile.File, len(a.Files))
	for i, f := range a.Files {
		files[i] = &profile.File{ID: f.ID, Kind: f.Kind, BuildID: f.BuildID, Path: f.Path}
	}
	frames := make([]profile.Frame, len(a.Frames))
	for i := range a.Frames {
		f := &a.Frames[i]
		var file *profile.File
		if f.File != nil {
			if *f.File < 0 || *f.File >= len(files) {
				return errAnswer
			}
			file = files[*f.File]
		}
		frames[i] = frameOf(f, file)
	}
	for i, places := range a.Stacks {
		stack := make([]profile.Frame, len(places))
		for j, place := range places {
			if int(place) >= len(frames) {
				return errAnswer
			}
			stack[j] = frames[place]
		}
		r.Stacks[stackID(i)] = stack
	}
	return nil
}

// stackID is the id of a stack of an answer: its place, since stacks of two processes may have the same id
// and other names.
func stackID(place int) (id profile.StackTraceID) {
	binary.BigEndian.PutUint64(id[:], uint64(place)+1)
	return id
}

func frameOf(f *keep.Frame, file *profile.File) profile.Frame {
	var function *profile.Function
	if f.Function != "" {
		function = profile.NewFunction(f.Function, f.Source)
	}
	if f.System != "" { // symbol tables have no source files
		function = profile.NewSymbol(f.System, f.Function)
	}
	switch {
	case f.Kind == profile.CutFrame:
		return profile.NewCutFrame()
	case f.Kind.OfRuntime():
		if function == nil {
			function = profile.NewFunction("", f.Source)
		}
		return profile.NewRuntimeFrame(f.Kind, function, f.Line)
	}
	made := profile.Frame{File: file, Address: f.Address, Line: f.Line}
	if function == nil {
		return made
	}
	return made.WithName(function)
}

func keyOf(r *record.Recording, a *keep.Answer, s *keep.Sample) (key record.Key, err error) {
	if s.Transaction < 0 || s.Transaction >= len(a.Transactions) ||
		s.Stack != keep.LeftOutStack && (s.Stack < 0 || s.Stack >= len(a.Stacks)) {
		return key, errAnswer
	}
	tx := &a.Transactions[s.Transaction]
	if tx.Process < 0 || tx.Process >= len(r.Processes) {
		return key, errAnswer
	}
	key = record.Key{Process: r.Processes[tx.Process], TID: s.TID, Thread: s.Thread, Stack: stackID(s.Stack)}
	if s.Stack == keep.LeftOutStack {
		key.Stack = leftOutID
	}
	var attributes []profile.Attribute
	for name, value := range tx.Attributes {
		attributes = append(attributes, profile.Attribute{Key: name, Value: value})
	}
	key.Attributes = profile.NewAttributes(attributes)
	return key, errors.Join(decodeID(key.TraceID[:], tx.Trace), decodeID(key.TransactionID[:], tx.ID),
		decodeID(key.SpanID[:], s.Span))
}

// decodeID decodes an id, which may be empty.
func decodeID(into []byte, text string) error {
	if text == "" {
		return nil
	}
	id, err := hex.DecodeString(text)
	if err == nil && len(id) != len(into) {
		err = errAnswer
	}
	if err != nil {
		return fmt.Errorf("reading id %q: %w", text, err)
	}
	copy(into, id)
	return nil
}
