package bpf

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

// In another pid namespace all pids are those of that namespace: these tests pass there, with its
// /proc, and children that print their pids in it.
func TestInNestedNamespace(t *testing.T) {
	testenv.NeedRoot(t)
	if os.Getenv(innerVariable) != "" {
		t.Skip("this is the nested namespace")
	}
	openThreads(t).Close() // skips the test if something is missing
	tests := []string{"TestProcess", "TestAll", "TestProcessGone", "TestNamespaceBelow",
		"TestContexts", "TestUnreadable", "TestIdentify", "TestSamplerBelow"}
	output := runAgain(t, innerNamespace, "^("+strings.Join(tests, "|")+")$",
		&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS})
	for _, test := range tests {
		assert.Check(t, strings.Contains(output, "--- PASS: "+test+" "),
			"%s did not pass in the nested namespace:\n%s", test, output)
	}
}

// For a process in a namespace below ours, the pids are those of ours.
func TestNamespaceBelow(t *testing.T) {
	eachWay(t, func(t *testing.T, threads *Threads) {
		c := startChild(t, "cc", 3, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
		_, ok := c.threads[1]
		assert.Assert(t, ok, "the child has no thread 1 in its own namespace: %v", c.threads)
		inner := c.threads
		c.threads = make(map[int]uint64)
		for _, tid := range taskNumbers(t, c.pid) {
			c.threads[tid] = inner[innerNumber(t, c.pid, tid)]
		}
		c.verify(process(t, threads, c.pid))
	})
}

// innerNumber returns the tid of a thread in its innermost pid namespace: the last number of NSpid
// in its status.
func innerNumber(t *testing.T, pid, tid int) (number int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	assert.NilError(t, err)
	_, rest, _ := bytes.Cut(status, []byte("\nNSpid:"))
	line, _, _ := strings.Cut(string(rest), "\n")
	numbers := strings.Fields(line)
	assert.Assert(t, len(numbers) >= 2, "thread %d: NSpid %q has no inner number", tid, line)
	_, err = fmt.Sscan(numbers[len(numbers)-1], &number)
	assert.NilError(t, err)
	return number
}

// For a target in a namespace below ours, the pids are those of ours.
func TestSamplerBelow(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	c := startExecChild(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	rule := c.ready()
	rule.Offset += 1 << 40 // an unmapped address
	addTarget(t, s, c.pid, func() tlsdesc.Rule { return rule })
	waitForFirst(t, s, Unreadable)
	stop(t, s)
	tids := taskNumbers(t, c.pid)
	// Inside, both have other numbers. The first thread may run, too.
	verifyDeferred(t, s, readCounters(t, s)[Unreadable], func(d deferredSample) {
		assert.Check(t, d.PID == c.pid && slices.Contains(tids, d.TID), "process %d, thread %d of %v", d.PID, d.TID,
			tids)
	})
}
