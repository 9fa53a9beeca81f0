// Package timerslack lets timers of this process be late, which saves CPU time.
package timerslack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// relaxed is how late timers may be, in ns. What is promised to others is in units of 100 ms.
	relaxed = 1_000_000

	// kernelDefault is what the kernel gives to the first process; somebody has chosen others.
	kernelDefault = 50_000
)

var (
	errNoEffect    = errors.New("setting the timer slack has no effect")
	errOtherThread = errors.New("not called by the first goroutine")
)

// Relax executes this process anew, with the same id, arguments and environment, so that all its threads, and
// its children's, have timers that may be 1 ms late (prctl(2), PR_SET_TIMERSLACK); unless it was called before,
// or somebody has set another slack. Then, and when that is not possible, it returns.
//
// While a goroutine runs or is in a system call, the monitor thread of Go's runtime wakes up every 20 µs at first:
// 20 times less often with this. That is a fifth of the CPU time of a process that does little ten times a
// second. The thread has the slack of the one that executed the program, and another process's, or thread's,
// takes CAP_SYS_NICE.
//
// Only the first goroutine may call it, once, on the first thread: an init function of the caller must have called
// [runtime.LockOSThread], which Relax undoes. The process has what the thread had that executes, and only the
// first has the signal that ends it with its parent (prctl(2), PR_SET_PDEATHSIG).
func Relax() error {
	defer runtime.UnlockOSThread() // of the init function
	if unix.Gettid() != unix.Getpid() {
		return errOtherThread
	}
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || slack != kernelDefault {
		return err
	}
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("relaxing timers: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, relaxed, 0, 0, 0); err != nil {
		return fmt.Errorf("relaxing timers: %w", err)
	}
	if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != relaxed {
		return errors.Join(errNoEffect, err) // it would be executed again and again
	}
	return fmt.Errorf("executing %s anew: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}
