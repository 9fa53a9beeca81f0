package priority

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
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

// All threads of a process that gets no CPU have the highest priority, and those that begin later; others stay.
func TestRaiseStarved(t *testing.T) {
	testenv.NeedPriority(t)
	root := t.TempDir()
	pid := strconv.Itoa(os.Getpid())
	for _, of := range []string{pid, "1" + pid} {
		assert.NilError(t, os.MkdirAll(filepath.Join(root, of), 0o755))
		assert.NilError(t, os.Symlink("/proc/self/task", filepath.Join(root, of, "task")))
	}
	self := filepath.Join(root, "self")
	assert.NilError(t, os.Symlink(pid, self))
	of := func(tid int) int { // its nice value
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if errors.Is(err, unix.ESRCH) { // it has ended
			return highest
		}
		assert.NilError(t, err)
		return 20 - priority
	}
	threads := func() (tids []int) {
		entries, err := os.ReadDir("/proc/self/task")
		assert.NilError(t, err)
		for _, entry := range entries {
			tid, err := strconv.Atoi(entry.Name())
			assert.NilError(t, err)
			tids = append(tids, tid)
		}
		return tids
	}
	before := of(0)
	t.Cleanup(func() {
		for _, tid := range threads() {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, before)
		}
	})
	const starved = "100000000 5000000000 7\n"
	for _, text := range []string{
		"", "100000000\n", "100000000 4999999999 7\n", "0 0 0\n", "0 5000000000 1\n", "1000 999999999 7\n",
	} {
		testenv.WriteFile(t, filepath.Join(root, "self/schedstat"), text)
		assert.Check(t, !RaiseStarved(root) && of(0) == before, text)
	}
	parent := of(unix.Getppid())
	testenv.WriteFile(t, filepath.Join(root, "1"+pid, "schedstat"), []byte(starved))
	assert.NilError(t, os.Remove(self))
	assert.NilError(t, os.Symlink("1"+pid, self)) // as in another pid namespace
	assert.Check(t, !RaiseStarved(root) && of(0) == before)
	assert.NilError(t, os.Remove(self))
	assert.NilError(t, os.Symlink(pid, self))
	testenv.WriteFile(t, filepath.Join(root, "self/schedstat"), []byte(starved))
	var on sync.WaitGroup // threads that end
	on.Go(func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		assert.Check(t, unix.Capset(&header, &none[0]))
		assert.Check(t, !RaiseStarved(root) && of(0) == before)
	})
	on.Wait()
	assert.Check(t, RaiseStarved(root))
	raised := threads()
	for _, tid := range raised {
		assert.Check(t, of(tid) == highest, "%d has %d", tid, of(tid))
	}
	var began sync.WaitGroup
	began.Add(len(raised) + 1)
	for range len(raised) + 1 { // at the same time: one of them has a thread that is none of those
		on.Go(func() {
			runtime.LockOSThread()
			began.Done()
			began.Wait()
			assert.Check(t, of(0) == highest)
		})
	}
	on.Wait()
	assert.Check(t, of(unix.Getppid()) == parent)
}
