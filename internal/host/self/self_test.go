package self

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// What was used grows as it is used, by the same time for the thread and the process, and by all clocks.
func TestUsed(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const burnt = 20 * time.Millisecond
	read := map[string]func() time.Duration{
		"thread's clock":  func() time.Duration { return Clock(unix.CLOCK_THREAD_CPUTIME_ID) },
		"process's clock": func() time.Duration { return Clock(unix.CLOCK_PROCESS_CPUTIME_ID) },
		"thread":          func() time.Duration { return CPUTime(unix.RUSAGE_THREAD) },
		"process":         func() time.Duration { return CPUTime(unix.RUSAGE_SELF) },
	}
	before := make(map[string]time.Duration)
	for what, now := range read {
		before[what] = now()
	}
	began, boot := time.Now(), Clock(unix.CLOCK_MONOTONIC)
	testenv.Poll(t, time.Minute, "CPU time by all", func() bool {
		for start := read["thread"](); read["thread"]()-start < burnt; {
		}
		all := true
		for what, now := range read {
			all = all && now()-before[what] > burnt
		}
		return all
	})
	passed := Clock(unix.CLOCK_MONOTONIC) - boot
	assert.Check(t, passed > burnt && passed <= time.Since(began)+time.Second, "%v", passed)
}

// The effective capabilities are those that the kernel says.
func TestEffective(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status, err := os.ReadFile("/proc/thread-self/status")
	assert.NilError(t, err)
	all, err := Effective()
	assert.NilError(t, err)
	assert.Check(t, strings.Contains(string(status), fmt.Sprintf("CapEff:\t%016x\n", uint64(all))), "%x", all)
	for capability := range 64 {
		assert.Check(t, Capabilities(1<<capability).Has(capability) && !(all&^(1<<capability)).Has(capability))
	}
}
