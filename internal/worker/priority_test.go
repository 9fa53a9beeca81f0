package worker

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Workers of a raised kind have a higher priority than the agent, and others have the same.
func TestRaised(t *testing.T) {
	testenv.NeedPriority(t)
	own, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Getpid())
	assert.NilError(t, err)
	for _, raised := range []bool{true, false} {
		kind := testKind
		kind.Raised = raised
		spawner, err := NewSpawner("/proc", kind)
		assert.NilError(t, err)
		process, err := spawner.Start()
		assert.NilError(t, err)
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, process.PID())
		assert.Check(t, err == nil && priority > own == raised, "%d, and %d of the agent, %v", priority, own, err)
		process.Kill()
		<-process.Ended()
		spawner.Close()
	}
}
