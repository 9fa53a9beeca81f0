package live

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The CPU time of workers is the agent's while they live and when they have ended.
func TestOwnTime(t *testing.T) {
	const burnt = 200 * time.Millisecond
	var own ownTime
	now := time.Now()
	ofChildren := func() time.Duration {
		self := usage(unix.RUSAGE_SELF)
		now = now.Add(listInterval)
		return own.read("/proc", now) - self
	}
	before := ofChildren()
	c := exec.Command("sh", "-c", "while :; do :; done")
	assert.NilError(t, c.Start())
	defer c.Process.Kill()
	assert.Assert(t, slices.Contains(children("/proc"), c.Process.Pid), "the child is not listed")
	testenv.Poll(t, patience, "its CPU time", func() bool { return ofChildren()-before > burnt })
	c.Process.Kill()
	c.Wait()
	after := ofChildren()
	assert.Check(t, after-before >= burnt, "%v are left when it has ended", after-before)
}
