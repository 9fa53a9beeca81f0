package procscan

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCPUTime(t *testing.T) {
	usage := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for usage() < 50*time.Millisecond {
	}
	before := usage()
	used, err := CPUTime(os.Getpid())
	// Both sums may lack what threads that run have used since the kernel's last tick.
	if after := usage(); err != nil || used < before-20*time.Millisecond || used > after+20*time.Millisecond {
		t.Errorf("%v, %v; between %v and %v were used", used, err, before, after)
	}
}

// A process of another user is read as well, and one that has ended is gone.
func TestCPUTimeOfOthers(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	if used, err := CPUTime(c.Process.Pid); err != nil || used > 10*time.Second {
		t.Errorf("%v, %v", used, err)
	}
	c.Process.Kill()
	c.Wait()
	if _, err := CPUTime(c.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("of one that has ended: %v", err)
	}
	if _, err := CPUTime(1 << 22); !errors.Is(err, ErrGone) {
		t.Errorf("of no process: %v", err)
	}
}

func BenchmarkCPUTime(b *testing.B) {
	pid := os.Getppid()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CPUTime(pid); err != nil {
			b.Fatal(err)
		}
	}
}
