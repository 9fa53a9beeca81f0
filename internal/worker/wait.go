package worker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
)

const (
	// maxPatience is how often a worker that has not answered in time may take as long again, because
	// it has got too little CPU time.
	maxPatience = 4

	// progressPart is the part of the time of which CPU time shows that a worker goes on. A worker of a
	// host with ten busy threads for each CPU gets twice as much; one that hangs in a system call, some
	// hundredths of this.
	progressPart = 20

	// lastChance is how long an answer that has come by then is waited for.
	lastChance = 10 * time.Millisecond

	// A worker that has not answered is looked at after firstLook, and then after twice that at most each time, up
	// to mostBetweenLooks.
	firstLook, mostBetweenLooks = 50 * time.Millisecond, 200 * time.Millisecond
)

// Wait is the time that a worker has for a request. A worker that hangs uses none of it, and one that
// works for too long uses it up as CPU time. One that did neither got too little CPU time: the machine
// is busy, or we are throttled. It has the same time again, up to a bound. It is not safe for concurrent
// use.
type Wait struct {
	process  waited
	timeout  time.Duration
	deadline time.Time
	cpu      time.Duration // that the worker had used when this deadline was set
	maxCPU   time.Duration // that it may have used at the end
	patience int           // times that the deadline was prolonged

	looked    time.Time     // when the worker was looked at last
	lookedCPU time.Duration // what it had used then
	wouldRun  bool          // it was runnable
	pause     time.Duration // until the next look
	starved   time.Duration // in which it was runnable, and did not run
}

// waited is a [Process] that is waited for.
type waited interface {
	Receive(deadline time.Time) (message []byte, fd int, err error)
	cpuTime() time.Duration
	reads() uint64
	isRunnable() bool
}

// Wait begins a request.
func (p *Process) Wait(timeout time.Duration) *Wait { return newWait(p, timeout) }

func newWait(p waited, timeout time.Duration) *Wait {
	cpu, now := p.cpuTime(), time.Now()
	return &Wait{process: p, timeout: timeout, deadline: now.Add(timeout), cpu: cpu, maxCPU: cpu + timeout,
		looked: now, lookedCPU: cpu, pause: firstLook}
}

// Prolong adds time in which the worker waited for the caller.
func (w *Wait) Prolong(by time.Duration) {
	w.deadline, w.looked = w.deadline.Add(by), w.looked.Add(by)
}

// Receive is [Process.Receive] until the time is over. The error is ErrStarved instead of ErrTimeout if
// the worker got too little CPU time until the end.
func (w *Wait) Receive() (message []byte, fd int, err error) {
	for {
		until := w.deadline
		if next := w.looked.Add(w.pause); next.Before(until) {
			until = next
		}
		message, fd, err = w.process.Receive(until)
		if now := time.Now(); errors.Is(err, ErrTimeout) && !now.Before(until) && now.Before(w.deadline) {
			w.look() // else it is over, or was interrupted
			continue
		}
		if errors.Is(err, ErrTimeout) { // the answer may have come while we had no CPU
			message, fd, err = w.process.Receive(time.Now().Add(lastChance))
		}
		if !errors.Is(err, ErrTimeout) {
			return message, fd, err
		}
		w.look()
		cpu, runnable := w.lookedCPU, w.wouldRun
		goesOn := runnable || cpu-w.cpu >= w.timeout/progressPart
		switch {
		case cpu >= w.maxCPU || !goesOn || w.patience == maxPatience && !runnable:
			used := cpu - w.maxCPU + w.timeout
			return nil, -1, fmt.Errorf("%w: %v of CPU time", err, used.Round(time.Millisecond))
		case w.patience == maxPatience:
			return nil, -1, ErrStarved
		}
		w.patience++
		w.cpu, w.deadline = cpu, time.Now().Add(w.timeout)
	}
}

// look notes what the worker did since it was looked at last, by what it does now.
func (w *Wait) look() {
	w.wouldRun = w.process.isRunnable()
	w.starved = w.Starved()
	w.looked, w.lookedCPU, w.pause = time.Now(), w.process.cpuTime(), min(2*w.pause, mostBetweenLooks)
}

// Starved returns for how long the worker would have run if there had been a CPU for it, as far as looks at it tell:
// not within the first 50 ms, and each tells of the time since the last one. It is not to blame for that, nor is who
// it works for.
func (w *Wait) Starved() time.Duration {
	if !w.wouldRun {
		return w.starved
	}
	ran := max(0, w.process.cpuTime()-w.lookedCPU) // 0 when it has ended
	return w.starved + max(0, time.Since(w.looked)-ran)
}

// A Pulse tells whether a worker goes on that was asked for much at once. It is not safe for concurrent use.
type Pulse struct {
	process waited
	cpu     time.Duration
	reads   uint64
}

// minBeat is the CPU time that is no sign of life: that of Go's runtime where all threads hang.
const minBeat = 10 * time.Millisecond

// Pulse begins now.
func (p *Process) Pulse() *Pulse { return newPulse(p) }

func newPulse(p waited) *Pulse { return &Pulse{process: p, cpu: p.cpuTime(), reads: p.reads()} }

// Beats reports whether the worker has used CPU time since the last call, or got an answer from a file system; or
// would go on if there were a CPU for it.
func (p *Pulse) Beats() bool {
	cpu, reads := p.process.cpuTime(), p.process.reads()
	beats := cpu-p.cpu >= minBeat || reads != p.reads || p.process.isRunnable()
	p.cpu, p.reads = cpu, reads
	return beats
}

// reads returns how many reads the worker has finished, of whatever files; zero where that is not known.
func (p *Process) reads() uint64 {
	text, err := os.ReadFile(path.Join(p.procRoot, strconv.Itoa(p.pid), "io"))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "syscr: ")
	count, _, _ := strings.Cut(after, "\n")
	n, _ := strconv.ParseUint(count, 10, 64)
	return n
}

// isRunnable reports whether the worker has a CPU or waits for one, or for what no process can make it wait for.
func (p *Process) isRunnable() bool {
	tasks := path.Join(p.procRoot, strconv.Itoa(p.pid), "task")
	ids, err := procdir.IDs(tasks)
	if err != nil {
		return false
	}
	var threads []thread
	for _, id := range ids {
		task := path.Join(tasks, strconv.Itoa(id))
		state, _ := procdir.Stat(task, 3)                  // none if it has ended
		call, _ := os.ReadFile(path.Join(task, "syscall")) // the same
		threads = append(threads, thread{state, string(call)})
	}
	return areRunnable(threads)
}

// thread is a thread of a worker: its state, and the system call in which it waits, as proc_pid_syscall(5) shows it.
type thread struct{ state, call string }

// areRunnable is isRunnable for the threads of a worker. When one changes some eBPF tables, the kernel waits for the
// end of programs, which takes long where the kernel's own threads get no CPU. One that reads a process or a file, and
// waits, is that which serves: of what the others do meanwhile, the Go runtime's monitor for one, nothing follows.
func areRunnable(threads []thread) (runnable bool) {
	for _, t := range threads {
		switch {
		case t.state == "R":
			runnable = true
		case isIn(t.call, unix.SYS_BPF):
			return true
		case isIn(t.call, unix.SYS_PREAD64), isIn(t.call, unix.SYS_PROCESS_VM_READV):
			return false
		}
	}
	return runnable
}

// isIn reports whether a thread waits in a system call.
func isIn(call string, number int) bool {
	shown, _, _ := strings.Cut(call, " ")
	return shown == strconv.Itoa(number)
}

// cpuTime returns the CPU time of all threads of the worker, as clock_getcpuclockid(3) has it. It is not
// reaped before, so the pid is its own.
func (p *Process) cpuTime() time.Duration {
	const sched = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h
	var now unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(^p.pid<<3|sched), uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0 // it has ended
	}
	return time.Duration(now.Nano())
}
