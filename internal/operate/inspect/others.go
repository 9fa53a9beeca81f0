package inspect

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"correlator/internal/attach/process"
	"correlator/procscan"
)

// runtimes are those whose processes are told by the name of their program, and what makes these publish contexts.
var runtimes = []struct {
	name     string
	programs *regexp.Regexp
	remedy   string
}{
	{"JVM", regexp.MustCompile(`^java$`), "Elastic's agent with its option, or Datadog's with its profiler " +
		"(docs/operations.md#which-agent-needs-which-option, docs/contexts.md#switching-it-on)"},
	{"Python", regexp.MustCompile(`^python[0-9.]*$`), "ddtrace 4.13 or later (docs/contexts.md#switching-it-on)"},
	{"PHP", regexp.MustCompile(`^php(-fpm|-cgi)?[0-9.]*$`), "Datadog's tracer with libdatadog's contexts " +
		"(docs/contexts.md#switching-it-on); spans of OpenCensus are received (docs/php.md)"},
	{"Ruby", regexp.MustCompile(`^ruby[0-9.]*$`), "dd-trace-rb, by its API (docs/contexts.md#switching-it-on)"},
	{"Node.js", regexp.MustCompile(`^node(js)?[0-9]*$`), "none that is read yet (docs/contexts.md#switching-it-on)"},
	{".NET", regexp.MustCompile(`^dotnet$`), "none that is read yet (docs/contexts.md#switching-it-on)"},
}

// Others returns lines of what to do where no process takes part: what would make those of known runtimes publish
// contexts, and what can be done without. There are none where a process does.
func Others(procRoot string, processes []Process) (lines []string, err error) {
	if slices.ContainsFunc(processes, func(p Process) bool { return len(p.Contexts) > 0 }) {
		return nil, nil
	}
	scanner, err := procscan.NewScanner(procRoot)
	if err != nil {
		return nil, err
	}
	scanner.All = true
	programs := make(map[int]string)
	_, err = scanner.Sweep(nil, func(found procscan.Found) {
		handle, err := procscan.OpenProcess(procRoot, found.ProcessID)
		if err != nil {
			return // it is gone
		}
		defer handle.Close()
		if executable, err := handle.Executable(); err == nil {
			programs[found.PID] = path.Base(executable)
		}
	})
	return describeOthers(programs), err
}

// describeOthers returns the lines about processes, by pid, whose programs have such names.
func describeOthers(programs map[int]string) []string {
	lines := []string{
		`no process publishes contexts: "correlator record --pid PID -o cpu.html" (or --all) shows CPU time without traces`,
	}
	for _, r := range runtimes {
		var pids []int
		for pid, program := range programs {
			if r.programs.MatchString(program) {
				pids = append(pids, pid)
			}
		}
		if len(pids) == 0 {
			continue
		}
		slices.Sort(pids)
		lines = append(lines, fmt.Sprintf("%s (%s): traced by %s", r.name, process.ListPIDs(pids), r.remedy))
	}
	return lines
}
