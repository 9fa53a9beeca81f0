package procscan

import (
	"fmt"
	"time"
)

// CPUTime returns how much CPU time a process has used, in steps of 10 ms. The error is ErrGone when
// there is no process with its pid any more, or another one.
func CPUTime(procRoot string, id ProcessID) (time.Duration, error) {
	stat, err := readStat(procRoot, id.PID)
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	if stat.started != id.StartTime {
		return 0, fmt.Errorf("reading CPU time: %w", ErrGone)
	}
	const tick = time.Second / 100 // as of start times
	return time.Duration(stat.user+stat.system) * tick, nil
}
