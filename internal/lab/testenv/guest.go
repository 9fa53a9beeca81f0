//go:build guest

package testenv

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// SetOnline takes a CPU offline, at most until the end of the test, or brings it online.
func SetOnline(t testing.TB, cpu int, online bool) {
	t.Helper()
	file := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu)
	value := "1"
	if !online {
		value = "0"
		t.Cleanup(func() {
			assert.Check(t, os.WriteFile(file, []byte("1"), 0))
		})
	}
	assert.NilError(t, os.WriteFile(file, []byte(value), 0))
}

// Pin has a thread, or the calling one if tid is 0, run on one CPU only. The kernel forgets that
// when the CPU goes offline.
func Pin(t testing.TB, tid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	assert.NilError(t, unix.SchedSetaffinity(tid, &set))
}

// OnCPU calls f on a thread that runs on one CPU only, as do the processes that f starts.
func OnCPU(t testing.TB, cpu int, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &before))
	Pin(t, 0, cpu)
	f()
	assert.NilError(t, unix.SchedSetaffinity(0, &before))
}
