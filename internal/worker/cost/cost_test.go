package cost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/self"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
)

// burning is a kind of worker that answers when it has used so much CPU time, and does not end by itself.
var burning = worker.Kind{
	Name: "burning", MemoryBytes: 1 << 30,
	Serve: func(_ string, conn *worker.Conn) {
		for {
			message, err := conn.Receive()
			if err != nil {
				return
			}
			for self.CPUTime(unix.RUSAGE_SELF) < burnt {
			}
			if conn.Send(message, -1) != nil {
				return
			}
		}
	},
}

const burnt = 200 * time.Millisecond

func TestMain(m *testing.M) {
	worker.Main(burning)
	os.Exit(m.Run())
}

// The sum has the workers, and the CPU time of those that have ended; memory is unknown where it is not readable of
// one.
func TestRead(t *testing.T) {
	meter := NewMeter("/proc")
	meter.patience = time.Minute
	before := meter.Read()
	assert.Check(t, before.Processes == 1 && before.PSSBytes > 1<<20 && before.CPUSeconds > 0, "%+v", before)
	spawner, err := worker.NewSpawner("/proc", burning)
	assert.NilError(t, err)
	defer spawner.Close()
	process, err := spawner.Start()
	assert.NilError(t, err)
	assert.NilError(t, process.Send([]byte("burn")))
	_, _, err = process.Receive(time.Now().Add(time.Minute))
	assert.NilError(t, err)
	with := meter.Read()
	assert.Check(t, with.Processes == 2 && with.CPU() >= before.CPU()+burnt, "%+v, before %+v", with, before)
	assert.Check(t, CPUTime() >= with.CPU())
	if os.Geteuid() == 0 {
		assert.Check(t, with.PSSBytes > 1<<20, "%+v", with)
	}
	process.Kill()
	<-process.Ended()
	after := meter.Read()
	assert.Check(t, after.Processes == 1 && after.CPU() >= with.CPU(), "%+v, with the worker %+v", after, with)
	unreadable := NewMeter(t.TempDir()).Read()
	assert.Check(t, unreadable.PSSBytes == 0 && unreadable.CPU() >= after.CPU() && unreadable.Processes == 1, "%+v",
		unreadable)
}

// A file of one process that does not tell its memory makes the sum unknown, as does one that never tells; then
// nobody waits for longer than patience, and no more than one waits for the kernel. Once that ends, all is known.
func TestMemoryUnknown(t *testing.T) {
	root := t.TempDir()
	rollup := func(content string) *os.File {
		path := filepath.Join(root, "smaps_rollup")
		testenv.WriteFile(t, path, content)
		file, err := os.Open(path)
		assert.NilError(t, err)
		return file
	}
	meter := NewMeter(root)
	meter.patience = time.Minute
	const good = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nPss:            1234 kB\nPss_Dirty: 1 kB\n"
	assert.Check(t, meter.memory([]*os.File{rollup(good), rollup(good)}) == 2*1234<<10)
	for _, bad := range []string{"", "Pss: x kB\n", "Pss: -1 kB\n", "Rss: 1 kB\n", "Pss: 99999999999999999999 kB\n"} {
		assert.Check(t, meter.memory([]*os.File{rollup(good), rollup(bad)}) == 0, "%q", bad)
	}
	read, write, err := os.Pipe()
	assert.NilError(t, err)
	meter.patience = time.Millisecond
	assert.Check(t, meter.memory([]*os.File{read}) == 0)
	assert.Check(t, meter.memory([]*os.File{rollup(good)}) == 0) // the first still waits
	meter.patience = time.Minute
	write.Close()
	testenv.Poll(t, time.Minute, "the end of what waits", func() bool { return len(meter.measuring) == 0 })
	assert.Check(t, meter.memory([]*os.File{rollup(good)}) == 1234<<10)
}

// A worker that ends meanwhile has no memory any more: that of the others is told all the same.
func TestMemoryOfEnded(t *testing.T) {
	child := exec.Command("sleep", "1h")
	assert.NilError(t, child.Start())
	path := fmt.Sprintf("/proc/%d/smaps_rollup", child.Process.Pid)
	file, err := os.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	assert.NilError(t, child.Process.Kill())
	var info unix.Siginfo // it ends, and stays a child
	assert.NilError(t, unix.Waitid(unix.P_PID, child.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil))
	bytes, known := proportional(file)
	assert.Check(t, bytes == 0 && known)
	again, err := os.Open(path)
	if err == nil { // as the kernel's version is
		defer again.Close()
		bytes, known = proportional(again)
		assert.Check(t, bytes == 0 && known)
	} else {
		assert.Check(t, errors.Is(err, hasEnded), err)
	}
	_ = child.Wait()
}
