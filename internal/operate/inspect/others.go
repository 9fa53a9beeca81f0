package inspect

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"

	"correlator/internal/attach/process"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

const (
	switchingOn = "(docs/contexts.md#switching-it-on)"
	ofOBIAlone  = "those of no tracer are read yet " + switchingOn + ", but OBI's (docs/contexts.md#obi)"

	// goProgram stands for the name of any program in Go.
	goProgram = "/go"
)

// runtimes are those whose processes are told by the name of their program, or by what is in it (goProgram), and what
// makes these publish contexts.
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
	{"Node.js", regexp.MustCompile(`^node(js)?[0-9]*$`), ofOBIAlone},
	{".NET", regexp.MustCompile(`^dotnet$`), ofOBIAlone},
	{"Erlang", regexp.MustCompile(`^beam(\.smp)?$`), ofOBIAlone},
	{"Perl", regexp.MustCompile(`^perl[0-9.]*$`), ofOBIAlone},
	{"LuaJIT", regexp.MustCompile(`^luajit[0-9.-]*$`), ofOBIAlone},
	{"Go", regexp.MustCompile("^" + goProgram + "$"), "labels of goroutines, where it sets any, are read by " +
		`"record --pid" and "run --processes all" (docs/contexts.md#go)`},
}

// Others returns lines of what to do where no process takes part: what would make those of known runtimes publish
// contexts, and what can be done without. There are none where a process does, or may, as it could not be examined.
func Others(ctx context.Context, procRoot string, processes []Process) (lines []string, err error) {
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
	client, err := access.Open(procRoot, new(worker.Counters))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, scanTimeout) // for all together
	defer cancel()
	self, _ := os.Executable()
	programs := make(map[int]string)
	type program struct {
		place procscan.Place // another container has another file at the path
		path  string
	}
	ofGo := make(map[program]bool) // as one can be that of hundreds of processes
	_, err = scanner.Sweep(nil, func(found procscan.Found) {
		handle, err := procscan.OpenProcess(procRoot, found.ProcessID)
		if err != nil {
			return // it is gone
		}
		defer handle.Close()
		executable, err := handle.Executable()
		if err != nil || executable == self {
			return // a thread of the kernel, or ours
		}
		place, _ := handle.Place()
		runs := program{place, executable}
		if _, known := ofGo[runs]; !known {
			ofGo[runs] = within(ctx, false, func() bool { return isGo(client, procRoot, found) })
		}
		programs[found.PID] = path.Base(executable)
		if ofGo[runs] {
			programs[found.PID] = goProgram
		}
	})
	return describeOthers(programs), err
}

func isGo(client *access.Client, procRoot string, found procscan.Found) bool {
	t, err := process.Open(client, procRoot, found, process.Filter{All: true})
	if err != nil {
		return false
	}
	defer t.Close()
	if _ = t.Load(); t.IsUsable() { // what can be read is known then
		_, _ = t.Probe()
	}
	return t.IsGo()
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
