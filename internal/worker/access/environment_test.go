package access

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
)

// Any bytes of an environment arrive.
func TestEnvironment(t *testing.T) {
	cmd := exec.Command(testenv.NeedTool(t, "cat"))
	cmd.Env = []string{"OTEL_RESOURCE_ATTRIBUTES=a=b,c=\xff\"\n", "OTEL_SERVICE_NAME=\x1b[31m\xc0shop", "OTHER=1"}
	stdin, _ := testenv.Start(t, cmd)
	client, err := Open("/proc", new(worker.Counters))
	assert.NilError(t, err)
	defer client.Close()
	proc, err := procfs.NewProc(cmd.Process.Pid)
	assert.NilError(t, err)
	stat, err := proc.Stat()
	assert.NilError(t, err)
	p := client.Process(procscan.ProcessID{PID: cmd.Process.Pid, StartTime: stat.Starttime}, "0")
	want := Environment{"\x1b[31m\xc0shop", "a=b,c=\xff\"\n", false}
	var got Environment
	testenv.Poll(t, time.Minute, "the program", func() bool { // it may not have been executed yet
		got, err = p.Environment()
		return err != nil || got != (Environment{})
	})
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	stdin.Close()
	_ = cmd.Wait()
	if got, err := p.Environment(); !errors.Is(err, procscan.ErrGone) || got != (Environment{}) {
		t.Errorf("after the exit: %+v, %v", got, err)
	}
}
