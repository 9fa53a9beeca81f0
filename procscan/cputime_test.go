package procscan

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestCPUTime(t *testing.T) {
	usage := func() time.Duration {
		var u unix.Rusage
		assert.NilError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
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
	assert.NilError(t, c.Start())
	defer c.Process.Kill()
	used, err := CPUTime(c.Process.Pid)
	assert.Check(t, err == nil && used <= 10*time.Second, "%v, %v", used, err)
	c.Process.Kill()
	c.Wait()
	_, err = CPUTime(c.Process.Pid)
	assert.Check(t, errors.Is(err, ErrGone), "of one that has ended: %v", err)
	_, err = CPUTime(1 << 22)
	assert.Check(t, errors.Is(err, ErrGone), "of no process: %v", err)
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
