// Package priority lets threads that others wait for have more of CPUs that are busy.
package priority

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// steps is by how much a nice value is lowered: the thread has nine times the weight, half of a CPU beside nine
// others that are busy.
const steps = 10

// Raise ties the calling goroutine to its thread for good, and raises the priority of that thread, with which its
// children begin, too. The thread ends with the goroutine. It takes CAP_SYS_NICE, without which the priority
// stays: a service has the share of its cgroup.
func Raise() {
	runtime.LockOSThread()
	const base = 20 // what the system call returns is this less the nice value
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, base-priority-steps)
	}
}
