package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// A worker that is starved at the end of the time for a request may take as long again, maxPatience
	// times. One that has answered by then has its answer read within lastChance.
	maxPatience = 4
	lastChance  = time.Millisecond

	// Its threads are watched for one watchedPart'th of the time, the last. It is starved if they wait for a CPU for
	// one starvedPart'th of that, or more: a thread that gets none also keeps others waiting, by its locks.
	watchedPart = 10
	starvedPart = 4
)

// Wait is the time that a worker has for a request. One that still wants a CPU then, and has had less of it than
// that, may take longer, up to a bound: the machine is busy, or we are throttled, and nobody is to blame. It is not
// safe for concurrent use.
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
	for {
		message, fd, err = w.process.Receive(w.deadline.Add(-w.timeout / watchedPart))
		if !errors.Is(err, ErrTimeout) {
			return message, fd, err
		}
		before := w.process.demand()
		message, fd, err = w.process.Receive(w.deadline)
		if !errors.Is(err, ErrTimeout) || w.patience == maxPatience || !w.process.isStarved(before, w.maxCPU) {
			break
		}
		w.patience++
		w.deadline = time.Now().Add(w.timeout)
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

// demand is how long the threads of a worker have waited for a CPU until a time.
type demand struct {
	at       time.Time
	runDelay time.Duration // of all threads, without waits that go on; 0 where the kernel does not count it
	runnable bool          // one has a CPU or waits for one
}

// demand returns that of now; zero where it cannot be read.
func (p *Process) demand() (d demand) {
	d.at = time.Now()
	fs, err := procfs.NewFS(p.procRoot)
	if err != nil {
		return d
	}
	threads, err := fs.AllThreads(p.pid)
	if err != nil {
		return d
	}
	for _, thread := range threads {
		if stat, err := thread.Stat(); err == nil && stat.State == "R" {
			d.runnable = true
		}
		if times, err := thread.Schedstat(); err == nil {
			d.runDelay += time.Duration(times.WaitingNanoseconds)
		}
	}
	return d
}

// isStarved reports whether the worker goes on, as soon as it gets a CPU, so that it does not hang: a thread has
// one or waits for one, or threads have waited for long enough since before. And all have had less than maxCPU.
func (p *Process) isStarved(before demand, maxCPU time.Duration) bool {
	if p.cpuTime() >= maxCPU {
		return false
	}
	now := p.demand()
	return now.runnable || now.runDelay-before.runDelay >= now.at.Sub(before.at)/starvedPart
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
