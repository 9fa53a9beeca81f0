// Package testenv says what a test needs of the machine it runs on.
//
// A need that is not met skips the test and prints the reason. With
// STRICT_TESTS=1, which `make test` sets under CI, it fails the test
// instead: what is skipped there would hide.
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// StrictVariable is the environment variable that turns skips into failures.
const StrictVariable = "STRICT_TESTS"

// pollInterval is the pause between two looks of Poll: short enough that a test
// does not feel it, long enough that waiting costs nothing.
const pollInterval = 2 * time.Millisecond

// Missing ends the test because the machine lacks something: it skips with the
// reason, or fails with it where skips are not allowed.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(StrictVariable) == "1" {
		t.Fatalf("%s (a skip is a failure with %s=1)", reason, StrictVariable)
	}
	t.Skip(reason)
}

// NeedRoot ends the test unless it runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root: reads other users' processes and loads eBPF")
	}
}

// NeedTool ends the test unless the program is in PATH, and returns its path.
func NeedTool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "needs the program "+name+" in PATH")
	}
	return path
}

// Poll waits until done answers true and fails the test when that has not
// happened within the deadline. The message says what was waited for.
func Poll(t testing.TB, deadline time.Duration, what string, done func() bool) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !done() {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", deadline, what)
		}
		time.Sleep(pollInterval)
	}
}

// lockPath is the file whose lock is the right to have the machine alone.
const lockPath = "/tmp/correlator-tests.lock"

// Alone runs the tests of a package while no other package's tests run that also ask for it, and
// returns their exit code: an agent under test serves the whole machine, and would register with
// the processes of another package's tests. Under flock(1) of the same file they would wait for ever.
func Alone(m *testing.M) int {
	f, err := os.OpenFile(lockPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer f.Close()
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
			fmt.Fprintln(os.Stderr, "waiting for who holds the lock of", lockPath)
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "waiting for other tests:", err)
		return 1
	}
	return m.Run()
}
