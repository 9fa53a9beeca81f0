// Package cost reads what processes take. A process that has ended takes nothing any more.
package cost

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const tick = 10 * time.Millisecond // of times in procfs

// Family returns a process and its descendants.
func Family(pid int) (all []int) {
	all = []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, Family(child)...)
			}
		}
	}
	return all
}

// RunTime returns the run time of processes, by the scheduler's clock, with that of their threads that have ended
// and of their children that have ended and were waited for.
func RunTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		var now unix.Timespec
		const scheduler = 2
		if err := unix.ClockGettime(int32(^pid<<3|scheduler), &now); err != nil {
			continue
		}
		if p, err := procfs.NewProc(pid); err == nil {
			if stat, err := p.Stat(); err == nil {
				sum += time.Duration(now.Nano()) + time.Duration(stat.CUTime+stat.CSTime)*tick
			}
		}
	}
	return sum
}

// ProportionalMB returns the memory of processes, with their shares of what they have in common with others.
func ProportionalMB(pids []int) (sum float64) {
	for _, pid := range pids {
		if p, err := procfs.NewProc(pid); err == nil {
			rollup, _ := p.ProcSMapsRollup()
			sum += float64(rollup.Pss) / (1 << 20)
		}
	}
	return sum
}

var programID = regexp.MustCompile(`(?m)^prog_id:\s*(\d+)$`)

// Programs returns what eBPF programs of a name have run that processes hold, or hold attached to something; empty:
// of any name. A program that is called by another one has no time of its own.
func Programs(pids []int, name string) map[ebpf.ProgramID]ebpf.ProgramStats {
	programs := make(map[ebpf.ProgramID]ebpf.ProgramStats)
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		for _, file := range files {
			text, _ := os.ReadFile(file) // nothing if it was closed
			found := programID.FindSubmatch(text)
			if found == nil {
				continue
			}
			n, _ := strconv.ParseUint(string(found[1]), 10, 32)
			id := ebpf.ProgramID(n)
			program, err := ebpf.NewProgramFromID(id)
			if err != nil {
				continue // unloaded since
			}
			info, errInfo := program.Info()
			stats, errStats := program.Stats()
			if errInfo == nil && errStats == nil && (name == "" || info.Name == name) {
				programs[id] = *stats
			}
			program.Close()
		}
	}
	return programs
}
