package inspect

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan/javaagent"
)

// Real JVMs with agents that have not loaded their library are found, with the reason that it has; one
// with another jar is not.
func TestScanSilent(t *testing.T) {
	testenv.NeedRoot(t)
	const on = "ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED=true"
	file := filepath.Join(t.TempDir(), "options")
	testenv.WriteFile(t, file, []byte("# options\n\"-Delastic.apm.universal_profiling_integration_enabled=true\"\n"))
	cases := []struct {
		jvm  demo.SilentJVM
		want string
	}{
		{demo.SilentJVM{Jar: "elastic-apm-agent-1.55.0.jar"}, "elastic-apm-agent 1.55.0 option_not_set"},
		{demo.SilentJVM{Jar: "elastic-apm-agent-1.49.0.jar", Loaded: true}, "elastic-apm-agent 1.49.0 agent_too_old"},
		{demo.SilentJVM{Jar: "elastic-apm-agent.jar", Environment: []string{on}, NoExec: true},
			"elastic-apm-agent noexec"},
		{demo.SilentJVM{Jar: "elastic-apm-agent-1.x.jar", Environment: []string{on},
			Flags: []string{"-Djava.io.tmpdir=/nonexistent"}}, "elastic-apm-agent no_temp_dir"},
		{demo.SilentJVM{Jar: "elastic-otel-javaagent-1.4.0.jar", Loaded: true,
			Environment: []string{"JAVA_TOOL_OPTIONS=-Dotel.service.name=a"}}, "elastic-otel-javaagent 1.4.0 starting"},
		{demo.SilentJVM{Jar: "elastic-otel-javaagent-1.4.0.jar", Environment: []string{
			"ELASTIC_OTEL_UNIVERSAL_PROFILING_INTEGRATION_ENABLED=false"}},
			"elastic-otel-javaagent 1.4.0 option_off no_service_name"},
		{demo.SilentJVM{Jar: "elastic-apm-agent-1.55.0.jar", NoExec: true, Flags: []string{"@" + file}},
			"elastic-apm-agent 1.55.0 noexec"},
		{demo.SilentJVM{Jar: "other-agent-1.0.0.jar"}, ""},
	}
	pids := make([]int, len(cases))
	for i, c := range cases {
		pids[i] = c.jvm.Start(t)
	}
	views, _, err := Scan(t.Context(), "/proc", process.Filter{})
	assert.NilError(t, err)
	for i, c := range cases {
		got := ""
		at := slices.IndexFunc(views, func(p Process) bool { return p.PID == pids[i] })
		if at >= 0 && views[at].State == process.StateSilent && views[at].Agent != nil {
			got = views[at].Agent.String()
			for _, reason := range views[at].Agent.Reasons {
				got += " " + string(reason)
			}
			assert.Check(t, views[at].Reason == string(views[at].Agent.Reasons[0]) && views[at].Unwinding == nil,
				"%+v", views[at])
		} else if at >= 0 {
			got = views[at].StateText()
		}
		assert.Check(t, got == c.want, "%+v: %q, want %q", c.jvm, got, c.want)
	}
	if _, err := Inspect(t.Context(), "/proc", pids[0]); err == nil ||
		!strings.Contains(err.Error(), "set ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED=true") {
		t.Errorf("inspecting it: %v", err)
	}
	if _, err := Inspect(t.Context(), "/proc", pids[len(pids)-1]); err == nil || strings.Contains(err.Error(), "native") {
		t.Errorf("inspecting one with another agent: %v", err)
	}
}

// A JVM that takes part is no silent one, and its runtime is examined.
func TestScanJVM(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.StartJVM(t, demo.JVMOptions{})
	views, _, err := Scan(t.Context(), "/proc", process.Filter{})
	assert.NilError(t, err)
	var states []process.State
	for _, v := range views {
		if v.PID == p.PID {
			states = append(states, v.State)
			examined := v.Unwinding
			assert.Check(t, examined != nil && len(examined.Runtimes) == 1 && len(examined.Remarks()) == 0 &&
				strings.HasPrefix(examined.Runtimes[0], "JVM "), "%+v", examined)
		}
	}
	assert.Check(t, slices.Equal(states, []process.State{process.StateReady}), "states %q", states)
}

func TestWriteSilent(t *testing.T) {
	agent := &javaagent.Agent{Kind: javaagent.Classic, Version: "1.55.0", Reasons: []javaagent.Reason{javaagent.NoExec}}
	var processes []Process
	for pid := range 10 {
		view := process.View{PID: pid, State: process.StateSilent, Reason: "noexec", Agent: agent}
		processes = append(processes, Process{View: view})
	}
	var table strings.Builder
	assert.NilError(t, WriteProcesses(&table, processes))
	lines := strings.Split(table.String(), "\n")
	if !strings.Contains(lines[1], "silent (noexec)") || !strings.Contains(lines[1], "(elastic-apm-agent 1.55.0)") {
		t.Errorf("%q", lines[1])
	}
	want := "0, 1, 2, 3, 4, 5, 6, 7 and 2 more: elastic-apm-agent 1.55.0 has not loaded its native library: its temporary " +
		"directory is mounted noexec: start it with -Djava.io.tmpdir= of another one"
	got := lines[12]
	assert.Check(t, got == want, "%q", got)
}
