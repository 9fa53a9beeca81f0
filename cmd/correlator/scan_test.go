package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/inspect"
)

// Who lacks a right that reading a process takes gets exit code 1, the name of the right, what to do
// about it, and on stdout what could be read.
func TestScanWithoutRights(t *testing.T) {
	needSampler(t)
	setpriv := testenv.NeedTool(t, "setpriv")
	root := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	another := demo.Placement{UID: 4711, GID: 4711}
	user := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: another})
	user.UnlinkLibrary()
	for _, c := range []struct {
		name         string
		by           []string
		lacks        string // regular expression for stderr
		root, listed bool   // whether root's process is read; the user's is listed
	}{
		{"another user", []string{setpriv, "--reuid", "1000", "--regid", "1000", "--clear-groups"},
			`missing CAP_SYS_PTRACE, .*CAP_SETGID: run as root`, false, false},
		{"no sys_ptrace", rootWith(setpriv, without("sys_ptrace")), `missing CAP_SYS_PTRACE: grant the process`, false, true},
		{"no dac_read_search", rootWith(setpriv, without("dac_read_search")),
			`missing CAP_DAC_READ_SEARCH: grant the process`, true, true},
		{"no checkpoint_restore", rootWith(setpriv, without("checkpoint_restore")),
			`missing CAP_CHECKPOINT_RESTORE: grant the process`, true, true},
		{"no setuid", rootWith(setpriv, without("setuid")), `missing CAP_SETUID: grant the process`, true, true},
		{"no setgid", rootWith(setpriv, without("setgid")), `missing CAP_SETGID: grant the process`, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := regexp.MustCompile(`(?m)^correlator: .*` + c.lacks)
			out := deniedTo(t, c.by, said, "scan", "-o", "json")
			var processes []process.View
			if len(out) > 0 {
				assert.NilError(t, json.Unmarshal(out, &processes))
			}
			state := func(pid int) process.State {
				i := slices.IndexFunc(processes, func(v process.View) bool { return v.PID == pid })
				if i < 0 {
					return ""
				}
				return processes[i].State
			}
			got := state(root.PID)
			assert.Check(t, (got == process.StateReady) == c.root, "root's process is %q", got)
			if got := state(user.PID); got == process.StateReady || c.listed != (got == process.StateError) {
				t.Errorf("the user's process is %q", got)
			}

			out = deniedTo(t, c.by, said, "inspect", "-o", "json", strconv.Itoa(user.PID))
			var inspection inspect.Inspection
			if len(out) > 0 {
				assert.NilError(t, json.Unmarshal(out, &inspection))
			}
			if c.listed != (inspection.State == process.StateError) || len(out) > 0 && inspection.PID != user.PID {
				t.Errorf("inspect shows %+v", inspection)
			}
		})
	}
}

// Walking the threads of a process takes rights of its own, which scan does without.
func TestInspectWithoutRights(t *testing.T) {
	needSampler(t)
	setpriv := testenv.NeedTool(t, "setpriv")
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	for _, capability := range []string{"bpf", "perfmon"} {
		by, name := rootWith(setpriv, without(capability)), "CAP_"+strings.ToUpper(capability)
		deniedTo(t, by, regexp.MustCompile(`(?m)^correlator: .*missing `+name+`: grant the process `+name+`$`),
			"inspect", strconv.Itoa(p.PID))
		argv := slices.Concat(by, []string{installed(t), "scan"})
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		assert.Check(t, err, "scan without %s: %v, %s", name, err, out)
	}
}

// deniedTo runs a command that must exit with 1 and say something, and returns its output. It runs the
// command again where a probe took too long, which on a busy machine comes before what is not permitted.
func deniedTo(t *testing.T, by []string, said *regexp.Regexp, args ...string) (out []byte) {
	t.Helper()
	argv := slices.Concat(by, []string{installed(t)}, args)
	for range 20 {
		cmd := exec.Command(argv[0], argv[1:]...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		var err error
		out, err = cmd.Output()
		if err == nil && bytes.Contains(out, []byte("timeout")) {
			continue
		}
		var exit *exec.ExitError
		assert.Check(t, errors.As(err, &exit) && exit.ExitCode() == 1 && said.Match(stderr.Bytes()),
			"%s: %v, %q, want it to match %s", args[0], err, &stderr, said)
		return out
	}
	t.Errorf("%s: every probe took too long: %s", args[0], out)
	return out
}
