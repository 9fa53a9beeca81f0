package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
)

// Where the engine cannot run, here without CAP_SYS_PTRACE, stacks are walked by frame pointers, and it
// is said why; with --unwinder full that is a failure.
func TestUnwinderUnavailable(t *testing.T) {
	needSampler(t)
	setpriv := testenv.NeedTool(t, "setpriv")
	by := rootWith(setpriv, without("sys_ptrace"))
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Placement: demo.Placement{ // it has no more rights than workers
		By: []string{setpriv, "--bounding-set", "-all", "--inh-caps", "-all", "--"}}})
	const (
		why             = "unwinding: missing CAP_SYS_PTRACE: grant the process CAP_SYS_PTRACE"
		byFramePointers = "stacks are walked by frame pointers only" // in the log
	)
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		argv := slices.Concat(by, []string{installed(t)}, args)
		cmd := exec.Command(argv[0], argv[1:]...)
		var out, failure bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &failure
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%v: %v, want exit code %d\n%s%s", args, err, code, &out, &failure)
		}
		return out.String(), failure.String()
	}

	path := filepath.Join(t.TempDir(), "out.pb.gz")
	record := []string{"record", "-d", "1s", "--pid", strconv.Itoa(p.PID), "--rate", "997", "-o", path, "--unwinder"}
	_, stderr := run(1, append(record, "full")...)
	if !strings.Contains(stderr, "\ncorrelator: unwinding stacks (--unwinder auto does without): "+why+"\n") {
		t.Errorf("record --unwinder full says\n%s", stderr)
	}
	recordUntil(t, by, func(_, stderr string) bool {
		assert.Check(t, strings.Contains(stderr, `"reason": "unwinder_unavailable", "error": "`+why+`"`),
			"record --unwinder auto says\n%s", stderr)
		return len(readProfile(t, path).Sample) != 0
	}, append(record[3:], "auto")...)
	for _, unwinder := range []string{"full", "auto"} {
		stdout, _ := run(0, "check", "--unwinder", unwinder) // it is not required
		if !strings.Contains(stdout, "needs CAP_SYS_PTRACE") || !strings.Contains(stdout, "--unwinder frame-pointers") {
			t.Errorf("check --unwinder %s says\n%s", unwinder, stdout)
		}
		t.Run("run "+unwinder, func(t *testing.T) {
			admin := filepath.Join(t.TempDir(), "admin")
			a := startAgent(t, by, "--unwinder", unwinder, "--accept-partial-view", "--admin-socket", admin,
				"--samples-per-second", "97")
			a.registered(p.PID)
			before := p.Report().Samples
			p.ReportWhen("samples", func(report demo.Report) bool { return report.Samples > before })
			testenv.Poll(t, deadline, "a warning", func() bool { return len(a.logged(byFramePointers)) > 0 })
			status := statusAt(t, admin)
			u := status.Unwinding
			assert.Check(t, u != nil && u.Failure == why && !u.Loaded && u.Unwound == 0, "unwinding: %+v", u)
			notReady := "stacks are walked by frame pointers (--unwinder auto accepts that): " + why
			if unwinder != sampling.FullUnwinder.String() {
				notReady = ""
			}
			assert.Check(t, status.NotReady == notReady, "not ready: %q", status.NotReady)
			said := a.logged(byFramePointers)
			assert.Check(t, len(said) == 1 && said[0].Reason == "unwinder_unavailable" && said[0].Error == why,
				"logged %+v", said)
			a.end().addUp(t)
		})
	}
}
