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
const nodeName, pythonName = "Node.js", "Python"

// interpreterFiles are the files of such runtimes.
var interpreterFiles = map[string]*regexp.Regexp{
	nodeName:   regexp.MustCompile(`^(node|nsolid)[0-9]*$|^libnode\.so`),
	pythonName: regexp.MustCompile(`^python[0-9.]*$|^libpython[0-9.]+\.so`),
}

// unreadFiles are the files of runtimes whose functions are not read: frames are of the runtime itself.
var unreadFiles = map[string]*regexp.Regexp{
	"Perl":   regexp.MustCompile(`^perl[0-9.]*$|^libperl\.so`),
	"PHP":    regexp.MustCompile(`^php(-fpm|-cgi)?[0-9.]*$|^libphp[0-9.]*\.so`),
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
	add := func(processes []*record.Process, format string) {
		if len(processes) > 0 {
			hints = append(hints, fmt.Sprintf(format, listProcesses(processes)))
		}
	}
	var shallow, shallowInterpreters, unserved, unknown, nodes, mapless, outdated, old []*record.Process
	failed, unusable, writers := make(map[string][]*record.Process), make(map[string][]*record.Process),
		make(map[string][]*record.Process)
	for _, p := range s.recording.Processes {
		q, walks := s.processes[p], s.recording.Walks[p]
		isServed := exceeds(walks.Served, q.samples, mostPercent)
		_, compiles := compilers[q.unread]
		isShallow := q.walked >= shallowSamples && exceeds(q.short(p.Executable), q.walked, shallowPercent)
		switch failure := s.recording.Failures[p.PID]; {
		case s.recording.Refused[p.PID] != "": // which is a hint of its own
		case s.recording.Engine && !isServed && q.samples >= shallowSamples && failure != "":
			failed[failure] = append(failed[failure], p)
		case !isShallow:
		case isServed:
			if exceeds(walks.Served-walks.Unwound, q.samples, mostPercent) { // else stacks may be as short
				unknown = append(unknown, p)
			}
		case s.recording.Engine:
			unserved = append(unserved, p)
		case q.interpreter != "":
			shallowInterpreters = append(shallowInterpreters, p)
		default:
			shallow = append(shallow, p)
		}
		if s.names == nil || !exceeds(q.unnamed, q.samples, hintPercent) {
			continue
		}
		if q.interpreter != "" {
			if q.interpreter == nodeName && s.recording.Refused[p.PID] == "" && !s.recording.Engine {
				nodes = append(nodes, p)
			}
			continue
		}
		read, err := s.perfMap(p)
		switch {
		case !read: // it is late
		case err == nil:
			outdated = append(outdated, p)
		case errors.Is(err, fs.ErrNotExist) && compiles:
			if how := compilers[q.unread]; how != "" {
				how = q.unread + " writes one by " + how
				writers[how] = append(writers[how], p)
			}
		case errors.Is(err, fs.ErrNotExist):
			mapless = append(mapless, p)
		case errors.Is(err, symbols.ErrLines): // which need not be why
			outdated = append(outdated, p)
			unusable[err.Error()] = append(unusable[err.Error()], p)
		case errors.Is(err, symbols.ErrOld):
			old = append(old, p)
		default:
			unusable[err.Error()] = append(unusable[err.Error()], p)
		}
	}
	add(shallow,
		"most stacks of %s have one or two frames, as those of code that keeps no frame pointers: --unwinder auto "+
			"needs none where it can run (\"correlator check\", unwinder); else JVMs need -XX:+PreserveFramePointer, "+
			"and C -fno-omit-frame-pointer")
	add(shallowInterpreters,
		"most stacks of %s have one or two frames: functions of Python and Node.js are found with --unwinder auto "+
			"alone, where it can run (\"correlator check\", unwinder)")
	add(unknown, "most stacks of %s have one or two frames, as those of code that keeps no frame pointers: they were "+
		"walked by these, in code that the unwinding engine does not know")
	add(unserved, "most stacks of %s have one or two frames, as those of code that keeps no frame pointers: they were "+
		"walked by these, before they could be unwound or as they cannot be")
	for _, reason := range slices.Sorted(maps.Keys(failed)) {
		add(failed[reason], "most stacks of %s were walked by frame pointers, as they could not be unwound: "+
			strings.ReplaceAll(terminal.Escape(reason), "%", "%%"))
	}
	add(nodes,
		"compiled code of %s has no names: --unwinder auto has them where it can run (\"correlator check\", "+
			"unwinder); else start Node.js with --perf-basic-prof")
	unread := make(map[string][]*record.Process)
	for _, p := range s.recording.Processes {
		if p.UnreadSchema != "" {
			unread[p.UnreadSchema] = append(unread[p.UnreadSchema], p)
		}
	}
	for _, schema := range slices.Sorted(maps.Keys(unread)) {
		add(unread[schema], "samples of %s have no trace, as contexts of threads by the schema "+
			strings.ReplaceAll(terminal.Escape(schema), "%", "%%")+" are not read (docs/contexts.md)")
	}
	scripts := make(map[string][]*record.Process)
	for _, p := range s.recording.Processes {
		of := s.processes[p].unread
		_, compiles := compilers[of]
		read, err := s.perfMap(p)
		if of != "" && !(compiles && read && err == nil) { // else what it compiles is shown
			scripts[of] = append(scripts[of], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		add(scripts[name],
			"functions that %s runs by "+name+" are not shown, but those of "+name+" itself (docs/stacks.md)")
	}
	refused := make(map[string][]*record.Process)
	for _, p := range s.recording.Processes {
		if reason := s.recording.Refused[p.PID]; reason != "" {
			refused[reason] = append(refused[reason], p)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		add(refused[reason], "functions of %s have no names, as the unwinding engine cannot read its runtime: "+
			strings.ReplaceAll(terminal.Escape(reason), "%", "%%"))
	}
	add(mapless,
		"code in memory of %s has no names, as there is no perf map: runtimes write one if they are told to, Erlang "+
			"by \"erl +JPperf map\", .NET by DOTNET_PerfMapEnabled=1 in its environment, a JVM by \"jcmd PID "+
			"Compiler.perfmap\" before the recording ends (JDK 17 and later; in a container with its pid there)")
	for _, how := range slices.Sorted(maps.Keys(writers)) {
		add(writers[how], "code in memory of %s has no names, as there is no perf map: "+how)
	}
	add(outdated,
		"code in memory of %s is not all in its perf map: have it written near the end of the recording, by a JVM "+
			"with \"jcmd PID Compiler.perfmap\"")
	add(old,
		"code in memory of %s has no names, as its perf map is that of an older process with this pid, or the clock "+
			"was set forward since: have it written before the recording ends, by a JVM with \"jcmd PID "+
			"Compiler.perfmap\"")
	for _, reason := range slices.Sorted(maps.Keys(unusable)) {
		add(unusable[reason], "the perf map of %s was not used, or not all of it: "+
			strings.ReplaceAll(terminal.Escape(reason), "%", "%%"))
	}
	hints = append(hints, InlinedNotes(s.recording)...)
	if s.names != nil {
		unread = make(map[string][]*record.Process)
		for _, p := range s.recording.Processes {
			if err := s.names.unread[p]; err != nil {
				unread[err.Error()] = append(unread[err.Error()], p)
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(unread)) {
			add(unread[reason],
				"files of %s were not read, so code in them has no names: "+
					strings.ReplaceAll(terminal.Escape(reason), "%", "%%"))
		}
		add(s.names.late, "files of %s could not be read in time, so its code has no names")
	}
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
