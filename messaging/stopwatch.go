package messaging

import (
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopwatch measures what a goroutine spends that sends by raw system calls: CPU time, for on a busy machine any
// call may take long. If that is not known, since it has gone on in another thread, it is the time that has passed.
type stopwatch struct {
	began time.Time
	tid   uintptr
	cpu   time.Duration
}

func newStopwatch() stopwatch {
	tid, cpu := threadTime()
	return stopwatch{time.Now(), tid, cpu}
}

func (s *stopwatch) time() time.Duration {
	passed := time.Since(s.began)
	if passed <= slowTime {
		return passed // at most so much was spent
	}
	tid, cpu := threadTime()
	if tid != s.tid {
		return passed
	}
	return min(passed, cpu-s.cpu)
}

// threadTime returns the CPU time of the thread by raw system calls: ordinary ones wake the monitor thread of the Go
// runtime.
func threadTime() (tid uintptr, cpu time.Duration) {
	tid, _, _ = unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	var now unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID,
		uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return tid, math.MaxInt64 // then all that has passed counts
	}
	return tid, time.Duration(now.Nano())
}
