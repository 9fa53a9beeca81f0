package check

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"correlator/memread"
)

// access counts the other processes by whether the kernel allows reading their memory now.
type access struct {
	allowed, denied int
	first           int // pid of a process that is denied
}

// accessTimeout limits the probe of all processes, each of which can hold the lock of its memory
// map for as long as it likes. The probe takes some microseconds per process.
const accessTimeout = 2 * time.Second

var errHangs = fmt.Errorf("reading the memory of a process hangs for %v", accessTimeout)

// probeMemory tries to read the memory of each process that has any, at an address that is not
// mapped.
func probeMemory(procRoot string) (access, error) {
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return access{}, err
	}
	processes, err := fs.AllProcs()
	if err != nil {
		return access{}, err
	}
	counted := make(chan access, 1)
	go func() { // may outlive this call
		var a access
		for _, process := range processes {
			if process.PID != os.Getpid() {
				a.add(process.PID, memread.ProbeAccess(procRoot, process.PID))
			}
		}
		counted <- a
	}()
	select {
	case a := <-counted:
		return a, nil
	case <-time.After(accessTimeout):
		return access{}, errHangs
	}
}

// add counts a process, unless it has no memory.
func (a *access) add(pid int, err error) {
	switch {
	case err == nil:
		a.allowed++
	case errors.Is(err, memread.ErrDenied):
		if a.denied++; a.denied == 1 {
			a.first = pid
		}
	}
}

// refused reports whether no process's memory may be read, although CAP_SYS_PTRACE is in effect.
func (m *machine) refused() bool {
	a, err := m.memory()
	return err == nil && a.denied > 0 && a.allowed == 0 && m.privileged(unix.CAP_SYS_PTRACE)
}

// processMemory checks whether the kernel allows reading the memory of other processes: capability,
// Yama, security module and seccomp together.
func processMemory(m *machine) finding {
	a, err := m.memory()
	if err != nil {
		return m.unknown(err, lossUnproved, "see proc-root; end the process that hangs")
	}
	all := a.allowed + a.denied
	if all == 0 {
		return finding{Degraded, "unknown: there is no other process", lossUnproved, "see pid-namespace"}
	}
	if a.denied == 0 {
		return ok(fmt.Sprintf("readable of all %d other processes", all))
	}
	f := finding{
		Degraded, fmt.Sprintf("readable of %d of %d other processes, not of process %d", a.allowed, all, a.first),
		fmt.Sprintf("%d of the %d processes that run now would not be served", a.denied, all),
		"see lsm; a security module may protect the process",
	}
	if a.allowed == 0 {
		f = finding{Missing, fmt.Sprintf("readable of none of %d other processes", all), "no process is served",
			"see user-namespace, kernel.yama.ptrace_scope and lsm"}
	}
	if !m.caps.Has(unix.CAP_SYS_PTRACE) {
		f.remedy = grant("CAP_SYS_PTRACE")
		if a.allowed > 0 {
			f.loss = lossRights
		}
	}
	return f
}
