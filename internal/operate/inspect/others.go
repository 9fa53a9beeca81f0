package inspect

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"correlator/internal/attach/process"
	"correlator/procscan"
)

const switchingOn = "(docs/contexts.md#switching-it-on)"

// runtimes are those whose processes are told by the name of their program, and what makes these publish contexts.
var runtimes = []struct {
	name     string
	programs *regexp.Regexp
	remedy   string
}{
	{"JVM", regexp.MustCompile(`^java$`), "published by Elastic's agent with its option " +
		"(docs/operations.md#which-agent-needs-which-option), and Datadog's with its profiler " + switchingOn},
	{"Python", regexp.MustCompile(`^python[0-9.]*$`), "published by ddtrace 4.13 or later " + switchingOn},
	{"PHP", regexp.MustCompile(`^php(-fpm|-cgi)?[0-9.]*$`), "published by Datadog's tracer with libdatadog's contexts " +
		switchingOn + "; spans of OpenCensus are received (docs/php.md)"},
	{"Ruby", regexp.MustCompile(`^ruby[0-9.]*$`), "published by dd-trace-rb, by its API " + switchingOn},
	{"Node.js", regexp.MustCompile(`^node(js)?[0-9]*$`), "those of no tracer are read " + switchingOn},
	{".NET", regexp.MustCompile(`^dotnet$`), "those of no tracer are read " + switchingOn},
}

// Others returns lines of what to do where no process takes part: what would make those of known runtimes publish
// contexts, and what can be done without. There are none where a process does, or may, as it could not be examined.
func Others(procRoot string, processes []Process) (lines []string, err error) {
	mayPublish := func(p Process) bool {
		return len(p.Contexts) > 0 || p.State != process.StateSilent && p.State != process.StateNoStorage
	}
	if slices.ContainsFunc(processes, mayPublish) {
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
		lines = append(lines, fmt.Sprintf("%s (%s): %s", r.name, process.ListPIDs(pids), r.remedy))
	}
	return lines
}
