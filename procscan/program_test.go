package procscan

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

// startCopy starts a sleep whose program is a copy at path.
func startCopy(t *testing.T, path string) (*child.Process, *Handle) {
	t.Helper()
	testenv.WriteProgram(t, path, testenv.ReadFile(t, testenv.NeedTool(t, "sleep")), 0o700)
	p := child.Start(t, exec.Command(path, "infinity"))
	h := openPID(t, p.PID)
	// Under emulation, it was seen to be the starting program still.
	testenv.Poll(t, time.Minute, "the program "+path, func() bool {
		got, err := h.Executable()
		return err == nil && got == path
	})
	return p, h
}

// The path of the program is the one that the process sees, even if the file is deleted.
func TestExecutable(t *testing.T) {
	for _, name := range []string{"plain", "with space\nand line", "not \xff UTF-8", strings.Repeat("l", 255)} {
		path := filepath.Join(t.TempDir(), name)
		p, h := startCopy(t, path)
		for _, deleted := range []bool{false, true} {
			if deleted {
				os.Remove(path)
			}
			got, err := h.Executable()
			assert.Check(t, err == nil && got == path, "deleted %v: %q, %v", deleted, got, err)
		}
		p.Kill()
		got, err := h.Executable()
		assert.Check(t, errors.Is(err, ErrGone) && got == "", "after the exit: %q, %v", got, err)
	}
}

// A kernel thread is alive, and has no executable.
func TestExecutableOfKernelThread(t *testing.T) {
	h := openPID(t, child.KernelThread(t))
	got, err := h.Executable()
	assert.Check(t, err != nil && !errors.Is(err, ErrGone) && got == "", "%q, %v", got, err)
}

// Names may hold any bytes; for the id of another process's thread the error is ErrGone.
func TestThreadName(t *testing.T) {
	self := openPID(t, os.Getpid())
	runtime.LockOSThread() // not unlocked: the thread ends with the goroutine, and its name with it
	tid := unix.Gettid()
	for _, name := range []string{"worker-1", "", "a\nb", "\n\n", "\xff\x1b[31m", "ends in line\n", "fifteen bytes!!"} {
		assert.NilError(t, os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", tid), []byte(name+"\x00"), 0))
		got, err := self.ThreadName(tid)
		assert.Check(t, err == nil && got == name, "%q, %v, want %q", got, err, name)
	}

	p, h := startCopy(t, filepath.Join(t.TempDir(), "sleeps"))
	name, err := h.ThreadName(p.PID)
	assert.Check(t, err == nil && name == "sleeps", "%q, %v", name, err)
	for _, tid := range []int{tid, os.Getpid(), 1, 0, -1, 1 << 30} {
		name, err := h.ThreadName(tid)
		assert.Check(t, errors.Is(err, ErrGone) && name == "", "thread %d: %q, %v", tid, name, err)
	}
	p.Kill()
	name, err = h.ThreadName(p.PID)
	assert.Check(t, errors.Is(err, ErrGone) && name == "", "after the exit: %q, %v", name, err)
}

// The number of a thread is the last of its numbers, that in its own namespace; a status without one is an error.
func TestThreadNumber(t *testing.T) {
	for status, want := range map[string]int{
		"Name:\tx\nNSpid:\t7\nNSsid:\t8\n": 7, "NSpid:\t4711\t70\t7\nNSpgid:\t1\n": 7,
		"Name:\tNSpid:\n": 0, "NSpid:\t\nNSpid:\t7": 0, "NSpid:\tx\n": 0, "": 0,
	} {
		number, err := parseThreadNumber([]byte(status))
		assert.Check(t, number == want && (err == nil) == (want != 0), "%q: %d, %v", status, number, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	h := openPID(t, os.Getpid())
	number, err := h.ThreadNumber(unix.Gettid())
	assert.Check(t, err == nil && number > 0, "%d, %v", number, err)
	_, err = h.ThreadNumber(1 << 22)
	assert.ErrorIs(t, err, ErrGone)
}
