package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc/PID/stat and /proc/stat.
const tick = 10 * time.Millisecond

// family returns a process and its descendants.
func family(pid int) (all []int) {
	all = []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // none if it has ended
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, family(child)...)
			}
		}
	}
	return all
}

// runTime returns the run time of processes, by the scheduler's clock, with that of their threads that have ended
// and of their children that have ended and were waited for. Those that have ended themselves have none.
func runTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		var now unix.Timespec
		if err := unix.ClockGettime(processClock(pid), &now); err != nil {
			continue
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		waited, err := parseWaited(string(text))
		if err != nil {
			continue
		}
		sum += time.Duration(now.Nano()) + waited
	}
	return sum
}

// processClock returns the id of the clock that counts the run time of a process.
func processClock(pid int) int32 {
	const scheduler = 2
	return int32(^pid<<3 | scheduler)
}

// parseWaited returns the CPU time of children that were waited for, from /proc/PID/stat.
func parseWaited(stat string) (time.Duration, error) {
	const cutime, cstime = 16 - 3, 17 - 3  // fields as proc(5) counts them, of which two are before these
	_, after, _ := strings.Cut(stat, ") ") // of a name with a parenthesis, too much: then there is an error
	fields := strings.Fields(after)
	if len(fields) <= cstime {
		return 0, fmt.Errorf("stat %q", stat)
	}
	user, err1 := strconv.ParseUint(fields[cutime], 10, 63)
	system, err2 := strconv.ParseUint(fields[cstime], 10, 63)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("stat %q", stat)
	}
	return time.Duration(user+system) * tick, nil
}

// parseIdle returns the time that CPUs have had nothing to do, in sum, from /proc/stat.
func parseIdle(stat string) (time.Duration, error) {
	const idle, iowait = 4, 5
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) <= iowait || fields[0] != "cpu" {
		return 0, fmt.Errorf("stat %q", line)
	}
	a, err1 := strconv.ParseUint(fields[idle], 10, 63)
	b, err2 := strconv.ParseUint(fields[iowait], 10, 63)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("stat %q", line)
	}
	return time.Duration(a+b) * tick, nil
}

// value returns what follows a name at the beginning of a line, without its unit: from /proc/PID/status,
// smaps_rollup and fdinfo.
func value(text, name string) (n uint64, found bool) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if after, is := strings.CutPrefix(lines.Text(), name+":"); is {
			n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(after), " kB"), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// proportionalMB returns the memory of processes, with their shares of what they have in common with others.
func proportionalMB(pids []int) (sum float64) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // of none if it has ended
		kilobytes, _ := value(string(text), "Pss")
		sum += float64(kilobytes) / 1024
	}
	return sum
}
