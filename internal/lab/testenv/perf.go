package testenv

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// PerfNeedsAdmin reports whether perf events need CAP_SYS_ADMIN: Debian's kernels want it where
// kernel.perf_event_paranoid is above 2, which it is there by default. It needs root.
func PerfNeedsAdmin(t *testing.T) bool {
	t.Helper()
	var paranoid int
	text := ReadFile(t, "/proc/sys/kernel/perf_event_paranoid")
	if _, err := fmt.Sscan(string(text), &paranoid); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		opened <- openClock()
	}()
	err := <-opened
	assert.Assert(t, err == nil || paranoid > 2 && errors.Is(err, unix.EACCES), err)
	return err != nil
}

// openClock opens and closes a perf event of a CPU, with no capability but CAP_PERFMON, which the
// thread has alone from then on.
func openClock() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	const word, bit = unix.CAP_PERFMON / 32, uint32(1) << (unix.CAP_PERFMON % 32)
	sets[word].Effective, sets[word].Permitted = bit, bit
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return err
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER0,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
