package report

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"

	"correlator/internal/host/terminal"
	"correlator/internal/out/flamegraph"
	"correlator/internal/out/record"
	"correlator/profile"
)

// About is what a page says beside the flame graph.
type About struct {
	Title string
	Notes []string
	// Timeline makes what is shown above the flame graph; nil: nothing is.
	Timeline func(Shown) *flamegraph.Timeline
}

// Shown returns in which group of the page samples are, or waits, and what their stack is shown as, the outermost frame
// first.
type Shown func(of *record.WaitKey, isWait bool) (group int, frames []string)

// writeHTML writes a flame graph, from which single transactions can be chosen.
func writeHTML(w io.Writer, r *record.Recording, names *symbolNames, about About) error {
	return flamegraph.Write(w, page(r, names, about))
}

// TimelineData returns the timeline of a recording's page as it reads it. Names are those that frames have.
func TimelineData(r *record.Recording, timeline func(Shown) *flamegraph.Timeline) ([]byte, error) {
	return flamegraph.TimelineData(page(r, nil, About{Timeline: timeline}))
}

func page(r *record.Recording, names *symbolNames, about About) *flamegraph.Profile {
	p := &flamegraph.Profile{Title: terminal.Escape(about.Title), Period: r.Period()}
	for _, note := range about.Notes {
		p.Notes = append(p.Notes, terminal.Escape(note))
	}
	p.Notes = append(p.Notes, InlinedNotes(r)...)
	s := summarize(r, names)
	groups := make(map[transaction]int)
	for i, tx := range s.topTransactions() {
		groups[tx] = i
		p.Groups = append(p.Groups, tx.group())
	}
	frames := framesOf(r, names, len(s.services) > 1)
	shown := func(of *record.WaitKey, isWait bool) (int, []string) {
		group := -1
		if of.HasTrace() {
			group = groups[transaction{of.TraceID, of.TransactionID, serviceOf(of.Process)}]
		}
		return group, frames(of, isWait)
	}
	addStacks(p, r, shown)
	if about.Timeline != nil {
		p.Timeline = about.Timeline(shown)
	}
	return p
}

// framesOf returns what stacks of a recording are shown as, below their service if there are several.
func framesOf(r *record.Recording, names *symbolNames, several bool) func(of *record.WaitKey, isWait bool) []string {
	known := make(map[processStack][]string)
	return func(of *record.WaitKey, isWait bool) []string {
		stack := processStack{of.Process, of.Stack}
		frames, isKnown := known[stack]
		if !isKnown {
			frames = names.frameTexts(of.Process, r.Stacks[of.Stack])
			if several {
				frames = slices.Insert(frames, 0, serviceText(of.Process))
			}
			known[stack] = frames
		}
		if isWait {
			frames = append(slices.Clone(frames), waitText(of, r.Stacks[of.Stack]))
		}
		return frames
	}
}

func addStacks(p *flamegraph.Profile, r *record.Recording, shown Shown) {
	for _, key := range sortedKeys(r) {
		group, frames := shown(&record.WaitKey{Key: key}, false)
		p.Stacks = append(p.Stacks, flamegraph.Stack{Group: group, Frames: frames, Count: r.Samples[key]})
	}
	for _, key := range sortedWaits(r) {
		group, frames := shown(&key, true)
		p.Stacks = append(p.Stacks, flamegraph.Stack{Group: group, Frames: frames, Wait: r.Waits[key].Sum})
	}
}

// Side is one of two recordings that are compared.
type Side struct {
	*record.Recording
	flamegraph.Group
	Of int // its times are divided by it
}

// EncodeDifference returns a differential flame graph of two recordings with the same period. Names are those that
// frames have.
func EncodeDifference(a, b Side, about About) ([]byte, error) {
	p := &flamegraph.Profile{Title: terminal.Escape(about.Title), Period: a.Period(), Difference: []int{a.Of, b.Of}}
	for _, note := range about.Notes {
		p.Notes = append(p.Notes, terminal.Escape(note))
	}
	services := make(map[service]bool)
	for _, process := range slices.Concat(a.Processes, b.Processes) {
		services[serviceOf(process)] = true
	}
	for group, side := range []Side{a, b} {
		side.Detail = terminal.Escape(side.Detail)
		p.Groups = append(p.Groups, side.Group)
		frames := framesOf(side.Recording, nil, len(services) > 1)
		addStacks(p, side.Recording, func(of *record.WaitKey, isWait bool) (int, []string) {
			return group, frames(of, isWait)
		})
	}
	var content bytes.Buffer
	err := flamegraph.Write(&content, p)
	return content.Bytes(), err
}

func (tx *transaction) group() flamegraph.Group {
	trace, id, service := hex.EncodeToString(tx.traceID[:]), tx.idText(), terminal.Escape(tx.service.name)
	if service == "" {
		service = "a process"
	}
	name := service + " trace " + trace[:8] + "…"
	if id != "" {
		name = service + " " + id
		id = "transaction " + id + " of "
	}
	return flamegraph.Group{Name: name, Detail: fmt.Sprintf("%s: %strace %s", service, id, trace)}
}

// serviceText returns the name of a process in a profile of several.
func serviceText(p *record.Process) string {
	if p.Service == "" {
		return "process " + strconv.Itoa(p.PID)
	}
	return terminal.Escape(p.Service)
}

// frameTexts returns what the frames of a process are shown as, the outermost first.
func (s *symbolNames) frameTexts(p *record.Process, frames []profile.Frame) []string {
	texts := make([]string, 0, len(frames)+1)
	for _, f := range slices.Backward(frames) {
		texts = append(texts, terminal.Escape(s.frameText(p, f)))
	}
	return texts
}

// scriptFrames are the kinds of frames of functions of scripts.
var scriptFrames = []profile.Kind{profile.PythonFrame, profile.V8Frame, profile.PHPFrame}

// frameText returns what a frame is shown as. Names of functions of scripts say little without the file.
func (s *symbolNames) frameText(p *record.Process, f profile.Frame) string {
	name, file := s.display(p, f), path.Base(f.SourceFile())
	switch {
	case name != "" && f.SourceFile() != "" && slices.Contains(scriptFrames, f.Kind()):
		return name + " (" + file + ")"
	case name != "":
		return name
	case f.File != nil:
		return fmt.Sprintf("%s+%#x", path.Base(s.path(p, f)), f.Address)
	}
	return unnamed(f, s.compiled(p, f))
}
