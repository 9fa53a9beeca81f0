package worker

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// live are the workers that this process has started, of all kinds, and has not waited for.
var live = struct {
	sync.Mutex
	pids map[int]struct{}
}{pids: make(map[int]struct{})}

// WithPIDs calls f with the pids of all workers that were not waited for, and none is meanwhile: each pid is the
// worker's, and its CPU time is not yet among that of children. f must not block.
func WithPIDs(f func(pids []int)) {
	live.Lock()
	defer live.Unlock()
	f(slices.Collect(maps.Keys(live.pids)))
}

func started(pid int) {
	live.Lock()
	defer live.Unlock()
	live.pids[pid] = struct{}{}
}

// wait waits for the end of a worker.
func wait(pid int) {
	var info unix.Siginfo
	for errors.Is(unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	live.Lock()
	defer live.Unlock()
	for { // not long, as it has ended
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	delete(live.pids, pid)
}
