// Package child starts processes that the tests of procscan and of its watchers inspect.
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// hostRole is the role that HostSpec describes.
const hostRole = "host"

// RoleVariable makes the test binary run one of its roles instead of its tests.
const RoleVariable = "PROCSCAN_TEST_ROLE"

const (
	// Timeout is how long a test waits for a state.
	Timeout = time.Minute
	// Nobody is the user and group without rights.
	Nobody = 65534
)

// Main runs the tests, or the role that RoleVariable names: one of these, or "host" (HostSpec).
func Main(m *testing.M, roles map[string]func() error) {
	role := os.Getenv(RoleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	run := roles[role]
	if role == hostRole {
		run = runHost
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// Command returns a command that runs this test in a role, as any user.
func Command(t testing.TB, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Again(t), args...)
	cmd.Env = append(os.Environ(), RoleVariable+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd
}

// Process is a child that runs until the end of the test, or Kill.
type Process struct {
	Cmd    *exec.Cmd
	PID    int
	Stdin  io.Writer
	Stdout *bufio.Reader
}

// Tell sends a command to a host and waits until it is done.
func (p *Process) Tell(t testing.TB, command string) {
	t.Helper()
	_, err := io.WriteString(p.Stdin, command+"\n")
	assert.NilError(t, err)
	line, err := p.Stdout.ReadString('\n')
	assert.Assert(t, line == "done\n", "command %s: the child printed %q, %v", command, line, err)
}

// StartHost starts a host and waits until it has applied the spec.
func StartHost(t testing.TB, spec HostSpec) *Process {
	t.Helper()
	cmd := Command(t, hostRole)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if len(spec.Mounts) > 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // os/exec makes the mounts private
	}
	return StartReady(t, cmd, spec)
}

// StartReady starts a role, writes the spec to it and waits until it has printed "ready".
func StartReady(t testing.TB, cmd *exec.Cmd, spec any) *Process {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	assert.NilError(t, err)
	stdout, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	p := &Process{cmd, cmd.Process.Pid, stdin, bufio.NewReader(stdout)}
	t.Cleanup(p.Kill)
	assert.NilError(t, json.NewEncoder(stdin).Encode(spec))
	line, err := p.Stdout.ReadString('\n')
	assert.Assert(t, line == "ready\n", "the child printed %q, %v", line, err)
	return p
}

// Kill ends the child and reaps it.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have exited
	_ = p.Cmd.Wait()
}

// StartSleep starts a process that is cheaper than this binary.
func StartSleep(t testing.TB) *Process {
	t.Helper()
	return Start(t, exec.Command(testenv.NeedTool(t, "sleep"), "infinity"))
}

// Start starts a command that runs until the end of the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	assert.NilError(t, cmd.Start())
	p := &Process{Cmd: cmd, PID: cmd.Process.Pid}
	t.Cleanup(p.Kill)
	return p
}

// StartZombie starts a process that has ended and is not reaped before the end of the test.
func StartZombie(t testing.TB) int {
	t.Helper()
	p := StartSleep(t)
	assert.NilError(t, p.Cmd.Process.Kill())
	testenv.Poll(t, Timeout, "a zombie", func() bool { return State(t, p.PID) == "Z" })
	return p.PID
}

// ProcFS returns /proc.
func ProcFS(t testing.TB) procfs.FS {
	t.Helper()
	fs, err := procfs.NewFS("/proc")
	assert.NilError(t, err)
	return fs
}

// State returns the letter that ps shows.
func State(t testing.TB, pid int) string {
	t.Helper()
	return stat(t, pid).State
}

// StartTime returns the start time in clock ticks since boot.
func StartTime(t testing.TB, pid int) uint64 {
	t.Helper()
	return stat(t, pid).Starttime
}

func stat(t testing.TB, pid int) procfs.ProcStat {
	t.Helper()
	proc, err := ProcFS(t).Proc(pid)
	assert.NilError(t, err)
	stat, err := proc.Stat()
	assert.NilError(t, err)
	return stat
}

// KernelThread returns the pid of a kernel thread, where the pid namespace has any.
func KernelThread(t testing.TB) int {
	t.Helper()
	const pfKthread = 0x00200000 // include/linux/sched.h
	procs, err := ProcFS(t).AllProcs()
	assert.NilError(t, err)
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil && stat.Flags&pfKthread != 0 {
			return p.PID
		}
	}
	testenv.Missing(t, "needs a kernel thread: runs in a pid namespace without any")
	return 0
}

// SharedDir returns a temporary directory that every user can reach.
func SharedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		assert.NilError(t, os.Chmod(d, 0o755))
	}
	return dir
}

// Output runs a role to its end and returns what it printed.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return strings.TrimSpace(string(out))
}

// Descriptors counts our own open files.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	return len(entries)
}
