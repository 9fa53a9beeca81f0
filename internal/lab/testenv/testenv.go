// Package testenv provides what tests need from the machine they run on, and isolates them from it.
//
// A need that is not met skips the test and prints the reason. With STRICT_TESTS=1, which `make
// test` sets under CI, it fails the test instead, because nobody would notice the skip there.
package testenv

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// strictVariable is the environment variable that turns skips into failures.
const strictVariable = "STRICT_TESTS"

// The pause between two checks of Poll: short enough not to delay a test, and the longer the longer it has
// waited already, as a check can be work that takes time from what is waited for.
const (
	shortestPause = 2 * time.Millisecond
	longestPause  = 50 * time.Millisecond
	pauseShare    = 10 // of the time since it began
)

// Missing ends the test because the machine lacks something: it skips the test with the reason, or
// fails it where skips are not allowed.
func Missing(t testing.TB, reason string) {
	t.Helper()
	assert.Assert(t, os.Getenv(strictVariable) != "1", "%s (a skip is a failure with %s=1)", reason, strictVariable)
	t.Skip(reason)
}

// NeedPriority ends the test unless the priority of threads may be raised.
func NeedPriority(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const base = 20 // what the system call returns is this less the nice value
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, base-own-1)
	}
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, base-own)
	}
	if err != nil {
		Missing(t, "raising a priority: "+err.Error())
	}
}

// NeedHugePages ends the test unless processes may have transparent huge pages, as far as the kernel says it of
// this one.
func NeedHugePages(t testing.TB) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	assert.NilError(t, err)
	if !bytes.Contains(status, []byte("\nTHP_enabled:\t1\n")) {
		Missing(t, "needs CONFIG_TRANSPARENT_HUGEPAGE, and huge pages that are not disabled (prctl, PR_SET_THP_DISABLE)")
	}
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

// Ended returns a context that has ended: what takes it does not wait.
func Ended() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}

// Poll waits until done returns true, and fails the test when that has not happened within the
// deadline. The message names what was waited for.
func Poll(t testing.TB, deadline time.Duration, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); {
		waited := time.Since(began)
		assert.Assert(t, waited <= deadline, "waited %v in vain for %s", deadline, what)
		time.Sleep(min(max(waited/pauseShare, shortestPause), longestPause))
	}
}

// KernelBefore reports whether the running kernel is older than a version (major, minor).
func KernelBefore(t testing.TB, version [2]int) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	var running [2]int
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d.%d", &running[0], &running[1])
	}
	assert.NilError(t, err, "reading the kernel's version")
	return slices.Compare(running[:], version[:]) < 0
}
