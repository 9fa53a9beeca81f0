package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// innerVariable is set for a test binary that a test runs again in other circumstances. Its
// value says which.
const innerVariable = "CORRELATOR_BPF_TEST_INNER"

const innerNamespace = "pid namespace"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(innerVariable) == innerNamespace {
		if err := mountOwnProc(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "bpf-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.dir = dir
	programs.paths = make(map[string]string)
	return m.Run()
}

// runAgain runs tests of this binary in a process that attr describes, and fails when one does.
func runAgain(t *testing.T, circumstances, tests string, attr *syscall.SysProcAttr) (output string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", tests)
	// The race detector otherwise waits a second before each exit.
	cmd.Env = append(os.Environ(), innerVariable+"="+circumstances, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", circumstances, err, out)
	}
	return string(out)
}

// mountOwnProc makes /proc show the pid namespace that we were started in. It takes a mount
// namespace of our own.
func mountOwnProc() error {
	if pid := os.Getpid(); pid != 1 {
		return fmt.Errorf("pid %d: this is no pid namespace of our own", pid)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to ourselves: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}
