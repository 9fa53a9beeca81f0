package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	"rsc.io/script"
	"rsc.io/script/scripttest"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/operate/inspect"
	"correlator/internal/out/agent"
	"correlator/internal/worker"
)

// raceOptions, in the variable GORACE, disables the second that the race detector waits before each
// exit.
const raceOptions = "atexit_sleep_ms=0"

// TestMain makes the test binary the command itself if it is called by that name.
func TestMain(m *testing.M) {
	worker.Main()
	fusefs.Main()
	if filepath.Base(os.Args[0]) == "correlator" {
		main()
		return
	}
	os.Setenv("GORACE", raceOptions)
	os.Setenv("CORRELATOR_ADMIN_SOCKET", "") // the default one is for the machine's own agent
	demo.Rest()
	code := testenv.Main(m)
	os.RemoveAll(released.dir)
	os.Exit(code)
}

// released is where the command is as it is released: installed once for all tests, and removed when
// they have ended.
var released struct {
	once sync.Once
	dir  string
}

// installed returns the path of the command as it is released. Where nothing can be compiled, it is
// that of raced.
func installed(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		return raced(t)
	}
	released.once.Do(func() {
		dir, err := os.MkdirTemp("", "correlator-released-")
		assert.NilError(t, err)
		released.dir = dir
		demo.Agent(t, dir)
	})
	return filepath.Join(released.dir, "correlator")
}

// raced installs the command with the race detector, if tests have it, and returns its path. It is for
// those that have much at the same time: starting it takes a second of CPU time.
func raced(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "correlator")
	assert.NilError(t, os.Symlink(self, path))
	return path
}

func TestScripts(t *testing.T) { runScripts(t, "testdata/script/*.txt") }

// Failures that only root can have, on a machine where root would succeed.
func TestScriptsOfRoot(t *testing.T) {
	needSampler(t)
	testenv.NeedTool(t, "setpriv")
	testenv.NeedTool(t, "unshare")
	runScripts(t, "testdata/script/root/*.txt", "CORRELATOR_UNWINDER=frame-pointers")
}

func runScripts(t *testing.T, pattern string, more ...string) {
	t.Helper()
	engine := &script.Engine{Cmds: scripttest.DefaultCmds(), Conds: scripttest.DefaultConds()}
	engine.Cmds["exits"] = exits()
	captures, err := filepath.Abs("../../opencensus/testdata/captures")
	assert.NilError(t, err)
	path := filepath.Dir(installed(t)) + ":" + os.Getenv("PATH")
	env := append(more, "PATH="+path, "HOME=/nonexistent", "GORACE="+raceOptions, "CORRELATOR_ADMIN_SOCKET=",
		"CAPTURES="+captures)
	ctx := context.Background() // who does not refuse to run is ended with the tests
	if end, ok := t.Deadline(); ok {
		before, cancel := context.WithDeadline(ctx, end.Add(-deadline))
		t.Cleanup(cancel) // after the scripts, which run in parallel
		ctx = before
	}
	scripttest.Test(t, ctx, engine, env, pattern)
}

// exits runs a command and checks its exit code: 1 and 2 have different meanings.
func exits() script.Cmd {
	usage := script.CmdUsage{Summary: "run a command that must exit with a code", Args: "code program [args...]"}
	return script.Command(usage, func(s *script.State, args ...string) (script.WaitFunc, error) {
		if len(args) < 2 {
			return nil, script.ErrUsage
		}
		want, err := strconv.Atoi(args[0])
		if err != nil {
			return nil, script.ErrUsage
		}
		run, err := script.Exec(nil, 0).Run(s, args[1:]...)
		if err != nil {
			return nil, err
		}
		return func(s *script.State) (stdout, stderr string, err error) {
			stdout, stderr, err = run(s)
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code, err = exit.ExitCode(), nil
			}
			if err == nil && code != want {
				err = fmt.Errorf("exit code %d, want %d", code, want)
			}
			return stdout, stderr, err
		}, nil
	})
}

func command(t *testing.T, stdin string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(installed(t), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	assert.NilError(t, err, "correlator %v: %v\n%s", args, err, &stderr)
	return out
}

// The commands as an operator uses them: scan, run, feed, inspect, explain, SIGTERM.
func TestRun(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Service: "a\x1b[31m\tservice"})
	socket := filepath.Join(t.TempDir(), "feed")

	var processes []process.View
	assert.NilError(t, json.Unmarshal(command(t, "", "scan", "-o", "json"), &processes))
	listed := false
	for _, view := range processes {
		listed = listed || view.PID == p.PID && view.State == process.StateReady
	}
	if !listed {
		t.Errorf("scan does not list process %d as ready: %+v", p.PID, processes)
	}
	if table := command(t, "", "scan"); bytes.Contains(table, []byte("\x1b")) ||
		!bytes.Contains(table, []byte(`a\x1b[31m\tservice`)) {
		t.Errorf("a service's name commands the terminal:\n%q", table)
	}

	admin := filepath.Join(t.TempDir(), "admin.sock")
	run := exec.Command(raced(t), "run", "--feed-socket", socket, "--host-id", "", "--log-format", "json",
		"--admin-socket", admin)
	var stdout, stderr bytes.Buffer
	run.Stdout, run.Stderr = &stdout, &stderr
	run.Env = append(os.Environ(), "CORRELATOR_SCAN_INTERVAL=50ms", "CORRELATOR_HOST_ID=ignored",
		"CORRELATOR_SAMPLES_DELAY=400ms", "CORRELATOR_ACCEPT_PARTIAL_VIEW=true")
	assert.NilError(t, run.Start())
	t.Cleanup(func() { run.Process.Kill() })
	registration := p.Registration(1)
	assert.Check(t, registration.HostID == "" && registration.SamplesDelayMillis == 400,
		"registered with %+v: the flag goes before the variable, the variable before the default", registration)

	context := p.Begin(1)
	without := fmt.Sprintf("%d %d 60b420bb3851d9d47acb933dbe70399b 2\n", p.PID, context.Thread.TID)
	with := fmt.Sprintf("%d %d TJMmu5gF-o-FiCwS6uckzg 1 %s %s\n", p.PID, context.Thread.TID, context.TraceID,
		context.TransactionID)
	command(t, with, "feed", "--socket", socket)
	fed := uint64(1)
	p.ReportWhen("both samples", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		switch got := transaction.Stacks["TJMmu5gF-o-FiCwS6uckzg"]; {
		case transaction.Stacks["YLQguzhR2dR6y5M9vnA5mw"] < 2:
			command(t, without, "feed", "--socket", socket) // again, if a busy machine made it stale
		case got == 0: // what was fed after it has arrived
			command(t, with, "feed", "--socket", socket)
			fed++
		case got > fed:
			t.Fatalf("%d samples of %d that were fed", got, fed)
		default:
			return true
		}
		return false
	})

	var inspection inspect.Inspection
	assert.NilError(t, json.Unmarshal(command(t, "", "inspect", "-o", "json", strconv.Itoa(p.PID)), &inspection))
	seen := false
	for _, thread := range inspection.Threads {
		seen = seen || thread.TID == context.Thread.TID && thread.TransactionID == context.TransactionID.String()
	}
	if !seen {
		t.Errorf("inspect does not show the transaction: %+v", inspection)
	}

	// On a busy machine, samples were stale, and fed again; and to look at a process may have taken too long.
	var status agent.Status
	testenv.Poll(t, deadline, "a process that is registered", func() bool {
		assert.NilError(t, json.Unmarshal(command(t, "", "status", "-o", "json", "--admin-socket", admin), &status))
		i := slices.IndexFunc(status.Processes, func(s agent.ProcessStatus) bool { return s.PID == p.PID })
		assert.Assert(t, i >= 0, "status: %+v", status)
		of := &status.Processes[i]
		last := of.LastError
		assert.Check(t, last == nil || last.Reason == process.ReasonTimeout.String(), "%+v", last)
		return of.State == process.StateRegistered && of.Sent >= 3 && of.RegisteredSince != nil
	})
	assert.Check(t, status.Counters["samples_sent"] >= 3 && status.NotReady == "", "status: %+v", status)
	const columns = `(?m)^ *%d +a\\x1b\[31m\\tservice \(.*\) +registered +\d+s +elastic +- +glibc +static` +
		` +\d+ +\d+ +\d+ +(0|stale \d+) +\d+$`
	row := regexp.MustCompile(fmt.Sprintf(columns, p.PID))
	testenv.Poll(t, deadline, "a row like "+row.String(), func() bool {
		table := command(t, "", "status", "--admin-socket", admin)
		t.Logf("%s", table)
		return row.Match(table)
	})
	info, err := os.Lstat(admin)
	assert.Check(t, err == nil && info.Mode() == os.ModeSocket|0o600, "the admin socket: %v, %v", info, err)
	out, err := exec.Command(installed(t), "explain", "--admin-socket", admin, "abcd").CombinedOutput()
	assert.Check(t, err != nil && strings.Contains(string(out), "start it with --keep 10m"), "nothing is kept: %s", out)
	second := exec.Command(installed(t), "run", "--admin-socket", admin)
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "another agent runs") {
		t.Errorf("a second agent: %v\n%s", err, out)
	}

	assert.NilError(t, run.Process.Signal(syscall.SIGTERM))
	err = run.Wait()
	assert.Check(t, err, "run ended with %v\n%s", err, &stderr)
	assert.Check(t, stdout.Len() == 0, "run wrote to standard output: %q", &stdout)
	for _, path := range []string{socket, admin} {
		_, err := os.Lstat(path)
		assert.Check(t, errors.Is(err, os.ErrNotExist), "%s is left behind: %v", path, err)
	}
}

// A recording that gets no CPU is to have more; an agent is not. What is raised here is another process, as the procfs
// shows that as a thread.
func TestRaisesStarved(t *testing.T) {
	testenv.NeedPriority(t)
	root := t.TempDir()
	pid := strconv.Itoa(os.Getpid())
	thread := exec.Command("cat")
	testenv.Start(t, thread)
	assert.NilError(t, os.MkdirAll(filepath.Join(root, pid, "task", strconv.Itoa(thread.Process.Pid)), 0o755))
	assert.NilError(t, os.Symlink(pid, filepath.Join(root, "self")))
	testenv.WriteFile(t, filepath.Join(root, "self/schedstat"), "100000000 5000000000 7\n")
	for args, want := range map[string]bool{
		"record --pid 1": true, "explain --pid 1": true, "run": false, "--help record": false, "": false,
	} {
		got := raiseStarved(root, strings.Fields(args))
		assert.Check(t, got == want, "%q: %v", args, got)
	}
}
