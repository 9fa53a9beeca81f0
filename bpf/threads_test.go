package bpf

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func openThreads(t testing.TB) *Threads {
	t.Helper()
	testenv.NeedRoot(t)
	threads, err := OpenThreads()
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, threads.Close())
	})
	return threads
}

// eachWay runs a test with the kernel's filter by process and without, as on kernels before 6.1.
func eachWay(t *testing.T, test func(t *testing.T, threads *Threads)) {
	t.Run("filtered", func(t *testing.T) {
		threads := openThreads(t)
		if !threads.filters {
			testenv.Missing(t, "needs Linux 6.1: task iterators of one process")
		}
		test(t, threads)
	})
	t.Run("unfiltered", func(t *testing.T) {
		threads := openThreads(t)
		threads.filters = false
		test(t, threads)
	})
}

func process(t testing.TB, threads *Threads, pid int) []Thread {
	t.Helper()
	reported, err := threads.Process(pid, nil)
	assert.NilError(t, err, "Process(%d)", pid)
	return reported
}

func TestProcess(t *testing.T) {
	for _, compiler := range compilers {
		t.Run(compiler, func(t *testing.T) {
			eachWay(t, func(t *testing.T, threads *Threads) {
				c := startChild(t, compiler, 3, nil)
				c.verify(process(t, threads, c.pid))
				for range 3 {
					c.startThread()
					c.verify(process(t, threads, c.pid))
				}
				for range 3 {
					c.endThread()
					c.verify(process(t, threads, c.pid))
				}
			})
		})
	}
}

// A walk through a process whose threads do not change is complete.
func TestFilteredWalkIsComplete(t *testing.T) {
	threads := openThreads(t)
	if !threads.filters {
		testenv.Missing(t, "needs Linux 6.1: task iterators of one process")
	}
	for _, workers := range []int{0, 1, len(recordBuffer{})} {
		c := startChild(t, "cc", workers, nil)
		reported, complete, err := threads.walk(uint32(c.pid), everyProcess, nil)
		assert.NilError(t, err)
		c.verify(reported)
		assert.Check(t, complete, "%d threads: a walk that reported all of them is not complete", len(reported))
	}
}

// A process, and the machine, have more threads than fit into one read.
func TestProcessWithManyThreads(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		c := startChild(t, "cc", 500, nil)
		c.verify(process(t, threads, c.pid))
		big := startChild(t, "cc", len(recordBuffer{})+10, nil)
		big.verify(process(t, threads, big.pid))
		c.verify(process(t, threads, c.pid))
	})
}

// A process with more threads than the limit is an error, also with records in the buffer; walking
// all processes has no limit.
func TestProcessWithTooManyThreads(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		c := startChild(t, "cc", len(recordBuffer{})+10, nil)
		into := []Thread{{PID: 1, TID: 1}}
		threads.limit = len(process(t, threads, c.pid)) - 1
		reported, err := threads.Process(c.pid, into)
		assert.Check(t, errors.Is(err, ErrTooManyThreads) && len(reported) == len(into),
			"%d threads and error %v of a process with one more than %d", len(reported)-len(into), err, threads.limit)
		_, err = threads.all(nil)
		assert.Check(t, err)
		threads.limit++
		if reported, err := threads.Process(c.pid, into); err != nil || len(reported) != len(into)+threads.limit {
			t.Errorf("%d threads and error %v of a process with %d", len(reported)-len(into), err, threads.limit)
		}
	})
}

// Threads that exit during the walk do not hide those after them.
func TestProcessWhileThreadsEnd(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		rounds := 10
		if !threads.filters {
			rounds = 2 // it goes by number
		}
		for range rounds {
			c := startChild(t, "cc", 400, nil)
			c.send("halve")
			steady := c.readKept()
			halved := make(chan bool)
			go func() { halved <- c.answers.Scan() && c.answers.Text() == "halved" }()
			for done := false; !done; {
				select {
				case ok := <-halved:
					assert.Assert(t, ok, "the child did not answer")
					done = true
				default:
				}
				verifySteady(t, steady, process(t, threads, c.pid))
			}
			c.stop()
		}
	})
}

// verifySteady checks that each of these threads is reported once. It may be called on any
// goroutine.
func verifySteady(t *testing.T, steady map[int]uint64, reported []Thread) {
	t.Helper()
	seen := 0
	for _, thread := range reported {
		pointer, ok := steady[thread.TID]
		if !ok {
			continue
		}
		seen++
		assert.Check(t, pointer == thread.ThreadPointer,
			"thread %d: pointer %x, want %x", thread.TID, thread.ThreadPointer, pointer)
	}
	assert.Check(t, seen == len(steady), "%d of %d threads that did not exit were reported", seen, len(steady))
}

// Several readers walk while a process keeps starting and ending threads.
func TestConcurrentReaders(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		steady := startChild(t, "cc", 20, nil)
		busy := startChild(t, "cc", 20, nil)
		steadyThreads, busyThreads := steady.threads, maps.Clone(busy.threads)
		busy.ask("churn", "churning")
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				var buffer []Thread
				for range 100 {
					var err error
					if buffer, err = threads.Process(busy.pid, buffer[:0]); err != nil {
						t.Error(err)
						return
					}
					verifySteady(t, busyThreads, buffer)
					if buffer, err = threads.all(buffer[:0]); err != nil {
						t.Error(err)
						return
					}
					verifySteady(t, busyThreads, buffer)
					verifySteady(t, steadyThreads, buffer)
				}
			})
		}
		readers.Wait()
	})
}

// all appends the threads of all processes of our pid namespace to into and returns the result.
func (t *Threads) all(into []Thread) ([]Thread, error) {
	threads, _, err := t.walk(everyProcess, everyProcess, into)
	return threads, err
}

func TestAll(t *testing.T) {
	threads := openThreads(t)
	c := startChild(t, "cc", 5, nil)
	other := startChild(t, "musl-gcc", 5, nil)
	into := []Thread{{PID: -1}}
	reported, err := threads.all(into)
	assert.NilError(t, err)
	assert.Check(t, reported[0].PID == -1, "the record before is gone")
	byPID := make(map[int][]Thread)
	for _, thread := range reported[1:] {
		byPID[thread.PID] = append(byPID[thread.PID], thread)
	}
	c.verify(byPID[c.pid])
	other.verify(byPID[other.pid])
	assert.Check(t, len(byPID[os.Getpid()]) >= 2, "we have more threads than %v", byPID[os.Getpid()])
	kernelThreads := byPID[kernelThread(t)]
	assert.Check(t, len(kernelThreads) == 0, "a kernel thread was reported: %v", kernelThreads)
}

// kernelThread returns the pid of kthreadd, 2, or 0 in a pid namespace without kernel threads.
func kernelThread(t testing.TB) int {
	t.Helper()
	name, err := os.ReadFile("/proc/2/comm")
	if err == nil && string(name) == "kthreadd\n" {
		return 2
	}
	return 0
}

func TestProcessGone(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		zombie := exec.Command("true")
		assert.NilError(t, zombie.Start())
		defer zombie.Wait()
		testenv.Poll(t, time.Minute, "the zombie", func() bool { return state(t, zombie.Process.Pid) == "Z" })
		ended := exec.Command("true")
		assert.NilError(t, ended.Run())
		c := startChild(t, "cc", 1, nil)
		tids := slices.DeleteFunc(taskNumbers(t, c.pid), func(tid int) bool { return tid == c.pid })
		for name, pid := range map[string]int{
			"zombie":            zombie.Process.Pid,
			"ended":             ended.Process.Pid,
			"kernel thread":     kernelThread(t),
			"thread, no leader": tids[0],
			"zero":              0,
			"negative":          -c.pid,
			"too large":         1<<32 + c.pid,
			"never given":       1 << 30, // above the largest pid_max, 1 << 22
		} {
			into := []Thread{{PID: -1}}
			reported, err := threads.Process(pid, into)
			assert.Check(t, errors.Is(err, ErrGone), "%s: error %v, not ErrGone", name, err)
			assert.Check(t, slices.Equal(reported, into), "%s: reported %v", name, reported[1:])
		}
	})
}

// state returns the third field of /proc/PID/stat.
func state(t testing.TB, pid int) string {
	t.Helper()
	return statFields(t, pid, pid)[0]
}

// An ended main thread, which stays in the list of threads, is not reported.
func TestMainThreadEnded(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		c := startChild(t, "cc", 2, nil)
		c.ask("leave", "leaving")
		testenv.Poll(t, time.Minute, "the main thread's end", func() bool { return state(t, c.pid) == "Z" })
		delete(c.threads, c.pid)
		c.verify(process(t, threads, c.pid))
	})
}

// Workers of io_uring, threads of the process with the thread pointer of their creator, are not
// reported.
func TestIOWorkersAreNotReported(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		c := startChild(t, "cc", 2, nil)
		c.send("ring")
		if c.read() != "ring" {
			testenv.Missing(t, "io_uring is disabled on this machine")
		}
		c.startThread()
		tasks := taskNumbers(t, c.pid)
		assert.Assert(t, len(tasks) > len(c.threads), "no worker among the threads: %v", tasks)
		c.verify(process(t, threads, c.pid))
	})
}
