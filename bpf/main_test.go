package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
)

// innerVariable is set for a test binary that a test runs again in other circumstances. Its value
// is their name.
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
	programs.compiled = make(map[string]bool)
	demo.Rest()
	types := KeepTypes() // for all tests of this run
	defer runtime.KeepAlive(types)
	return m.Run()
}

// runAgain runs tests of this binary in a process with attr, and fails if one fails.
func runAgain(t *testing.T, circumstances, tests string, attr *syscall.SysProcAttr) (output string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", tests)
	// The race detector otherwise waits a second before each exit.
	cmd.Env = append(os.Environ(), innerVariable+"="+circumstances, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s: %v\n%s", circumstances, err, out)
	return string(out)
}

// mountOwnProc mounts the procfs of our pid namespace at /proc. It needs a mount namespace of our
// own.
func mountOwnProc() error {
	if pid := os.Getpid(); pid != 1 {
		return fmt.Errorf("pid %d: not the first process of a pid namespace", pid)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}
