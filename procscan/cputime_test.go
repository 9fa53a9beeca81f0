package procscan

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCPUTime(t *testing.T) {
	self := ProcessID{PID: os.Getpid()}
	var err error
	if self.StartTime, err = startTime("/proc", self.PID); err != nil {
		t.Fatal(err)
	}
	usage := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for usage() < 50*time.Millisecond { // more than two steps, which is what may be missing
	}
	before := usage()
	used, err := CPUTime("/proc", self)
	if after := usage(); err != nil || used < before-20*time.Millisecond || used > after+20*time.Millisecond {
		t.Errorf("%v, %v; between %v and %v were used", used, err, before, after)
	}
	self.StartTime--
	if _, err := CPUTime("/proc", self); !errors.Is(err, ErrGone) {
		t.Errorf("another process with the pid: %v", err)
	}
	if _, err := CPUTime("/proc", ProcessID{PID: 1 << 22}); !errors.Is(err, ErrGone) {
		t.Errorf("no process: %v", err)
	}
}
