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

	// Its threads are watched for the last watchedPart'th of the time. It is starved if they have waited for a CPU
	// for a starvedPart'th of that: a thread without one also keeps others waiting, by the locks that it holds.
	watchedPart = 10
	starvedPart = 4
)

// Wait is the time that a worker has for a request. One that is starved at its end, and has used less CPU time than
// that, gets it again, up to a bound: the machine is busy, or we are throttled, and nobody is to blame. It is not
// safe for concurrent use.
type Wait struct {
	process  *Process
	timeout  time.Duration
	began    time.Time
	deadline time.Time
	limit    time.Time     // which no deadline exceeds, however late we come
	watched  runDelays     // when watching began for this deadline, else zero
	maxCPU   time.Duration // of the worker's, at the end of the request
	patience int           // times that it was prolonged
}

// Wait begins a request.
func (p *Process) Wait(timeout time.Duration) *Wait {
	now := time.Now()
	return &Wait{process: p, timeout: timeout, began: now, deadline: now.Add(timeout),
		limit: now.Add((1 + maxPatience) * timeout), maxCPU: p.cpuTime() + timeout}
}

// Prolong adds time in which the worker waited for the caller.
func (w *Wait) Prolong(by time.Duration) {
	w.deadline, w.limit, w.watched = w.deadline.Add(by), w.limit.Add(by), runDelays{}
}

// Receive is [Process.Receive] until the time is over. Where we come late to watch the worker, it is watched no
// shorter for that, but not beyond the limit.
func (w *Wait) Receive() (message []byte, fd int, err error) {
	for {
		message, fd, err = w.process.Receive(w.deadline.Add(-w.timeout / watchedPart))
		if !errors.Is(err, ErrTimeout) {
			return message, fd, err
		}
		if w.watched.at.IsZero() {
			w.watched = w.process.runDelays()
		}
		end := w.watched.at.Add(w.timeout / watchedPart)
		if end.Before(w.deadline) {
			end = w.deadline
		}
		message, fd, err = w.process.Receive(w.within(end))
		if !errors.Is(err, ErrTimeout) || w.patience == maxPatience || !w.isStarved() {
			break
		}
		w.patience++
		w.deadline, w.watched = w.within(time.Now().Add(w.timeout)), runDelays{}
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

// within returns a time, or the limit if that is earlier.
func (w *Wait) within(t time.Time) time.Time {
	if t.After(w.limit) {
		return w.limit
	}
	return t
}

// isStarved reports whether the worker goes on as soon as it gets a CPU, so that it does not hang, and has used
// less CPU time than it may.
func (w *Wait) isStarved() bool {
	return w.process.cpuTime() < w.maxCPU && w.watched.starved(w.process.runDelays())
}

// runDelays is how long the threads of a worker have waited for a CPU until a time.
type runDelays struct {
	at       time.Time
	of       map[int]time.Duration // by thread, without a wait that goes on; 0 where the kernel does not count it
	runnable bool                  // one has a CPU or waits for one
}

// runDelays returns those of now, without threads that cannot be read.
func (p *Process) runDelays() runDelays {
	d := runDelays{at: time.Now(), of: make(map[int]time.Duration)}
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
			d.of[thread.PID] = time.Duration(times.WaitingNanoseconds)
		}
	}
	return d
}

// starved reports whether a thread is runnable now, or threads have waited for a CPU for long enough since before.
// The kernel adds a wait when it ends: one that began before that counts as all that has passed, at most. A thread
// that was not there does not count.
func (before runDelays) starved(now runDelays) bool {
	passed, waited := now.at.Sub(before.at), time.Duration(0)
	for tid, delay := range now.of {
		if earlier, known := before.of[tid]; known {
			waited += min(delay-earlier, passed)
		}
	}
	return now.runnable || waited >= passed/starvedPart
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
