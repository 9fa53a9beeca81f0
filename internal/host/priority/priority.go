// Package priority lets threads that others wait for have more of CPUs that are busy.
package priority

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"time"

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

const (
	// starvedRatio is how many times as long as it ran a process that gets no CPU has waited for one: beside ten busy
	// threads for each CPU it is ten times.
	starvedRatio = 50

	// starvedTime is more than a busy host takes to begin a process. Kernels that do not count have 0.
	starvedTime = time.Second

	highest = -20 // nice value
)

// RaiseStarved gives this process the highest priority if it gets next to no CPU: all of its threads, those that they
// start and its children, until they end. It reports whether it did. It takes what Raise does. With a procfs of another
// pid namespace than ours it does nothing.
func RaiseStarved(procRoot string) bool {
	var ran, waited uint64
	text, _ := os.ReadFile(path.Join(procRoot, "self/schedstat")) // of the first thread; not in all kernels
	_, err := fmt.Sscan(string(text), &ran, &waited)
	if err != nil || ran == 0 || waited < uint64(starvedTime) || waited < starvedRatio*ran {
		return false
	}
	// Of another pid namespace, numbers of threads would be those of others here.
	if pid, err := os.Readlink(path.Join(procRoot, "self")); err != nil || pid != strconv.Itoa(os.Getpid()) {
		return false
	}
	return raiseAll(procRoot)
}

// raiseAll raises all threads, also those that others start meanwhile. It reports whether it may.
func raiseAll(procRoot string) (raised bool) {
	known := make(map[string]bool)
	for before := -1; len(known) > before; {
		before = len(known)
		threads, _ := os.ReadDir(path.Join(procRoot, "self/task"))
		for _, thread := range threads {
			if tid, err := strconv.Atoi(thread.Name()); err == nil && !known[thread.Name()] {
				known[thread.Name()] = true
				raised = unix.Setpriority(unix.PRIO_PROCESS, tid, highest) == nil || raised
			}
		}
	}
	return raised
}
