package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/names/symbols"
	"correlator/internal/out/record"
	"correlator/profile"
)

// Shares, in percent of the samples concerned, from which a hint is shown.
const (
	hintPercent    = 5
	shallowPercent = 50 // short stacks alone are not unusual
	mostPercent    = 50
	shallowSamples = 20 // of a process: with fewer, short stacks may be chance

	// maxListed is how many processes or files one line lists.
	maxListed = 5
)

// threadStarts are functions in which threads begin, or that only run before main: a short stack that
// ends in one is whole. In C libraries, code above them keeps no frame pointers.
var threadStarts = []string{
	"main", "_start", "start_thread", "clone", "clone3", "__clone", "__clone3", "__libc_start_main",
	"__libc_start_call_main", "runtime.goexit", "runtime.goexit.abi0",
}

// Runtimes whose functions are not found by frame pointers, and have no names in a perf map that jcmd writes.
const nodeName, pythonName, phpName = "Node.js", "Python", "PHP"

// interpreterFiles are the files of such runtimes.
var interpreterFiles = map[string]*regexp.Regexp{
	nodeName:   regexp.MustCompile(`^(node|nsolid)[0-9]*$|^libnode\.so`),
	pythonName: regexp.MustCompile(`^python[0-9.]*$|^libpython[0-9.]+\.so`),
	phpName:    regexp.MustCompile(`^php(-fpm|-cgi)?[0-9.]*$|^libphp[0-9.]*\.so`),
}

// unreadFiles are the files of runtimes whose functions are not read: frames are of the runtime itself.
var unreadFiles = map[string]*regexp.Regexp{
	"Perl":   regexp.MustCompile(`^perl[0-9.]*$|^libperl\.so`),
	"Ruby":   regexp.MustCompile(`^ruby[0-9.]*$|^libruby[0-9.-]*\.so`),
	".NET":   regexp.MustCompile(`^libcoreclr\.so`),
	"Erlang": regexp.MustCompile(`^beam(\.smp)?$`),
	"LuaJIT": regexp.MustCompile(`^luajit[0-9.-]*$|^libluajit[0-9.-]*\.so`),
	"SBCL":   regexp.MustCompile(`^sbcl$`),
	"Valgrind": regexp.MustCompile(
		`^(memcheck|cachegrind|callgrind|helgrind|drd|massif|dhat|lackey|none|exp-bbv)-\w+-linux$`),
}

// compilers are those of unreadFiles that write the code they run to memory. The unwinding engine does not know that
// code, which may keep no frame pointers. The texts are what has them write a perf map; empty: nothing.
var compilers = map[string]string{
	".NET":   "DOTNET_PerfMapEnabled=1 in its environment",
	"Erlang": `"erl +JPperf map"`,
	"LuaJIT": "", "SBCL": "", "Valgrind": "",
}

// runtimeOf returns the runtimes of interpreterFiles and of unreadFiles that a frame is of, "" if it is of none.
func (s *summary) runtimeOf(p *record.Process, f profile.Frame) (interpreter, unread string) {
	switch f.Kind() {
	case profile.V8Frame:
		return nodeName, ""
	case profile.PythonFrame:
		return pythonName, ""
	case profile.PHPFrame:
		return phpName, ""
	case profile.NativeFrame:
		file := path.Base(s.names.path(p, f))
		known, ok := s.runtimes[file]
		if !ok {
			known = [2]string{matching(interpreterFiles, file), matching(unreadFiles, file)}
			s.runtimes[file] = known
		}
		return known[0], known[1]
	}
	return "", ""
}

// matching returns the name of the expression that matches, "" if none does.
func matching(expressions map[string]*regexp.Regexp, text string) string {
	for name, expression := range expressions {
		if expression.MatchString(text) {
			return name
		}
	}
	return ""
}

// losses returns lines that say what is missing from the recording, and why.
func (s *summary) losses() (lines []string) {
	r := s.recording
	var reasons []string
	total := uint64(0)
	for _, reason := range slices.Sorted(maps.Keys(r.Lost)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, r.Lost[reason]))
		total += r.Lost[reason]
	}
	if total > 0 {
		lines = append(lines, fmt.Sprintf("lost: %s (%s)", terminal.Count(total, "sample", "samples"),
			strings.Join(reasons, ", ")))
	}
	if r.LostWaits > 0 {
		lines = append(lines, fmt.Sprintf("lost: %s: their process had no room for more",
			terminal.Count(r.LostWaits, "wait", "waits")))
	}
	if r.Missed > 0 {
		lines = append(lines, fmt.Sprintf("missed: %s of the sampling clock, on all CPUs together",
			terminal.Count(r.Missed, "tick", "ticks")))
	}
	if r.LabelsRefused > 0 {
		lines = append(lines, fmt.Sprintf("without context: %s of goroutines whose labels are no ids, too many, or "+
			"could not be read (docs/contexts.md)", terminal.Count(r.LabelsRefused, "sample", "samples")))
	}
	if cut := r.AttributesCut + r.UnknownKeys; cut > 0 {
		lines = append(lines, fmt.Sprintf("without attributes: %s with more than is read, or without a key",
			terminal.Count(cut, "sample", "samples")))
	}
	if r.Unreadable > 0 {
		lines = append(lines, fmt.Sprintf("not looked into: %s that may not be read (\"correlator check\", "+
			"process-memory)", terminal.Count(r.Unreadable, "process", "processes")))
	}
	for i, failure := range r.Failed {
		if i == maxListed {
			lines = append(lines, fmt.Sprintf("not recorded: %d more", len(r.Failed)-i))
			break
		}
		what := "not recorded"
		if !failure.Since.IsZero() {
			what += " in full since " + failure.Since.Local().Format(time.TimeOnly)
		}
		if failure.PID != 0 {
			what += fmt.Sprintf(": process %d", failure.PID)
		}
		lines = append(lines, what+": "+terminal.Escape(failure.Err.Error()))
	}
	return lines
}

// hints returns what limits the profile, and the remedies.
func (s *summary) hints() (hints []string) {
	for _, hintOf := range []func(*record.Process) string{
		s.stacksHint, s.schemaHint, s.scriptsHint, s.runtimeHint, s.codeHint, s.filesHint,
	} {
		processes := make(map[string][]*record.Process)
		for _, p := range s.recording.Processes {
			if hint := hintOf(p); hint != "" {
				processes[hint] = append(processes[hint], p)
			}
		}
		for _, hint := range slices.Sorted(maps.Keys(processes)) {
			// The first: the text of an error may have others.
			hints = append(hints, strings.Replace(hint, "%s", listProcesses(processes[hint]), 1))
		}
	}
	hints = append(hints, InlinedNotes(s.recording)...)
	if files := s.unnamedFiles(); len(files) > 0 {
		hints = append(hints, "no symbols for "+strings.Join(files, ", ")+
			": install its debug symbols here, or run pprof where they are (for other code than Go's that of "+
			"github.com/google/pprof)")
	}
	if kernel := s.frames[profile.KernelFrame]; kernel != nil && kernel.named == 0 {
		hints = append(hints, "kernel frames have no names: /proc/kallsyms shows no addresses")
	}
	r := s.recording
	if r.Waits != nil && r.Accounts == nil && len(r.Waits) == 0 && r.LostWaits == 0 && s.withTrace == 0 {
		hints = append(hints, "no sample had a trace, and waits are of those that have one: "+
			`"correlator explain --pid N" tells what threads of any process wait for`)
	}
	if exceeds(s.recording.Missed, s.ticks(), hintPercent) {
		hints = append(hints,
			"the sampling clock missed much: CPUs were too busy, or stopped by their hypervisor; a lower rate may "+
				"miss less")
	}
	return hints
}

// stacksHint is why stacks of a process are short, or were not unwound.
func (s *summary) stacksHint(p *record.Process) string {
	const pointers = "most stacks of %s have one or two frames, as those of code that keeps no frame pointers: "
	q, walks, failure := s.processes[p], s.recording.Walks[p], s.recording.Failures[p]
	isServed := exceeds(walks.Served, q.samples, mostPercent)
	switch {
	case s.recording.Refused[p] != "": // see runtimeHint
		return ""
	case s.recording.Engine && !isServed && q.samples >= shallowSamples && failure != "":
		return "most stacks of %s were walked by frame pointers, as they could not be unwound: " +
			terminal.Escape(failure)
	case q.walked < shallowSamples || !exceeds(q.short(p.Executable), q.walked, shallowPercent),
		isServed && !exceeds(walks.Served-walks.Unwound, q.samples, mostPercent): // what is unwound may be as short
		return ""
	case isServed:
		return pointers + "they were walked by these, in code that the unwinding engine does not know"
	case s.recording.Engine:
		return pointers + "they were walked by these, before they could be unwound or as they cannot be"
	case q.interpreter != "":
		return "most stacks of %s have one or two frames: functions of Python, Node.js and PHP are found with " +
			"--unwinder auto alone, where it can run (\"correlator check\", unwinder)"
	}
	return pointers + "--unwinder auto needs none where it can run (\"correlator check\", unwinder); else JVMs need " +
		"-XX:+PreserveFramePointer, and C -fno-omit-frame-pointer"
}

// schemaHint is why samples of a process have no trace.
func (s *summary) schemaHint(p *record.Process) string {
	if p.UnreadSchema == "" {
		return ""
	}
	return "samples of %s have no trace, as contexts of threads by the schema " + terminal.Escape(p.UnreadSchema) +
		" are not read (docs/contexts.md)"
}

// scriptsHint is which functions that a runtime of unreadFiles runs are not shown.
func (s *summary) scriptsHint(p *record.Process) string {
	of := s.processes[p].unread
	_, compiles := compilers[of]
	read, err := s.perfMap(p)
	switch shown := read && err == nil; {
	case of == "", shown && compiles:
		return ""
	case shown: // it may have a compiler, too
		return "functions that %s runs by " + of + " are shown only where they are in its perf map, else those of " +
			of + " itself (docs/stacks.md)"
	}
	return "functions that %s runs by " + of + " are not shown, but those of " + of + " itself (docs/stacks.md)"
}

// runtimeHint is why functions of a runtime have no names that the engine unwinds as native code.
func (s *summary) runtimeHint(p *record.Process) string {
	if s.recording.Refused[p] == "" {
		return ""
	}
	return "functions of %s have no names, as the unwinding engine cannot read its runtime: " +
		terminal.Escape(s.recording.Refused[p])
}

// codeHint is why code in memory of a process has no names, and what gives it some.
func (s *summary) codeHint(p *record.Process) string {
	q := s.processes[p]
	if s.names == nil || !exceeds(q.unnamed, q.samples, hintPercent) {
		return ""
	}
	if q.interpreter == nodeName && s.recording.Refused[p] == "" && !s.recording.Engine {
		return "compiled code of %s has no names: --unwinder auto has them where it can run (\"correlator check\", " +
			"unwinder); else start Node.js with --perf-basic-prof"
	}
	read, err := s.perfMap(p)
	how, compiles := compilers[q.unread]
	switch {
	case !read, q.interpreter != "": // it is late, or of no use
		return ""
	case errors.Is(err, fs.ErrNotExist) && how != "":
		return "code in memory of %s has no names, as there is no perf map: " + q.unread + " writes one by " + how
	case errors.Is(err, fs.ErrNotExist) && compiles:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "code in memory of %s has no names, as there is no perf map: runtimes write one if they are told to, " +
			"Erlang by \"erl +JPperf map\", .NET by DOTNET_PerfMapEnabled=1 in its environment, a JVM by \"jcmd " +
			"PID Compiler.perfmap\" before the recording ends (JDK 17 and later; in a container with its pid there)"
	case errors.Is(err, symbols.ErrOld):
		return "code in memory of %s has no names, as its perf map is that of an older process with this pid, or the " +
			"clock was set forward since: have it written before the recording ends, by a JVM with \"jcmd PID " +
			"Compiler.perfmap\""
	case err != nil && !errors.Is(err, symbols.ErrLines):
		return "the perf map of %s was not used, or not all of it: " + terminal.Escape(err.Error())
	}
	hint := "code in memory of %s is not all in its perf map: have it written near the end of the recording, by a " +
		"JVM with \"jcmd PID Compiler.perfmap\""
	if err != nil { // which need not be why
		hint += ". Not all of it was used: " + terminal.Escape(err.Error())
	}
	return hint
}

// filesHint is why code in files of a process has no names.
func (s *summary) filesHint(p *record.Process) string {
	switch {
	case s.names == nil:
		return ""
	case s.names.unread[p] != nil:
		return "files of %s were not read, so code in them has no names: " + terminal.Escape(s.names.unread[p].Error())
	case slices.Contains(s.names.late, p):
		return "files of %s could not be read in time, so its code has no names"
	}
	return ""
}

// short returns of how many samples of a program the stacks are short, where the code that it compiles is no reason.
func (q *quality) short(executable string) uint64 {
	if _, compiles := compilers[q.unread]; !compiles {
		return q.shallow
	}
	if matching(unreadFiles, path.Base(executable)) != "" {
		return 0 // they are, whoever walks them
	}
	return q.shallow - q.compiled // of a library; other stacks are as those of any program
}

// perfMap returns how the perf map of a process with code in memory was read, if that was tried.
func (s *summary) perfMap(p *record.Process) (tried bool, err error) {
	if s.names != nil {
		err, tried = s.names.perfMaps[p]
	}
	return tried, err
}

// InlinedNotes returns a line for each service in which it is often not known which inlined Java method runs, the
// share of its CPU time first.
func InlinedNotes(r *record.Recording) (lines []string) {
	all, unknown := make(map[string]uint64), make(map[string]uint64)
	for key, samples := range r.Samples {
		service := cmp.Or(key.Process.Service, "process")
		all[service] += samples
		if slices.ContainsFunc(r.Stacks[key.Stack], profile.Frame.IsInlined) {
			unknown[service] += samples
		}
	}
	services := slices.SortedFunc(maps.Keys(unknown), func(x, y string) int {
		return cmp.Or(cmp.Compare(unknown[y], unknown[x]), cmp.Compare(x, y))
	})
	for _, service := range services[:min(len(services), maxListed)] {
		if exceeds(unknown[service], all[service], hintPercent) {
			lines = append(lines, fmt.Sprintf("%s of the CPU time of %s is in inlined Java methods that are not known "+
				"(%s): -XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints at its start show more, unless they are "+
				"set (of use from JDK 11.0.21, 17.0.9 and 21 on, not in 23 and 24)",
				percent(unknown[service], all[service]), terminal.Escape(service), profile.InlinedName))
		}
	}
	return lines
}

// unnamedFiles returns the files with most samples without a name.
func (s *summary) unnamedFiles() (texts []string) {
	files := slices.SortedFunc(maps.Keys(s.files), func(x, y string) int {
		return cmp.Or(cmp.Compare(s.files[y], s.files[x]), cmp.Compare(x, y))
	})
	for _, file := range files[:min(len(files), maxListed)] {
		if exceeds(s.files[file], s.samples, hintPercent) {
			texts = append(texts, terminal.Escape(file))
		}
	}
	return texts
}

// ticks returns how often the sampling clocks of all CPUs have ticked.
func (s *summary) ticks() uint64 {
	return s.cpus * uint64(s.recording.SamplesPerSecond) * uint64(s.recording.Duration.Milliseconds()) / 1000
}

func exceeds(part, all, percent uint64) bool { return part > 0 && 100*part >= percent*all }

// listProcesses lists processes by service and pid.
func listProcesses(processes []*record.Process) string {
	var texts []string
	for i, p := range processes {
		if i == maxListed {
			texts = append(texts, fmt.Sprintf("%d more", len(processes)-i))
			break
		}
		texts = append(texts, fmt.Sprintf("%s (%d)", cmp.Or(terminal.Escape(p.Service), "process"), p.PID))
	}
	return strings.Join(texts, ", ")
}
