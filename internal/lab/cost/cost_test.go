package cost

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The run time of a process has that of its threads, and of children that have ended and were waited for; its family
// has its descendants.
func TestRunTime(t *testing.T) {
	const burn = `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`
	child := exec.Command("sh", "-c", "sh -c '"+burn+"'; echo done; sleep 600 & wait")
	stdout, err := child.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, child.Start())
	pid := child.Process.Pid
	defer func() {
		for _, pid := range Family(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_ = child.Wait()
	}()
	_, err = stdout.Read(make([]byte, 1))
	assert.NilError(t, err)
	var own unix.Timespec
	assert.NilError(t, unix.ClockGettime(int32(^pid<<3|2), &own))
	sum := RunTime([]int{pid})
	assert.Check(t, own.Nano() > 0 && sum >= time.Duration(own.Nano())+tick, "%v, of which %v its own", sum, own)
	assert.Check(t, RunTime([]int{1 << 30}) == 0)
	testenv.Poll(t, time.Minute, "the second child", func() bool { return len(Family(pid)) == 2 })
	assert.Check(t, ProportionalMB(Family(pid)) > 0)
}
