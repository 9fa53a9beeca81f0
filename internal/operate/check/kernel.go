package check

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/procscan/watch"
)

func liveEvents(m *machine) finding {
	err := m.liveEvents()
	if err == nil {
		return ok("the kernel records what processes map and execute")
	}
	remedy := "allow perf_event_open in the seccomp profile and the security module"
	initial, linkErr := m.inInitialUserNamespace()
	switch {
	case m.procfs() != nil:
		return m.unknown(err, lossLive, "")
	case linkErr == nil && !initial:
		remedy = "see user-namespace"
	case errors.Is(err, errors.ErrUnsupported):
		remedy = "boot a kernel built with CONFIG_PERF_EVENTS"
	case !m.caps.Has(unix.CAP_PERFMON) && !m.caps.Has(unix.CAP_SYS_ADMIN):
		remedy = grant("CAP_PERFMON")
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		remedy = "see RLIMIT_NOFILE below"
	case m.lockedMemory() < watch.EventMemoryBytes() && !m.caps.Has(unix.CAP_IPC_LOCK):
		remedy = "see kernel.perf_event_mlock_kb below"
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // there is a line for each CPU
	return finding{Missing, first, lossLive, remedy}
}

func kernelSymbols(m *machine) finding {
	err := m.kernelSymbols()
	if err == nil {
		return ok("kallsyms has the addresses of the kernel, and its notes the build id")
	}
	return finding{Missing, err.Error(), lossSymbols, "see CAP_SYSLOG and kernel.kptr_restrict"}
}
