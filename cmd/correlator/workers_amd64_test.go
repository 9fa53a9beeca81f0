package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

// forbidden are system calls that no worker may make. Without a filter, they fail otherwise, mostly as there is nothing
// at the address 0.
var forbidden = []struct {
	name      string
	number    uint64
	arguments []uint64
}{
	{"execute", unix.SYS_EXECVE, nil},
	{"execute what is open", unix.SYS_EXECVEAT, nil},
	{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}},
	{"trace", unix.SYS_PTRACE, []uint64{unix.PTRACE_SEIZE, 1}},
	{"write to memory", unix.SYS_PROCESS_VM_WRITEV, []uint64{1}},
	{"take descriptors", unix.SYS_PIDFD_GETFD, nil},
	{"signal", unix.SYS_KILL, []uint64{1}},
	{"be another user", unix.SYS_SETRESUID, []uint64{1, 1, 1}},
	{"change a mode", unix.SYS_FCHMODAT, nil},
	{"change an owner", unix.SYS_FCHOWNAT, nil},
	{"remove", unix.SYS_UNLINKAT, nil},
	{"rename", unix.SYS_RENAMEAT2, nil},
	{"mount", unix.SYS_MOUNT, nil},
	{"enter a namespace", unix.SYS_SETNS, nil},
	{"load a module", unix.SYS_INIT_MODULE, nil},
	{"load a program", unix.SYS_BPF, []uint64{unix.BPF_PROG_LOAD}},
	{"sample", unix.SYS_PERF_EVENT_OPEN, nil},
	{"connect to hosts", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}},
	{"open for writing", unix.SYS_OPENAT, []uint64{0, 0, unix.O_WRONLY}},
	{"create", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT}},
	{"map code", unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ | unix.PROT_EXEC, unix.MAP_PRIVATE, ^uint64(0)}},
	{"use io_uring", unix.SYS_IO_URING_SETUP, nil},
}

// The workers of each kind, as they serve, may make no system call that they do not need: whoever has taken one over
// is confined to reading.
func TestWorkersForbidden(t *testing.T) {
	testenv.NeedRoot(t)
	for _, kind := range []worker.Kind{access.Kind, symbolizer.Kind, symbolizer.LiveKind, unwind.Kind()} {
		spawner, err := worker.NewSpawner("/proc", kind)
		assert.NilError(t, err)
		defer spawner.Close()
		w, err := spawner.Start()
		assert.NilError(t, err)
		defer w.Kill()
		testenv.Poll(t, 2*time.Minute, "a worker of kind "+kind.Name+" that waits for requests", func() bool {
			status := string(testenv.ReadFile(t, fmt.Sprintf("/proc/%d/status", w.PID())))
			return strings.Contains(status, "\nSeccomp:\t2\n") && strings.Contains(status, "\nState:\tS")
		})
		call := stopIn(t, w.PID())
		for _, f := range forbidden {
			errno := call(f.number, f.arguments)
			assert.Check(t, errno == unix.EPERM, "%s: %s: %v", kind.Name, f.name, errno)
		}
		assert.Check(t, call(unix.SYS_GETPID, nil) == 0, "a call that is permitted")
	}
}

// stopIn stops a thread for good that waits in a system call, and returns what has it make others.
func stopIn(t *testing.T, tid int) (call func(number uint64, arguments []uint64) unix.Errno) {
	t.Helper()
	runtime.LockOSThread() // which ends with the test
	stopped := func() {
		t.Helper()
		var status unix.WaitStatus
		_, err := unix.Wait4(tid, &status, unix.WALL, nil)
		assert.NilError(t, err)
		assert.Assert(t, status.Stopped(), "%x", status)
	}
	assert.NilError(t, unix.PtraceSeize(tid))
	assert.NilError(t, unix.PtraceInterrupt(tid))
	stopped()
	var waits unix.PtraceRegs
	assert.NilError(t, unix.PtraceGetRegs(tid, &waits))
	return func(number uint64, arguments []uint64) unix.Errno {
		t.Helper()
		const instruction = 2 // bytes
		regs := waits
		regs.Rip, regs.Rax, regs.Orig_rax = waits.Rip-instruction, number, ^uint64(0)
		for i, register := range []*uint64{&regs.Rdi, &regs.Rsi, &regs.Rdx, &regs.R10, &regs.R8, &regs.R9} {
			*register = 0
			if i < len(arguments) {
				*register = arguments[i]
			}
		}
		assert.NilError(t, unix.PtraceSetRegs(tid, &regs))
		assert.NilError(t, unix.PtraceSingleStep(tid))
		stopped()
		assert.NilError(t, unix.PtraceGetRegs(tid, &regs))
		assert.Assert(t, regs.Rip == waits.Rip, "it was in no system call: %+v, %+v", waits, regs)
		return unix.Errno(max(0, -int64(regs.Rax)))
	}
}
