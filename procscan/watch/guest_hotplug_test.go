//go:build guest

package watch

import (
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// CPU 1 goes offline and comes back, seen by Refresh or between two calls of it. The gap is
// reported, and what happens on the CPU after it, too.
func TestEventsHotplug(t *testing.T) {
	const cpu = 1
	w := openWatcher(t, procscan.OnlineCPUs, ringBytes)
	n := runWatcher(t, w)
	refresh := func() {
		t.Helper()
		assert.NilError(t, w.Refresh())
	}
	reported := func() {
		t.Helper()
		var cmd *exec.Cmd
		testenv.OnCPU(t, cpu, func() {
			cmd = exec.Command("sleep", "60")
			assert.NilError(t, cmd.Start())
		})
		n.wait(t, "a program that starts on CPU 1", EventExec, cmd.Process.Pid, 1)
		cmd.Process.Kill()
		cmd.Wait()
	}
	reported()
	for _, seen := range []bool{true, false, false, true} {
		have := n.count(EventLost, 0)
		testenv.SetOnline(t, cpu, false)
		if seen {
			refresh()
		}
		testenv.SetOnline(t, cpu, true)
		refresh()
		refresh()
		n.wait(t, "the gap", EventLost, 0, have+1)
		reported()
	}
}
