package live

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// listInterval is how often the agent's workers are listed, which takes some 10 µs for each of its
// threads. So a worker is taken account of some seconds after its start at the latest.
const listInterval = 5 * time.Second

// ownTime is the CPU time of the agent with its workers.
type ownTime struct {
	workers []int // pids
	listed  time.Time
}

// read returns how much was used so far.
func (o *ownTime) read(procRoot string, now time.Time) (total time.Duration) {
	if passed := now.Sub(o.listed); passed >= listInterval || passed < 0 {
		o.workers, o.listed = children(procRoot), now
	}
	for _, pid := range o.workers {
		if used, err := procscan.CPUTime(pid); err == nil { // else it has ended
			total += used
		}
	}
	return total + usage(unix.RUSAGE_SELF) + usage(unix.RUSAGE_CHILDREN) // those that have ended
}

func usage(who int) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// children returns the processes that the agent has started: each is listed with the thread that did. A
// kernel without CONFIG_PROC_CHILDREN lists none.
func children(procRoot string) (pids []int) {
	tasks := filepath.Join(procRoot, strconv.Itoa(os.Getpid()), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
