package check

import "testing"

func TestProcessMemory(t *testing.T) {
	m := fakeMachine(t, nil)
	found(t, m, "process-memory").verify(t, OK, "all 10 other", "")
	m.memory = func() (access, error) { return access{allowed: 9, denied: 1, first: 1}, nil }
	found(t, m, "process-memory").verify(t, Degraded, "9 of 10 other processes, not of process 1",
		"lsm")
	m.memory = func() (access, error) { return access{denied: 10, first: 1}, nil }
	found(t, m, "process-memory").verify(t, Missing, "none of 10", "kernel.yama.ptrace_scope")
	m.caps = 0
	found(t, m, "process-memory").verify(t, Missing, "none of 10", "CAP_SYS_PTRACE")
	m.memory = func() (access, error) { return access{}, errHangs }
	found(t, m, "process-memory").verify(t, Degraded, "hangs", "end the process")
}
