package watch

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

const eventLibrary = "elastic-jvmti-linux-x64-1.so"

// counts are the events that a watcher reported.
type counts struct {
	mu     sync.Mutex
	events map[Event]int // without Lost
	lost   uint64

	gaps int // that a test makes
}

func (n *counts) add(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost += e.Lost
	e.Lost = 0
	n.events[e]++
}

func (n *counts) count(kind EventKind, pid int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events[Event{Kind: kind, PID: pid}]
}

func (n *counts) wait(t testing.TB, what string, kind EventKind, pid, count int) {
	t.Helper()
	testenv.Poll(t, child.Timeout, what, func() bool { return n.count(kind, pid) >= count })
}

// overrun reports whether events were lost besides those of gaps.
func (n *counts) overrun() bool { return n.count(EventLost, 0) > n.gaps }

// waitOrOverrun is wait, but ends when there is an overrun, too.
func (n *counts) waitOrOverrun(t testing.TB, what string, kind EventKind, pid, count int) {
	t.Helper()
	testenv.Poll(t, child.Timeout, what, func() bool { return n.overrun() || n.count(kind, pid) >= count })
}

// untilNoOverrun repeats a test in which each event is to be reported, while it ends with an overrun: other processes
// may cause more records than a ring holds at the same time, but not each time.
func untilNoOverrun(t *testing.T, test func() *counts) {
	t.Helper()
	const tries = 20
	for range tries {
		n := test()
		if !n.overrun() {
			return
		}
		n.mu.Lock()
		t.Logf("%d records were lost, in %d gaps", n.lost, n.events[Event{Kind: EventLost}])
		n.mu.Unlock()
	}
	t.Errorf("events were lost in each of %d tries", tries)
}

func openWatcher(t testing.TB, list string, size int) *EventWatcher {
	t.Helper()
	testenv.NeedRoot(t)
	w, err := openEventWatcher(list, size)
	assert.NilError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// runWatcher runs the watcher until the end of the test.
func runWatcher(t testing.TB, w *EventWatcher) *counts {
	t.Helper()
	n := &counts{events: make(map[Event]int)}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(n.add) }()
	t.Cleanup(func() {
		assert.Check(t, errors.Join(w.Close(), <-ended))
	})
	return n
}

// mapOnce maps a file executable in this process, and unmaps it.
func mapOnce(t testing.TB, f *os.File) {
	t.Helper()
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Munmap(page)
	}
	assert.NilError(t, err)
}

// onEachCPU calls do on every CPU that this process may use.
func onEachCPU(t testing.TB, do func(cpu int)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &all))
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		assert.NilError(t, unix.SchedSetaffinity(0, &one))
		do(cpu)
	}
	assert.NilError(t, unix.SchedSetaffinity(0, &all))
}

// mapOnEachCPU returns the number of CPUs.
func mapOnEachCPU(t testing.TB, f *os.File) (cpus int) {
	t.Helper()
	onEachCPU(t, func(int) {
		mapOnce(t, f)
		cpus++
	})
	return cpus
}

func createLibrary(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), eventLibrary))
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	assert.NilError(t, f.Truncate(int64(os.Getpagesize())))
	return f
}

func TestEvents(t *testing.T) {
	for name, cloneflags := range map[string]uintptr{"own pid namespace": 0, "one below": syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			untilNoOverrun(t, func() *counts { return testEvents(t, cloneflags) })
		})
	}
}

func testEvents(t *testing.T, cloneflags uintptr) *counts {
	n := runWatcher(t, openWatcher(t, procscan.OnlineCPUs, ringBytes))
	dir := t.TempDir()
	cmd := child.Command(t, "host")
	cmd.SysProcAttr.Cloneflags = cloneflags
	p := child.StartReady(t, cmd, child.HostSpec{Maps: []child.MapSpec{
		{Path: filepath.Join(dir, "other.so")},
		{Path: "", Times: 3}, // as just-in-time compilers do
	}})
	n.waitOrOverrun(t, "the start of the program", EventExec, p.PID, 1)
	n.waitOrOverrun(t, "a mapping of another file", EventFile, p.PID, 1)
	n.waitOrOverrun(t, "mappings of memory", EventMapping, p.PID, 3)
	assert.Check(t, n.count(EventLibrary, p.PID) == 0, "a library is reported, but none is mapped")
	p.Tell(t, "exec")
	n.waitOrOverrun(t, "the other program", EventExec, p.PID, 2)
	spec := child.HostSpec{Maps: []child.MapSpec{{Path: filepath.Join(dir, eventLibrary), Times: 2}}}
	assert.NilError(t, json.NewEncoder(p.Stdin).Encode(spec))
	n.waitOrOverrun(t, "the library", EventLibrary, p.PID, 2)
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	if found, err := scanner.Process(p.PID); !n.overrun() && (err != nil || len(found.Libraries) != 2) {
		t.Errorf("reported, but not mapped: %v, %v", found, err)
	}
	return n
}

// Memory is reported when it is made executable; data is not.
func TestEventProtection(t *testing.T) {
	f := createLibrary(t)
	untilNoOverrun(t, func() *counts {
		n := runWatcher(t, openWatcher(t, procscan.OnlineCPUs, ringBytes))
		page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		assert.NilError(t, err)
		defer unix.Munmap(page)
		mapOnce(t, f)
		n.waitOrOverrun(t, "an executable mapping", EventLibrary, os.Getpid(), 1)
		assert.NilError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC))
		n.waitOrOverrun(t, "data made executable", EventLibrary, os.Getpid(), 2)
		count := n.count(EventLibrary, os.Getpid())
		assert.Check(t, count <= 2, "reported %d times", count)
		return n
	})
}

// A path that is too long for the kernel's record is reported as one that may be the library's.
func TestEventLongPath(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), unix.O_PATH|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	defer func() { unix.Close(dir) }()
	name := strings.Repeat("d", 255)
	for range 4096/len(name) + 1 {
		assert.NilError(t, unix.Mkdirat(dir, name, 0o700))
		below, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		assert.NilError(t, err)
		unix.Close(dir)
		dir = below
	}
	fd, err := unix.Openat(dir, "library", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	assert.NilError(t, err)
	f := os.NewFile(uintptr(fd), "library")
	defer f.Close()
	untilNoOverrun(t, func() *counts {
		n := runWatcher(t, openWatcher(t, procscan.OnlineCPUs, ringBytes))
		mapOnce(t, f)
		n.waitOrOverrun(t, "the mapping", EventLibrary, os.Getpid(), 1)
		return n
	})
}

// Events are reported that come alone: whatever woke the watcher before, the next one does, too.
func TestEventsAlone(t *testing.T) {
	untilNoOverrun(t, func() *counts {
		n := runWatcher(t, openWatcher(t, procscan.OnlineCPUs, ringBytes))
		f := createLibrary(t)
		for i := range 100 {
			testenv.Poll(t, child.Timeout, "Run to wait for a waker", func() bool {
				return goroutineIs("[IO wait", "(*EventWatcher).await(")
			})
			mapOnce(t, f)
			n.waitOrOverrun(t, "a mapping", EventLibrary, os.Getpid(), i+1)
		}
		return n
	})
}

// Hundreds of programs with the library's name start, and each is reported.
func TestEventsAllReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), eventLibrary)
	testenv.WriteProgram(t, path, testenv.ReadFile(t, testenv.NeedTool(t, "true")), 0o700)
	untilNoOverrun(t, func() *counts {
		n := runWatcher(t, openWatcher(t, procscan.OnlineCPUs, ringBytes))
		pids := runOften(t, path)
		testenv.Poll(t, child.Timeout, "all programs, or a loss", func() bool {
			return n.overrun() || !slices.ContainsFunc(pids, func(pid int) bool {
				return n.count(EventExec, pid) == 0 || n.count(EventLibrary, pid) == 0
			})
		})
		return n
	})
}

// runOften runs a program 500 times, four at once, and returns the pids.
func runOften(t *testing.T, path string) []int {
	t.Helper()
	const programs, at = 500, 4
	pids := make([]int, programs)
	var group sync.WaitGroup
	for first := range at {
		group.Go(func() {
			for i := first; i < programs; i += at {
				cmd := exec.Command(path)
				if err := cmd.Run(); err != nil {
					t.Error(err)
					return
				}
				pids[i] = cmd.Process.Pid
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return pids
}

// A process that renames its threads as fast as it can takes nobody's events: what others map
// meanwhile, and execute, is reported, without a loss, also when the rings were not read for long.
func TestEventsOfOthersWhileThreadsAreRenamed(t *testing.T) {
	f := createLibrary(t)
	untilNoOverrun(t, func() *counts {
		w := openWatcher(t, procscan.OnlineCPUs, ringBytes)
		cmd := child.Command(t, "renames")
		cmd.SysProcAttr = asNobody()
		defer child.StartReady(t, cmd, nil).Kill()
		mapped := mapOnEachCPU(t, f)
		other := exec.Command(testenv.NeedTool(t, "true"))
		assert.NilError(t, other.Run())
		n := runWatcher(t, w)
		testenv.Poll(t, child.Timeout, "all events, or a loss", func() bool {
			return n.overrun() ||
				n.count(EventLibrary, os.Getpid()) == mapped && n.count(EventExec, other.Process.Pid) == 1
		})
		return n
	})
}

// A single mapping is reported each time when Run waits for the waker.
func TestEventsWaker(t *testing.T) {
	f := createLibrary(t)
	untilNoOverrun(t, func() *counts {
		w := openWatcher(t, procscan.OnlineCPUs, ringBytes)
		n := runWatcher(t, w)
		mapped := 0
		for range 20 {
			onEachCPU(t, func(cpu int) {
				testenv.Poll(t, child.Timeout, "the waker to be on", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return !w.rings[cpu].wakerPaused
				})
				mapOnce(t, f)
				mapped++
				n.waitOrOverrun(t, "the mapping", EventLibrary, os.Getpid(), mapped)
			})
		}
		return n
	})
}

// A ring that is too small overflows while nothing reads it. The first poll reports that, a later
// one how many records were lost, and then events are reported again.
func TestEventsOverflow(t *testing.T) {
	w := openWatcher(t, procscan.OnlineCPUs, 2*os.Getpagesize())
	const before = 1000
	f := createLibrary(t)
	for range before {
		mapOnce(t, f)
	}
	n := runWatcher(t, w)
	n.wait(t, "the loss", EventLost, 0, 1)
	// The kernel counts losses by CPU, and reports them with the next record there.
	mapOnEachCPU(t, f)
	testenv.Poll(t, child.Timeout, "all records, reported or lost", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.events[Event{Kind: EventLibrary, PID: os.Getpid()}]+int(n.lost) >= before
	})
	assert.Check(t, n.lost != 0 && n.count(EventLibrary, os.Getpid()) != 0,
		"%d records lost, %d reported", n.lost, n.count(EventLibrary, os.Getpid()))
	have := n.count(EventLibrary, os.Getpid())
	mapOnEachCPU(t, f)
	n.wait(t, "later mappings", EventLibrary, os.Getpid(), have+1)
}
