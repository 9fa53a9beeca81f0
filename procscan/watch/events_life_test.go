package watch

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/procscan"
	"correlator/procscan/internal/child"
)

// CPUs go offline and come online.
func TestEventsRefresh(t *testing.T) {
	cpus, err := procscan.ReadCPUs(procscan.OnlineCPUs)
	assert.NilError(t, err)
	list, f := filepath.Join(t.TempDir(), "online"), createLibrary(t)
	untilNoOverrun(t, func() *counts { return testRefresh(t, cpus, list, f) })
}

func testRefresh(t *testing.T, cpus []int, list string, f *os.File) *counts {
	write := func(text string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(list, []byte(text), 0o600))
	}
	write("0\n")
	w := openWatcher(t, list, ringBytes)
	n := runWatcher(t, w)
	rings := func() map[int]*perfRing {
		w.mu.Lock()
		defer w.mu.Unlock()
		return maps.Clone(w.rings)
	}
	refresh := func(want []int) {
		t.Helper()
		assert.NilError(t, w.Refresh())
		got := slices.Sorted(maps.Keys(rings()))
		assert.Check(t, slices.Equal(got, want), "watching CPUs %v, want %v", got, want)
	}
	refresh([]int{0})
	mapOnEachCPU(t, f)
	mapped := 1
	n.waitOrOverrun(t, "a mapping on CPU 0", EventLibrary, os.Getpid(), mapped)
	everywhere := func() {
		t.Helper()
		mapped += mapOnEachCPU(t, f)
		n.waitOrOverrun(t, "a mapping on each CPU", EventLibrary, os.Getpid(), mapped)
	}

	w.mu.Lock()
	w.list = procscan.OnlineCPUs
	w.mu.Unlock()
	have := n.count(EventLost, 0)
	refresh(cpus)
	if len(cpus) > 1 {
		n.gaps++
		n.wait(t, "the gap", EventLost, 0, have+1)
	}
	everywhere()
	same := rings()
	refresh(cpus)
	everywhere()
	for cpu, ring := range rings() {
		assert.Check(t, ring == same[cpu], "the ring of CPU %d was replaced, but the CPUs are the same", cpu)
	}

	// As for a CPU that was offline for a moment.
	w.mu.Lock()
	for _, ring := range w.rings {
		for _, fd := range []int{ring.fd, ring.waker} {
			assert.Check(t, unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0))
		}
	}
	w.mu.Unlock()
	have = n.count(EventLost, 0)
	refresh(cpus) // the time enabled has grown since the refresh before
	refresh(cpus)
	n.gaps++
	n.wait(t, "the gap of a CPU that was offline", EventLost, 0, have+1)
	everywhere()

	w.mu.Lock()
	w.list = list
	w.mu.Unlock()
	have = n.count(EventLost, 0)
	refresh([]int{0})
	if len(cpus) > 1 {
		n.gaps++
		n.wait(t, "the unread ring of a CPU that is offline", EventLost, 0, have+1)
	}
	write("0,8191\n") // a CPU that does not exist
	err := w.Refresh()
	assert.Check(t, errors.Is(err, unix.EINVAL), "a CPU that does not exist: %v", err)
	mapOnEachCPU(t, f)
	n.waitOrOverrun(t, "a mapping on CPU 0", EventLibrary, os.Getpid(), mapped+1)
	write("zero\n")
	err = w.Refresh()
	assert.Check(t, errors.Is(err, strconv.ErrSyntax), "a malformed list: %v", err)
	return n
}

// Close ends Run, waiting or busy, and releases everything.
func TestEventsClose(t *testing.T) {
	f := createLibrary(t)
	before := child.Descriptors(t)
	for range 20 {
		w := openWatcher(t, procscan.OnlineCPUs, ringBytes)
		ended := make(chan error)
		happened := make(chan struct{}, 1)
		go func() {
			ended <- w.Run(func(Event) {
				select {
				case happened <- struct{}{}:
				default:
				}
			})
		}()
		mapOnce(t, f)
		<-happened
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				assert.Check(t, w.Close())
			})
		}
		group.Go(func() {
			assert.Check(t, w.Refresh())
		})
		err := <-ended
		assert.Check(t, err)
		group.Wait()
		assert.Check(t, w.Run(func(Event) { t.Error("a closed watcher reports an event") }))
		assert.Check(t, w.Refresh())
	}
	n := child.Descriptors(t)
	assert.Check(t, n == before, "%d descriptors before, %d after", before, n)
}
