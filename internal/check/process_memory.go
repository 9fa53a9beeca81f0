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

// access is of how many of the other processes the kernel lets us read the memory, now.
type access struct {
	allowed, denied int
	first           int // pid of one that is denied
}

// accessTimeout bounds the look at all processes, of which any may hold its memory map's lock for as long
// as it likes. It takes some microseconds for each.
const accessTimeout = 2 * time.Second

var errHangs = fmt.Errorf("reading the memory of a process hangs for %v", accessTimeout)

// tryMemory tries to read each process of which there is memory, at an address where there is none.
func tryMemory(procRoot string) (access, error) {
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return access{}, err
	}
	processes, err := fs.AllProcs()
	if err != nil {
		return access{}, err
	}
	tried := make(chan access, 1)
	go func() { // which may be left behind
		var a access
		for _, process := range processes {
			if process.PID != os.Getpid() {
				a.add(process.PID, memread.ProbeAccess(procRoot, process.PID))
			}
		}
		tried <- a
	}()
	select {
	case a := <-tried:
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

// refused says whether we may not read any process's memory, though we have the capability and it counts.
func (m *machine) refused() bool {
	a, err := m.memory()
	return err == nil && a.denied > 0 && a.allowed == 0 && m.privileged(unix.CAP_SYS_PTRACE)
}

// processMemory is whether the kernel lets us read processes that are not ours: capability, Yama, security
// module and seccomp together.
func processMemory(m *machine) finding {
	a, err := m.memory()
	if err != nil {
		return m.unknown(err, lossUnproved, "see proc-root; end the process that hangs")
	}
	all := a.allowed + a.denied
	if all == 0 {
		return finding{Degraded, "not known: there is no other process", lossUnproved, "see pid-namespace"}
	}
	if a.denied == 0 {
		return ok(fmt.Sprintf("that of all %d other processes may be read", all))
	}
	f := finding{
		Degraded, fmt.Sprintf("that of %d of %d other processes may be read, not that of process %d", a.allowed, all, a.first),
		fmt.Sprintf("%d of the %d processes that run now would not be served", a.denied, all),
		"see lsm; the process may be protected by one",
	}
	if a.allowed == 0 {
		f = finding{Missing, fmt.Sprintf("that of none of %d other processes may be read", all), "no process is served",
			"see user-namespace, kernel.yama.ptrace_scope and lsm"}
	}
	if !m.caps.has(unix.CAP_SYS_PTRACE) {
		f.remedy = grant("CAP_SYS_PTRACE")
		if a.allowed > 0 {
			f.loss = lossRights
		}
	}
	return f
}
