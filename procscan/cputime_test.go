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
		var used unix.Timespec
		assert.NilError(t, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used))
		return time.Duration(used.Nano())
	}
	for usage() < 50*time.Millisecond {
	}
	before := usage()
	used, err := CPUTime(os.Getpid())
	after := usage()
	assert.Check(t, err == nil && before <= used && used <= after,
		"%v, %v; between %v and %v were used", used, err, before, after)
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
