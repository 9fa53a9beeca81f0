package bpf

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrGone reports that a process has no thread that could run its code: it has exited, is a zombie
// or a kernel thread, or our pid namespace has no process with this pid.
var ErrGone = errors.New("process gone")

// ErrTooManyThreads reports that a process has more threads than [Threads.Process] returns.
var ErrTooManyThreads = errors.New("too many threads")

// maxThreads limits the threads of one process to the default of a whole machine (kernel.pid_max,
// before an administrator or systemd raises it). The largest JVMs have some thousands. So many
// threads take 1.3 MB, and a walk some milliseconds. A process may start up to 4 million where that
// is allowed.
const maxThreads = 32 << 10

// A Thread is a thread as the kernel sees it. PID and TID are those of our own pid namespace.
type Thread struct {
	PID, TID int

	// StartTime, in ns since boot, distinguishes the thread from a later one with the same TID.
	// Field 22 of /proc/PID/task/TID/stat is the same in ticks, except in a time namespace with an
	// offset of the boot time, which is added there and not here.
	StartTime uint64

	// ThreadPointer is an address in the process: the fs base on x86-64, tpidr_el0 on arm64. It is
	// 0 where there is none, and on arm64 for a main thread that the kernel has not switched out
	// since it set the register.
	ThreadPointer uint64
}

// Threads lists threads. All methods but Close are safe for concurrent use, and calls do not wait
// for one another.
//
// A result is not a snapshot: it contains every thread that lives during the whole call once, and
// perhaps threads that start or end meanwhile. Threads that run no code of their process are left
// out: kernel threads, io_uring's workers, and exiting threads.
type Threads struct {
	program *ebpf.Program
	filters bool      // the kernel can walk a single process
	limit   int       // maxThreads
	buffers sync.Pool // of *recordBuffer
}

// recordBuffer is as large as the kernel's own buffer of an iterator (8 pages of 4 KiB), which is
// the most that a read returns.
type recordBuffer [1024]threadsThreadRecord

const recordBytes = int(unsafe.Sizeof(threadsThreadRecord{}))

// OpenThreads loads the program; the caller must Close. The error is a [MissingError] when the
// machine or the process lacks something.
func OpenThreads() (*Threads, error) {
	spec, err := shared.read(threadsObject)
	if err != nil {
		return nil, err
	}
	var programs threadsPrograms
	if err := load(spec, &programs, ebpf.CollectionOptions{}); err != nil {
		return nil, fmt.Errorf("loading task iterator: %w", err)
	}
	t := &Threads{program: programs.ReportThread, limit: maxThreads}
	t.buffers.New = func() any { return new(recordBuffer) }
	if t.filters, err = canFilter(t.program); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close unloads the program. There must be no other calls during or after Close.
func (t *Threads) Close() error {
	return t.program.Close()
}

// Process appends the threads of one process to into and returns the result; with an error, such as
// [ErrGone] or [ErrTooManyThreads], it returns into unchanged. Kernels before 6.1 cannot walk a
// single process: there it costs as much as All, which callers should use for many processes.
func (t *Threads) Process(pid int, into []Thread) ([]Thread, error) {
	if pid <= 0 || pid > math.MaxInt32 {
		return into, ErrGone
	}
	filter := uint32(everyProcess)
	if t.filters {
		filter = uint32(pid)
	}
	threads, complete, err := t.walk(filter, uint32(pid), into)
	for try := 1; err == nil && !complete && try < filteredTries; try++ {
		threads, complete, err = t.walk(filter, uint32(pid), into)
	}
	if err == nil && !complete {
		threads, _, err = t.walk(everyProcess, uint32(pid), into)
	}
	if err != nil {
		return into, err
	}
	if len(threads) == len(into) {
		return into, ErrGone
	}
	return threads, nil
}

// filteredTries is how often a process is walked before all processes are walked instead, which
// costs as much as the machine has threads. If a process ends threads as fast as it can, one walk
// in 50 is incomplete.
const filteredTries = 4

// everyProcess is passed instead of a pid for all processes.
const everyProcess = 0

// walk appends the threads of process wanted that the kernel finds when it walks process filter.
// complete is false when the walk may have ended before the last thread: the kernel goes from a
// thread to the next in the process's list, and finds none when that thread was reaped in between.
// The walk of all processes goes by number and is always complete.
func (t *Threads) walk(filter, wanted uint32, into []Thread) (threads []Thread, complete bool, err error) {
	fd, err := openTaskIterator(t.program, filter)
	if err != nil {
		return into, false, err
	}
	defer unix.Close(fd)
	buffer := t.buffers.Get().(*recordBuffer)
	defer t.buffers.Put(buffer)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), unsafe.Sizeof(*buffer))

	threads, complete = into, true
	for {
		n, err := unix.Read(fd, raw)
		switch {
		case err != nil:
			return into, false, fmt.Errorf("reading task iterator: %w", err)
		case n == 0:
			return threads, complete, nil
		case n%recordBytes != 0:
			return into, false, fmt.Errorf("reading task iterator: %d bytes are no whole records", n)
		}
		records := buffer[:n/recordBytes]
		threads = appendThreads(threads, records, wanted)
		if wanted != everyProcess && len(threads)-len(into) > t.limit {
			return into, false, fmt.Errorf("%w: more than %d", ErrTooManyThreads, t.limit)
		}
		complete = filter == everyProcess || records[len(records)-1].Last != 0
	}
}

func appendThreads(threads []Thread, records []threadsThreadRecord, wanted uint32) []Thread {
	for i := range records {
		r := &records[i]
		if r.User == 0 || wanted != everyProcess && wanted != r.Pid {
			continue
		}
		threads = append(threads, Thread{
			PID: int(r.Pid), TID: int(r.Tid), StartTime: r.StartTime, ThreadPointer: r.ThreadPointer,
		})
	}
	return threads
}
