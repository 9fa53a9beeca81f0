package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// All threads of the agent have relaxed timers, also those that Go's runtime starts first, and it is the
// same process.
func TestTimerSlack(t *testing.T) {
	needSampler(t)
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	assert.NilError(t, err)
	want := map[int]string{50_000: "1000000"}[slack]
	if want == "" {
		want = fmt.Sprint(slack) // somebody has chosen it
	}
	pid := startAndWait(t)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	assert.Assert(t, err == nil && len(threads) >= 2, "%d threads, %v", len(threads), err)
	for _, thread := range threads {
		got, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		const late = "50000000" // of threads that start workers, which inherit it
		if value := strings.TrimSpace(string(got)); err != nil || value != want && value != late {
			t.Errorf("thread %s of %d: %q, %v", thread.Name(), pid, got, err)
		}
	}
}

// The agent gets no huge pages.
func TestNoHugePages(t *testing.T) {
	needSampler(t)
	testenv.NeedHugePages(t)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", startAndWait(t)))
	assert.Check(t, err == nil && strings.Contains(string(status), "\nTHP_enabled:\t0\n"), "%v, %s", err, status)
}

func startAndWait(t *testing.T) int {
	t.Helper()
	admin := filepath.Join(t.TempDir(), "admin")
	a := startAgent(t, nil, "--admin-socket", admin)
	testenv.Poll(t, deadline, "the agent", func() bool {
		_, err := os.Lstat(admin)
		return err == nil
	})
	return a.command.Process.Pid
}
