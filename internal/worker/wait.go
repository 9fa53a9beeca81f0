package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// A worker that waits for a CPU after the time for a request may take as long again, maxPatience
	// times. One that has answered by then has its answer read within lastChance.
	maxPatience = 4
	lastChance  = time.Millisecond
)

// Wait is the time that a worker has for a request: longer than that, up to a bound, only while it waits for
// nothing but a CPU. Then the machine is busy, or we are throttled, and nobody is to blame. It is not safe for
// concurrent use.
type Wait struct {
	process  *Process
	timeout  time.Duration
	began    time.Time
	deadline time.Time
	maxCPU   time.Duration // of the worker's, at the end of the request
	patience int           // times that it was prolonged
}

// Wait begins a request.
func (p *Process) Wait(timeout time.Duration) *Wait {
	now := time.Now()
	return &Wait{process: p, timeout: timeout, began: now, deadline: now.Add(timeout), maxCPU: p.cpuTime() + timeout}
}

// Prolong adds time in which the worker waited for the caller.
func (w *Wait) Prolong(by time.Duration) { w.deadline = w.deadline.Add(by) }

// Receive is [Process.Receive] until the time is over.
func (w *Wait) Receive() (message []byte, fd int, err error) {
	message, fd, err = w.process.Receive(w.deadline)
	for errors.Is(err, ErrTimeout) && w.patience < maxPatience && w.process.isStarved(w.maxCPU) {
		w.patience++
		w.deadline = time.Now().Add(w.timeout)
		message, fd, err = w.process.Receive(w.deadline)
	}
	if errors.Is(err, ErrTimeout) { // the answer may have come while we had no CPU
		message, fd, err = w.process.Receive(time.Now().Add(lastChance))
	}
	if errors.Is(err, ErrTimeout) {
		cpu, took := w.process.cpuTime()-w.maxCPU+w.timeout, time.Since(w.began)
		err = fmt.Errorf("%w: %v of CPU time in %v", err, cpu.Round(time.Millisecond), took.Round(time.Millisecond))
	}
	return message, fd, err
}

// isStarved reports whether a thread of the worker has a CPU or waits for one, so that it does not hang, and
// all have had less than maxCPU.
func (p *Process) isStarved(maxCPU time.Duration) bool {
	if p.cpuTime() >= maxCPU {
		return false
	}
	fs, err := procfs.NewFS(p.procRoot)
	if err != nil {
		return false
	}
	threads, err := fs.AllThreads(p.pid)
	if err != nil {
		return false
	}
	for _, thread := range threads {
		if stat, err := thread.Stat(); err == nil && stat.State == "R" {
			return true
		}
	}
	return false
}

// cpuTime returns the CPU time of all threads of the worker, as clock_getcpuclockid(3) has it. It is not
// reaped before, so the pid is its own.
func (p *Process) cpuTime() time.Duration {
	const sched = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h
	var now unix.Timespec
	if unix.ClockGettime(int32(^p.pid<<3|sched), &now) != nil {
		return 0 // it has ended
	}
	return time.Duration(now.Nano())
}
