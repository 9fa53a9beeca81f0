// Package self tells what this process may do, and how much CPU time it has used.
package self

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns the time of a clock of the machine, of this process or of the calling thread (unix.CLOCK_…), none of
// which can fail.
func Clock(id int32) time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(id, &now)
	return time.Duration(now.Nano())
}

// CPUTime returns the CPU time of this process, of the calling thread, or of the children that were waited for
// (unix.RUSAGE_…).
func CPUTime(who int) time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(who, &used) // cannot fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Capabilities is a set of capabilities, as a bit mask.
type Capabilities uint64

// Has reports whether one is in the set (unix.CAP_…).
func (c Capabilities) Has(capability int) bool { return c&(1<<capability) != 0 }

// Effective returns the effective capabilities of the calling thread. An error means that a filter of system calls
// refuses to tell them.
func Effective() (Capabilities, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // capabilities 0 to 31, 32 to 63
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return 0, fmt.Errorf("reading capabilities: %w", err)
	}
	return Capabilities(sets[1].Effective)<<32 | Capabilities(sets[0].Effective), nil
}
