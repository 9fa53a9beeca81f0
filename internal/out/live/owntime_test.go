package live

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	if !slices.Contains(children("/proc"), c.Process.Pid) {
		t.Fatal("the child is not listed")
	}
	testenv.Poll(t, patience, "its CPU time", func() bool { return ofChildren()-before > burnt })
	c.Process.Kill()
	c.Wait()
	if after := ofChildren(); after-before < burnt {
		t.Errorf("%v are left when it has ended", after-before)
	}
}
