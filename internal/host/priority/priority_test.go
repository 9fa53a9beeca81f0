package priority

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The thread of one goroutine has a higher priority, and no other has.
func TestRaise(t *testing.T) {
	testenv.NeedPriority(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	assert.NilError(t, err)
	raised := make(chan int)
	go func() {
		Raise()
		after, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
		raised <- after
	}()
	assert.Check(t, <-raised == before+steps)
	other, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	assert.Check(t, err == nil && other == before, "%d, %v", other, err)
}
