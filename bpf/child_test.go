package bpf

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A child is a running testdata/threads.c or testdata/exec.c.
type child struct {
	t        testing.TB
	pid      int
	commands io.WriteCloser
	answers  *bufio.Scanner
	threads  map[int]uint64 // thread pointer by tid, as the threads print it
	newest   []int          // of startThread, the newest last
	stop     func()         // ends the child, as the end of the test does
}

var compilers = []string{"cc", "musl-gcc"}

// programs are the compiled programs, for all tests of this run.
var programs struct {
	sync.Mutex
	dir      string
	compiled map[string]bool // by path
}

// compileChild returns the program compiled from testdata/SOURCE.
func compileChild(t testing.TB, compiler, source string, flags ...string) string {
	t.Helper()
	testenv.NeedTool(t, compiler)
	programs.Lock()
	defer programs.Unlock()
	path := filepath.Join(programs.dir, compiler+"-"+source)
	if programs.compiled[path] {
		return path
	}
	args := append(flags, "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", path, "testdata/"+source)
	out, err := exec.Command(compiler, args...).CombinedOutput()
	assert.NilError(t, err, "%s: %v\n%s", compiler, err, out)
	programs.compiled[path] = true
	return path
}

// startChild runs testdata/threads.c with workers threads beside its main thread and the one that
// reads commands, until the test ends.
func startChild(t testing.TB, compiler string, workers int, attr *syscall.SysProcAttr) *child {
	t.Helper()
	c := startProgram(t, attr, compileChild(t, compiler, "threads.c"), strconv.Itoa(workers))
	for range workers + 2 {
		c.readThread()
	}
	return c
}

// startProgram runs a program that reads commands, until the test ends.
func startProgram(t testing.TB, attr *syscall.SysProcAttr, name string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	commands, err := cmd.StdinPipe()
	assert.NilError(t, err)
	answers, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	c := &child{
		t: t, pid: cmd.Process.Pid, commands: commands, answers: bufio.NewScanner(answers),
		threads: make(map[int]uint64),
	}
	c.stop = sync.OnceFunc(func() {
		commands.Close()
		cmd.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

func (c *child) readThread() (tid int) {
	c.t.Helper()
	var pointer uint64
	_, err := fmt.Sscanf(c.read(), "thread %d %x", &tid, &pointer)
	assert.NilError(c.t, err)
	c.threads[tid] = pointer
	return tid
}

func (c *child) read() string {
	c.t.Helper()
	assert.Assert(c.t, c.answers.Scan(), "the child ended: %v", c.answers.Err())
	return c.answers.Text()
}

func (c *child) send(command string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.commands, command)
	assert.NilError(c.t, err)
}

// readKept reads the answer to halve: the threads that do not end.
func (c *child) readKept() map[int]uint64 {
	c.t.Helper()
	numbers, ok := strings.CutPrefix(c.read(), "keeping ")
	assert.Assert(c.t, ok, "the child did not print which threads it keeps")
	kept := make(map[int]uint64)
	for number := range strings.FieldsSeq(numbers) {
		tid, err := strconv.Atoi(number)
		assert.NilError(c.t, err)
		kept[tid] = c.threads[tid]
	}
	return kept
}

func (c *child) ask(command, want string) {
	c.t.Helper()
	c.send(command)
	got := c.read()
	assert.Assert(c.t, got == want, "the child answered %q to %q, not %q", got, command, want)
}

func (c *child) startThread() {
	c.t.Helper()
	c.send("start")
	c.newest = append(c.newest, c.readThread())
}

func (c *child) endThread() {
	c.t.Helper()
	last := len(c.newest) - 1
	c.ask("end", fmt.Sprintf("ended %d", c.newest[last]))
	delete(c.threads, c.newest[last])
	c.newest = c.newest[:last]
}

// verify compares the threads reported for the child with what its threads printed, and their start
// times with those in /proc.
func (c *child) verify(reported []Thread) {
	c.t.Helper()
	got := make(map[int]uint64)
	for _, thread := range reported {
		assert.Check(c.t, thread.PID == c.pid, "thread %d: pid %d, not %d", thread.TID, thread.PID, c.pid)
		_, ok := got[thread.TID]
		assert.Check(c.t, !ok, "thread %d was reported twice", thread.TID)
		got[thread.TID] = thread.ThreadPointer
		if ticks := startTicks(c.t, c.pid, thread.TID); thread.StartTime/nsPerTick != ticks {
			c.t.Errorf("thread %d: started at %d ns, in /proc at %d ticks", thread.TID, thread.StartTime, ticks)
		}
	}
	assert.Check(c.t, maps.Equal(got, c.threads), "threads and pointers: reported %x, want %x", got, c.threads)
}

// nsPerTick is 1 s / USER_HZ, which is 100 on both architectures.
const nsPerTick = 10_000_000

// startTicks returns field 22 of a thread's stat, its start in ticks since boot.
func startTicks(t testing.TB, pid, tid int) uint64 {
	t.Helper()
	ticks, err := strconv.ParseUint(statFields(t, pid, tid)[22-3], 10, 64)
	assert.NilError(t, err)
	return ticks
}

// statFields returns the fields of a thread's stat from the third on: the second may contain
// spaces.
func statFields(t testing.TB, pid, tid int) []string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	assert.NilError(t, err)
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
}

// taskNumbers returns the tids of a process in /proc, sorted.
func taskNumbers(t testing.TB, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	assert.NilError(t, err)
	var numbers []int
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		assert.NilError(t, err)
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}
