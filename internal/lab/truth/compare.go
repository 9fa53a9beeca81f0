package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	pprof "github.com/google/pprof/profile"

	"correlator/profile"
)

// truth is what a subject says of itself, see doc.go.
type truth struct {
	Inclusive, Self map[string]float64
	Above, Callers  map[string][]string
	File            string
	Below           map[string]string
	Work, Clock     string
	Thread          int64 // 0: any
}

// stack is what of a recording has the same frames, from the root on.
type stack struct {
	frames  []frame
	thread  int64
	samples float64
}

// frame is a function, native or one of a language runtime.
type frame struct {
	function, file string
	ofRuntime      bool
}

// seen is what a recording has of a subject, in samples.
type seen struct {
	samples         float64
	inclusive, self map[string]float64
	cut             float64
	cutWith         map[string]float64 // by function, those that are cut
	elsewhere       float64            // without the function in which all others are: in other threads
	others          float64            // in other threads, where it is known which; not among samples
	wrong           map[string]float64 // by what is wrong
	example         map[string]string  // likewise, a stack
	// marked are samples that say that they do not know what was inlined, hidden those of them without a function
	// that may be it, and hiddenSelf those in which it may be the last.
	marked             float64
	markedWith         map[string]float64 // by function
	hidden, hiddenSelf map[string]float64
}

// comparison is a subject with both.
type comparison struct {
	name string
	truth
	seen
	notRun string // why, if it was not
}

// compare runs a subject, records it, and compares.
func compare(agent string, s *subject, unwinder string, duration time.Duration) (*comparison, error) {
	dir, err := os.MkdirTemp("", "subject")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	command, err := s.build(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("it has said %q: %w", line, err)
	}
	recorded := filepath.Join(dir, "recorded.pb.gz")
	err = run(exec.Command(agent, "record", "--pid", strconv.Itoa(cmd.Process.Pid), "-d", duration.String(),
		"-o", recorded, "--rate", "997", "--unwinder", unwinder))
	if err != nil {
		return nil, err
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	c := &comparison{name: s.name + ", " + unwinder}
	if err := json.NewDecoder(lines).Decode(&c.truth); err != nil {
		return nil, fmt.Errorf("its truth: %w", err)
	}
	stacks, err := readStacks(recorded)
	if err != nil {
		return nil, err
	}
	c.seen, err = look(&c.truth, stacks)
	return c, err
}

// runtimeMappings are those of frames that are not native.
var runtimeMappings = []string{"[jvm]", "[cpython]", "[v8js]", "[php]"}

func readStacks(path string) (stacks []stack, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	recorded, err := pprof.Parse(file)
	if err != nil {
		return nil, err
	}
	for _, sample := range recorded.Sample {
		s := stack{samples: float64(sample.Value[0]), thread: sample.NumLabel["tid"][0]}
		for _, location := range slices.Backward(sample.Location) {
			f := frame{function: location.Mapping.File,
				ofRuntime: slices.Contains(runtimeMappings, location.Mapping.File)}
			if len(location.Line) > 0 {
				f.function = location.Line[0].Function.Name
				f.file = filepath.Base(location.Line[0].Function.Filename)
			}
			if location.Mapping.File == "[jvm]" { // also of its own code, whose names have no dot
				f.ofRuntime = strings.Contains(f.function, ".") || f.function == profile.InlinedName
			}
			s.frames = append(s.frames, f)
		}
		stacks = append(stacks, s)
	}
	return stacks, nil
}

// look compares stacks with what is known of them.
func look(t *truth, stacks []stack) (s seen, err error) {
	s = seen{
		inclusive: make(map[string]float64), self: make(map[string]float64), wrong: make(map[string]float64),
		example: make(map[string]string),
		cutWith: make(map[string]float64), hidden: make(map[string]float64), hiddenSelf: make(map[string]float64),
		markedWith: make(map[string]float64),
	}
	below := make(map[string]*regexp.Regexp)
	for function, expression := range t.Below {
		if below[function], err = regexp.Compile("^(?:" + expression + ")$"); err != nil {
			return s, err
		}
	}
	for _, of := range stacks {
		if t.Thread != 0 && of.thread != t.Thread {
			s.others += of.samples
		} else if frames := t.compared(of.frames); len(frames) > 0 {
			s.add(t, below, frames, of.samples)
		} else {
			s.samples += of.samples
			s.elsewhere += of.samples
		}
	}
	return s, nil
}

// compared returns the frames that are compared.
func (t *truth) compared(frames []frame) (compared []frame) {
	for _, f := range frames {
		_, isKnown := t.Self[f.function]
		if t.File == "" || f.file == t.File || f.function == profile.CutName || isKnown && !f.ofRuntime {
			compared = append(compared, f)
		}
	}
	return compared
}

// wrongCall returns a call that the program does not make, "" if there is none. What calls the first function of a
// stack that is cut is not known.
func (t *truth) wrongCall(frames []frame) string {
	caller := ""
	for _, f := range frames {
		isCalled := caller == profile.CutName || f.function == profile.CutName
		if t.Callers != nil && !isCalled && !slices.Contains(t.Callers[f.function], caller) {
			return fmt.Sprintf("%s called by %q", f.function, caller)
		}
		caller = f.function
	}
	return ""
}

// add adds samples of a stack, of which each function counts once.
func (s *seen) add(t *truth, below map[string]*regexp.Regexp, frames []frame, n float64) {
	s.samples += n
	leaf := frames[len(frames)-1].function
	s.self[leaf] += n
	has := make(map[string]bool)
	for _, f := range frames {
		if !has[f.function] {
			s.inclusive[f.function] += n
		}
		has[f.function] = true
	}
	hasAny := func(functions []string) bool {
		return slices.ContainsFunc(functions, func(f string) bool { return has[f] })
	}
	if what := t.wrongCall(frames); what != "" {
		s.addWrong(what, frames, n)
		return
	}
	if has[profile.CutName] {
		s.cut += n
		for f := range has {
			s.cutWith[f] += n
		}
		return
	}
	if has[profile.InlinedName] {
		s.marked += n
		for f := range has {
			s.markedWith[f] += n
		}
		for function, above := range t.Above {
			if hasAny(above) && !has[function] {
				s.hidden[function] += n
			}
			if hasAny(above) && leaf == profile.InlinedName {
				s.hiddenSelf[function] += n
			}
		}
	}
	for function, above := range t.Above {
		if has[function] && !hasAny(above) {
			s.addWrong(fmt.Sprintf("none of %v above %s", above, function), frames, n)
			return
		}
	}
	for i, f := range frames {
		for _, called := range frames[i+1:] {
			if of := below[f.function]; of != nil && called.ofRuntime && called.function != profile.InlinedName &&
				!of.MatchString(called.function) {
				s.addWrong(called.function+" below "+f.function, frames, n)
				return
			}
		}
	}
	isKnown := func(f frame) bool { _, known := t.Inclusive[f.function]; return known }
	switch {
	case !has[t.Work] && t.Callers == nil:
		s.elsewhere += n
	case slices.ContainsFunc(frames, isKnown), leaf == t.Work, has[t.Clock], t.Callers != nil:
	case lastOfRuntime(frames) == t.Work: // in the runtime's own code, or in inlined code that is not known
	default:
		s.addWrong("no function of known share above "+leaf, frames, n)
	}
}

// addWrong adds samples of a stack that is wrong.
func (s *seen) addWrong(what string, frames []frame, n float64) {
	s.wrong[what] += n
	var names []string
	for _, f := range frames {
		names = append(names, f.function)
	}
	s.example[what] = strings.Join(names, " < ")
}

// lastOfRuntime returns the last function that is known to be one of a language runtime, if any.
func lastOfRuntime(frames []frame) (function string) {
	for _, f := range frames {
		if f.ofRuntime && f.function != profile.InlinedName {
			function = f.function
		}
	}
	return function
}

// worst returns the largest difference of a share, in points, and of which function. Where stacks say that they do not
// know it, a share is between that of those that have the function and that with those that may have it.
func (c *comparison) worst() (points float64, function string) {
	for _, of := range []struct{ truth, seen, hidden map[string]float64 }{
		{c.Inclusive, c.inclusive, c.hidden}, {c.Self, c.self, c.hiddenSelf},
	} {
		for f, share := range of.truth {
			least, most := of.seen[f]/c.samples, (of.seen[f]+of.hidden[f])/c.samples
			if d := 100 * max(least-share, share-most); d > points {
				points, function = d, f
			}
		}
	}
	return points, function
}

func (c *comparison) allWrong() (share float64) {
	for _, n := range c.wrong {
		share += n / c.samples
	}
	return share
}

func (c *comparison) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n%.0f samples, %.1f %% cut, %.1f %% with inlined code that is not known\n\n", c.name,
		c.samples, 100*c.cut/c.samples, 100*c.marked/c.samples)
	fmt.Fprintf(w, "| function | self | shown | with what it calls | shown | unknown |\n|---|---|---|---|---|---|\n")
	functions := slices.Sorted(maps.Keys(c.Inclusive))
	for _, f := range slices.Concat(slices.Sorted(maps.Keys(c.Self)), slices.Sorted(maps.Keys(c.Above))) {
		if !slices.Contains(functions, f) {
			functions = append(functions, f)
		}
	}
	share := func(of map[string]float64, f string) string {
		if n, known := of[f]; known {
			return fmt.Sprintf("%.1f", 100*n)
		}
		return ""
	}
	for _, f := range functions {
		fmt.Fprintf(w, "| %s | %s | %.1f | %s | %.1f | %.1f |\n", f, share(c.Self, f), 100*c.self[f]/c.samples,
			share(c.Inclusive, f), 100*c.inclusive[f]/c.samples, 100*c.markedWith[f]/c.samples)
	}
	for _, what := range slices.Sorted(maps.Keys(c.wrong)) {
		fmt.Fprintf(w, "\nwrong: %s in %.2f %%: %s\n", what, 100*c.wrong[what]/c.samples, c.example[what])
	}
}

func summarize(w io.Writer, all []*comparison) {
	fmt.Fprintf(w, "\n| | samples | largest difference, points | of | wrong, %% | unknown, %% | cut, %% |"+
		" elsewhere, %% |\n")
	fmt.Fprintf(w, "|---|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		if c.notRun != "" {
			fmt.Fprintf(w, "| %s | not run: %s | | | | | | |\n", c.name, c.notRun)
			continue
		}
		points, function := c.worst()
		fmt.Fprintf(w, "| %s | %.0f | %.1f | %s | %.2f | %.2f | %.2f | %.2f |\n", c.name, c.samples, points, function,
			100*c.allWrong(), 100*c.marked/c.samples, 100*c.cut/c.samples,
			100*(c.elsewhere+c.others)/(c.samples+c.others))
	}
}
