// Package cost tells what this process and its workers take of the machine, in sum: their memory and their
// CPU time. What the kernel uses for eBPF programs is in neither.
package cost

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
	"correlator/internal/worker"
	"correlator/procscan"
)

// Cost is what all processes take.
type Cost struct {
	Processes int `json:"processes"`
	// PSSBytes has what processes share with others by shares. It is 0 where that is not known of all: without
	// CAP_SYS_PTRACE, and while a worker hangs.
	PSSBytes uint64 `json:"pss_bytes,omitempty"`
	// CPUSeconds is since the start, also of workers that have ended.
	CPUSeconds float64 `json:"cpu_seconds"`
}

// CPU returns the CPU time.
func (c Cost) CPU() time.Duration { return time.Duration(c.CPUSeconds * float64(time.Second)) }

// patience is how long memory is measured at most: the kernel may wait for what a worker that hangs waits for.
const patience = 2 * time.Second

// Meter measures. It is safe for concurrent use.
type Meter struct {
	procRoot  string
	patience  time.Duration
	measuring chan struct{} // has room for one, so that no more than one waits for the kernel
}

// NewMeter returns a Meter. procRoot is a procfs of our own pid namespace.
func NewMeter(procRoot string) *Meter {
	return &Meter{procRoot: procRoot, patience: patience, measuring: make(chan struct{}, 1)}
}

// Read measures.
func (m *Meter) Read() (c Cost) {
	var files []*os.File // of which each stays that of its process
	known := true
	open := func(pid string) {
		file, err := os.Open(filepath.Join(m.procRoot, pid, "smaps_rollup"))
		if err == nil {
			files = append(files, file)
		}
		known = known && (err == nil || errors.Is(err, hasEnded))
	}
	worker.WithPIDs(func(pids []int) {
		c.Processes = 1 + len(pids)
		c.CPUSeconds = usedWith(pids).Seconds()
		open("self")
		for _, pid := range pids {
			open(strconv.Itoa(pid))
		}
	})
	if c.PSSBytes = m.memory(files); !known {
		c.PSSBytes = 0
	}
	return c
}

// hasEnded is what the kernel says of a process that has no memory any more, at opening or at reading.
const hasEnded = unix.ESRCH

// memory returns the sum of what files tell, 0 if one does not tell within patience, and closes them.
func (m *Meter) memory(files []*os.File) uint64 {
	late := time.NewTimer(m.patience)
	defer late.Stop()
	select {
	case m.measuring <- struct{}{}:
	case <-late.C:
		closeAll(files)
		return 0
	}
	result := make(chan uint64, 1)
	go func() {
		defer func() { <-m.measuring }()
		defer closeAll(files)
		result <- sum(files)
	}()
	select {
	case bytes := <-result:
		return bytes
	case <-late.C:
		return 0
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

func sum(files []*os.File) (all uint64) {
	for _, file := range files {
		bytes, known := proportional(file)
		if !known {
			return 0
		}
		all += bytes
	}
	return all
}

// proportional reads a smaps_rollup.
func proportional(file *os.File) (bytes uint64, known bool) {
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if after, is := strings.CutPrefix(lines.Text(), "Pss:"); is {
			kilobytes, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(after), " kB"), 10, 54)
			return kilobytes << 10, err == nil
		}
	}
	return 0, errors.Is(lines.Err(), hasEnded)
}

// CPUTime returns the CPU time that all processes have used since the start, also workers that have ended.
func CPUTime() (used time.Duration) {
	worker.WithPIDs(func(pids []int) { used = usedWith(pids) })
	return used
}

// usedWith is CPUTime with these workers, none of which is waited for meanwhile.
func usedWith(pids []int) time.Duration {
	used := self.CPUTime(unix.RUSAGE_SELF) + self.CPUTime(unix.RUSAGE_CHILDREN)
	for _, pid := range pids {
		ofWorker, _ := procscan.CPUTime(pid) // it is a child
		used += ofWorker
	}
	return used
}
