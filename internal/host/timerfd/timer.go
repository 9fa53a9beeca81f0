// Package timerfd has timers that are cheap for a process that is idle in between.
package timerfd

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
)

// A Timer is a timerfd: an event from outside. Before a timer of Go fires, the runtime's monitor
// thread begins to look for it every 20 µs, and that alone is more work than most of what is done
// once a second. Methods are safe for concurrent use, but for one Wait at a time.
type Timer struct {
	file *os.File
	raw  syscall.RawConn
}

// New returns a Timer that is not set. The caller must Close it.
func New() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating timer: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("watching timer: %w", err)
	}
	return &Timer{file: file, raw: raw}, nil
}

// NewTicker returns a Timer that fires at a steady interval: whenever the monotonic clock is a multiple of that. So
// tickers whose intervals are multiples of each other fire together, and wake the process once.
func NewTicker(interval time.Duration) (*Timer, error) {
	t, err := New()
	if err == nil {
		t.set(unix.TFD_TIMER_ABSTIME, sinceBoot().Truncate(interval)+interval, interval)
	}
	return t, err
}

// LastTick returns when a ticker of an interval has fired last, or would have.
func LastTick(interval time.Duration) time.Time {
	return time.Now().Add(-(sinceBoot() % interval))
}

func sinceBoot() time.Duration { return self.Clock(unix.CLOCK_MONOTONIC) }

// Set has the timer fire once after a while, at once if that is not positive. What it was set to
// before does not matter any more.
func (t *Timer) Set(after time.Duration) { t.set(0, max(after, 1), 0) }

// Unset has the timer not fire.
func (t *Timer) Unset() { t.set(0, 0, 0) }

// set cannot fail but on a Timer that is closed.
func (t *Timer) set(flags uintptr, value, interval time.Duration) {
	spec := unix.ItimerSpec{
		Interval: unix.NsecToTimespec(interval.Nanoseconds()),
		Value:    unix.NsecToTimespec(value.Nanoseconds()),
	}
	_ = t.raw.Control(func(fd uintptr) {
		// Raw, because it cannot block: an ordinary system call wakes the runtime's monitor thread.
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, fd, flags, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	})
}

// Wait blocks until the timer fires, and returns an error after Stop. Intervals that were over
// meanwhile are one.
func (t *Timer) Wait() error {
	var expired [8]byte
	var errno syscall.Errno
	err := t.raw.Read(func(fd uintptr) (done bool) {
		_, _, errno = unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expired)), unsafe.Sizeof(expired))
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// Stop ends all waiting.
func (t *Timer) Stop() { _ = t.file.SetReadDeadline(time.Unix(1, 0)) }

// Close frees the timer. Nobody may wait any more.
func (t *Timer) Close() error { return t.file.Close() }
