package procscan

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

	"correlator/internal/testenv"
)

// The processes that the tests look at are this binary again, in the role that the variable says.
const roleVariable = "PROCSCAN_TEST_ROLE"

const (
	waitFor = 20 * time.Second
	nobody  = 65534
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

var roles = map[string]func() error{
	"host":       runHost,
	"scan":       runScan,
	"read":       runRead,
	"namespace":  runNamespace,
	"leaderless": runLeaderless,
}

// roleCommand is this binary in a role, wherever it lies and whoever may look there.
func roleCommand(t testing.TB, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd
}

// process is a child that runs until the end of the test, or kill.
type process struct {
	cmd    *exec.Cmd
	pid    int
	stdin  io.Writer
	stdout *bufio.Reader
}

// tell has a host do something and returns when it has.
func (p *process) tell(t testing.TB, command string) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, command+"\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := p.stdout.ReadString('\n'); line != "done\n" {
		t.Fatalf("told to %s, the child said %q, %v", command, line, err)
	}
}

// startHost returns when the child is as the spec says.
func startHost(t testing.TB, spec hostSpec) *process {
	t.Helper()
	cmd := roleCommand(t, "host")
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if len(spec.Mounts) > 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // os/exec makes the mounts private
	}
	return startReady(t, cmd, spec)
}

func startReady(t testing.TB, cmd *exec.Cmd, spec any) *process {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, cmd.Process.Pid, stdin, bufio.NewReader(stdout)}
	t.Cleanup(p.kill)
	if err := json.NewEncoder(stdin).Encode(spec); err != nil {
		t.Fatal(err)
	}
	if line, err := p.stdout.ReadString('\n'); line != "ready\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	return p
}

// kill ends the child and reaps it.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// startSleep starts a process that is cheaper than this binary.
func startSleep(t testing.TB) *process {
	t.Helper()
	cmd := exec.Command(testenv.NeedTool(t, "sleep"), "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, pid: cmd.Process.Pid}
	t.Cleanup(p.kill)
	return p
}

// startZombie starts a process that has ended and is not reaped before the end of the test.
func startZombie(t testing.TB) int {
	t.Helper()
	p := startSleep(t)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Poll(t, waitFor, "a zombie", func() bool { return stateOf(t, p.pid) == "Z" })
	return p.pid
}

func procFS(t testing.TB) procfs.FS {
	t.Helper()
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func stateOf(t testing.TB, pid int) string {
	t.Helper()
	proc, err := procFS(t).Proc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.State
}

func identityOf(t testing.TB, pid int) ProcessID {
	t.Helper()
	started, err := startTime("/proc", pid)
	if err != nil {
		t.Fatal(err)
	}
	return ProcessID{pid, started}
}

// kernelThread returns the number of one, where the pid namespace has any.
func kernelThread(t testing.TB) int {
	t.Helper()
	const pfKthread = 0x00200000 // include/linux/sched.h
	procs, err := procFS(t).AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil && stat.Flags&pfKthread != 0 {
			return p.PID
		}
	}
	testenv.Missing(t, "needs a kernel thread in sight: runs in a pid namespace of its own")
	return 0
}

// sharedDir is a directory that every user can reach, which that of testing is not.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newScanner(t testing.TB, procRoot string) *Scanner {
	t.Helper()
	s, err := NewScanner(procRoot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openHost opens a child and the mapping of the library that it has.
func openHost(t testing.TB, procRoot string, p *process) (*Handle, Mapping) {
	t.Helper()
	found, err := newScanner(t, procRoot).Process(p.pid)
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenProcess(procRoot, found.ProcessID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, found.Libraries[0]
}

// outputOf runs a role to its end and returns what it printed.
func outputOf(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return strings.TrimSpace(string(out))
}

// descriptors counts our own open files.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
