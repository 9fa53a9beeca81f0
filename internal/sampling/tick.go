package sampling

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A tick fires at a steady interval. It does what a time.Ticker does for less:
// before a timer of Go fires, the runtime's monitor thread begins to look for it every 20 µs, and
// that alone is more work than most drains are. A timerfd is an event from outside.
type tick struct {
	file *os.File
	raw  syscall.RawConn
}

func newTick(interval time.Duration) (*tick, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating timer: %w", err)
	}
	every := unix.NsecToTimespec(interval.Nanoseconds())
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("setting timer: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("watching timer: %w", err)
	}
	return &tick{file: file, raw: raw}, nil
}

// wait blocks until the interval is over, and returns an error after stop. Intervals that were over
// meanwhile are one.
func (t *tick) wait() error {
	var expired [8]byte
	var errno syscall.Errno
	err := t.raw.Read(func(fd uintptr) (done bool) {
		// Raw, because it cannot block: an ordinary system call wakes the runtime's monitor thread.
		_, _, errno = unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expired)), unsafe.Sizeof(expired))
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// stop ends all waiting.
func (t *tick) stop() { _ = t.file.SetReadDeadline(time.Unix(1, 0)) }

func (t *tick) close() error { return t.file.Close() }
