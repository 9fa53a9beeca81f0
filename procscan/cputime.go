package procscan

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns how much CPU time all threads of a process have used so far, also those that have
// ended. It costs one system call, a tenth of what reading /proc/PID/stat does. The error is ErrGone
// when no process has the pid; whether that is still the same process is the caller's to know.
func CPUTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	switch err := unix.ClockGettime(cpuClock(pid), &t); err {
	case nil:
		return time.Duration(t.Nano()), nil
	case unix.EINVAL, unix.ESRCH:
		return 0, fmt.Errorf("reading CPU time: %w", ErrGone)
	default:
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
}

// cpuClock returns the clock of a process's CPU time, as clock_getcpuclockid(3) does: CPUCLOCK_SCHED
// (2) of include/linux/posix-timers.h with the inverted pid above it.
func cpuClock(pid int) int32 { return ^int32(pid)<<3 | 2 }
